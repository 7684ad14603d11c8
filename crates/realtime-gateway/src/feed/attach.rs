//! Asking for a project's feed, and saying that it is still wanted.
//!
//! Must never give up: a project that is deferred is asked for again until a listener has room.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use realtime_core::id::ProjectId;
use realtime_core::subject;
use realtime_node::backoff::jittered;
use realtime_node::bus::{Bus, BusError};
use realtime_proto::v1;
use realtime_proto::v1::attach_reply::Outcome;

/// How often an unanswered wish is repeated, less jitter.
pub const ATTACH_EVERY: Duration = Duration::from_secs(5);

/// Within how long the feeds of a listener that fell silent are asked for.
pub const ATTACH_SPREAD: Duration = Duration::from_millis(300);

/// How often interest is told.
pub const INTEREST_EVERY: Duration = Duration::from_secs(10);

/// How long the owner's beat may be missing.
pub const BEAT_AGE_MAX: Duration = Duration::from_secs(15);

/// A bus without listeners in the group is asked so many times: they leave and join it as their loads change.
const ASKED_MAX: u32 = 3;

/// How long between such questions, less jitter.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Deadline of one request to be attached.
const ATTACH_DEADLINE: Duration = Duration::from_secs(2);

/// What became of the wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// Somebody holds the feed, or is about to: its `Up` follows.
    Soon,
    /// No listener has room.
    Deferred,
    /// No listener knows the project.
    UnknownProject,
    /// The bus or the answer failed.
    Failed,
}

/// Asks the listeners to attach a project.
pub async fn attach(bus: Bus, project: ProjectId, gateway: std::sync::Arc<str>) -> Attached {
    let request = v1::AttachRequest {
        project: project.to_string(),
        gateway: gateway.to_string(),
    };
    let body: Bytes = request.encode_to_vec().into();
    for asked in 1..=ASKED_MAX {
        match bus.request(subject::ATTACH, body.clone(), ATTACH_DEADLINE).await {
            Ok(body) => return outcome(body),
            Err(BusError::NoResponders) if asked < ASKED_MAX => {
                tokio::time::sleep(jittered(ASK_AGAIN_AFTER)).await;
            }
            Err(BusError::NoResponders) => break,
            Err(error) => {
                tracing::debug!(%project, %error, "attach was not answered");
                return Attached::Failed;
            }
        }
    }
    Attached::Deferred
}

fn outcome(body: Bytes) -> Attached {
    match v1::AttachReply::decode(body).map(|reply| reply.outcome()) {
        Ok(Outcome::Accepted | Outcome::HeldElsewhere) => Attached::Soon,
        Ok(Outcome::UnknownProject) => Attached::UnknownProject,
        Ok(Outcome::Unspecified) | Err(_) => Attached::Failed,
    }
}

/// Says that this gateway has sessions of a project.
pub async fn tell_interest(bus: Bus, project: ProjectId, gateway: std::sync::Arc<str>, sessions: usize) {
    let sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
    let interest = v1::Interest {
        gateway: gateway.to_string(),
        sessions,
    };
    let told = bus
        .publish(&subject::interest(&project), interest.encode_to_vec().into())
        .await;
    if let Err(error) = told {
        tracing::debug!(%project, %error, "interest could not be told");
    }
}
