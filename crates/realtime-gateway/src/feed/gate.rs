//! Verdicts on one event for everybody whom it may concern.
//!
//! Must never leave a subject without a verdict: what was not judged in time is a drop.

use std::time::Duration;

use futures_util::future::join_all;
use realtime_core::change::{ChangeEvent, Position};
use realtime_core::claims::{Claims, Fingerprint};
use realtime_core::id::ProjectId;
use realtime_core::verdict::DropReason;
use rustc_hash::FxHashMap;

use crate::authz::{Authz, Judgement, SUBJECTS_MAX};

/// The verdicts on one event.
#[derive(Debug, Default)]
pub struct Verdicts(FxHashMap<Fingerprint, Judgement>);

impl Verdicts {
    /// The judgement for a fingerprint; a drop where there is none.
    pub fn of(&self, fingerprint: Fingerprint) -> Judgement {
        self.0
            .get(&fingerprint)
            .cloned()
            .unwrap_or_else(|| Judgement::drop(DropReason::AuthzUnavailable))
    }

    /// Judgements by fingerprint.
    pub fn of_all(judgements: impl IntoIterator<Item = (Fingerprint, Judgement)>) -> Self {
        Self(judgements.into_iter().collect())
    }

    /// Drops for everybody.
    pub fn all_dropped(subjects: &[Claims], reason: DropReason) -> Self {
        Self(
            subjects
                .iter()
                .map(|claims| (claims.fingerprint(), Judgement::drop(reason)))
                .collect(),
        )
    }
}

/// Asks authz about an event, for subjects whose fingerprints are distinct, in batches.
pub async fn judge(
    authz: &Authz,
    project: &ProjectId,
    event: &ChangeEvent,
    subjects: &[Claims],
    facts: Position,
    deadline: Duration,
) -> Verdicts {
    let batches = subjects.chunks(SUBJECTS_MAX);
    let asked = batches.map(async |batch| {
        let judgements = authz.check(project, event, batch, facts, deadline).await;
        batch
            .iter()
            .map(Claims::fingerprint)
            .zip(judgements)
            .collect::<Vec<_>>()
    });
    Verdicts::of_all(join_all(asked).await.into_iter().flatten())
}
