//! The client of authz: who may see which row, and what tables are like.
//!
//! Must never answer in authz's place: whatever fails here is a drop with its reason, or no facts.

mod connect;
mod settings;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use realtime_core::change::{ChangeEvent, Position};
use realtime_core::claims::{Claims, Role};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::table::TableFacts;
use realtime_core::verdict::{DropReason, Verdict};
use realtime_proto::v1;
use realtime_proto::v1::authz_service_client::AuthzServiceClient;
use realtime_proto::v1::table_service_client::TableServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

pub use connect::AuthzArgs;

/// Most subjects of one question, by the contract.
pub const SUBJECTS_MAX: usize = 256;

/// Largest answer that is read, in bytes: facts of a table with very many columns.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The replicas of authz. Cloning shares the connections.
#[derive(Clone)]
pub struct Authz(Arc<[Replica]>);

struct Replica {
    name: String,
    client: AuthzServiceClient<Channel>,
    settings: TableServiceClient<Channel>,
}

/// A verdict, and the SQLSTATE where a policy raised an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// May it be delivered.
    pub verdict: Verdict,
    /// The SQLSTATE of [`DropReason::PolicyError`].
    pub sqlstate: Option<Box<str>>,
}

/// Facts could not be had just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("authz: table facts could not be read")]
pub struct NoFacts;

impl Authz {
    /// A client over connected or lazily connecting channels, each with a name of its own that
    /// stays the same in every gateway.
    pub fn new(replicas: impl IntoIterator<Item = (String, Channel)>) -> Self {
        let replica = |(name, channel): (String, Channel)| Replica {
            name,
            settings: TableServiceClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX),
            client: AuthzServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX),
        };
        Self(replicas.into_iter().map(replica).collect())
    }

    /// Judges one event for up to [`SUBJECTS_MAX`] subjects. Always as many judgements as
    /// subjects, in their order; each is a drop if the answer does not come within `deadline`.
    pub async fn check(
        &self,
        project: &ProjectId,
        event: &ChangeEvent,
        subjects: &[Claims],
        facts: Position,
        deadline: Duration,
    ) -> Vec<Judgement> {
        let request = v1::CheckRequest {
            project: project.to_string(),
            event: Some(event.into()),
            subjects: subjects.iter().map(Into::into).collect(),
            facts: Some(facts.into()),
        };
        let asked = self.ask(project, deadline, request, async |mut client, request| {
            client.check(request).await.map(tonic::Response::into_inner)
        });
        let failed = |reason| vec![Judgement::drop(reason); subjects.len()];
        match asked.await {
            Ok(answer) if answer.verdicts.len() == subjects.len() => {
                answer.verdicts.into_iter().map(judgement).collect()
            }
            // An answer to another question is none.
            Ok(_) => failed(DropReason::AuthzUnavailable),
            Err(reason) => failed(reason),
        }
    }

    /// What a gateway needs to know of a table for one role.
    ///
    /// # Errors
    /// authz could not be reached, or could not tell within `deadline`.
    pub async fn describe(
        &self,
        project: &ProjectId,
        table: &TableRef,
        role: &Role,
        facts: Position,
        deadline: Duration,
    ) -> Result<TableFacts, NoFacts> {
        let request = v1::DescribeTableRequest {
            project: project.to_string(),
            schema: table.schema.to_string(),
            table: table.table.to_string(),
            role: role.as_str().to_owned(),
            facts: Some(facts.into()),
        };
        let asked = self.ask(project, deadline, request, async |mut client, request| {
            client
                .describe_table(request)
                .await
                .map(tonic::Response::into_inner)
        });
        let answer = asked.await.map_err(|_| NoFacts)?;
        TableFacts::try_from(answer).map_err(|_| NoFacts)
    }

    /// Asks the project's replica, and the next one where that cannot be reached.
    async fn ask<Q: Clone, A>(
        &self,
        project: &ProjectId,
        deadline: Duration,
        question: Q,
        call: impl AsyncFn(AuthzServiceClient<Channel>, Request<Q>) -> Result<A, Status>,
    ) -> Result<A, DropReason> {
        let until = tokio::time::Instant::now() + deadline;
        let asked = async {
            let mut reason = DropReason::AuthzUnavailable;
            for replica in self.ranked(project) {
                let mut request = Request::new(question.clone());
                request.set_timeout(until.duration_since(tokio::time::Instant::now()));
                match call(replica.client.clone(), request).await {
                    Ok(answer) => return Ok(answer),
                    Err(status) => {
                        tracing::debug!(replica = %replica.name, code = ?status.code(), "authz did not answer");
                        reason = reason_of(status.code());
                        if status.code() != Code::Unavailable {
                            break;
                        }
                    }
                }
            }
            Err(reason)
        };
        tokio::time::timeout_at(until, asked)
            .await
            .unwrap_or(Err(DropReason::Deadline))
    }

    /// The replicas by rendezvous: every gateway puts a project's questions to the same one, so
    /// that pools do not multiply, and a replica that goes moves only its own projects.
    fn ranked(&self, project: &ProjectId) -> Vec<&Replica> {
        let mut replicas: Vec<&Replica> = self.0.iter().collect();
        replicas.sort_by_cached_key(|replica| {
            // Keyed by constants: the same in every gateway.
            let mut hasher = DefaultHasher::new();
            (project, &replica.name).hash(&mut hasher);
            std::cmp::Reverse(hasher.finish())
        });
        replicas
    }
}

impl Judgement {
    /// A drop that authz did not decide.
    pub fn drop(reason: DropReason) -> Self {
        Self {
            verdict: Verdict::Drop(reason),
            sqlstate: None,
        }
    }
}

impl std::fmt::Debug for Authz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|replica| &replica.name))
            .finish()
    }
}

fn judgement(message: v1::Verdict) -> Judgement {
    let sqlstate = Some(message.sqlstate.as_str())
        .filter(|state| is_sqlstate(state))
        .map(Box::from);
    match Verdict::try_from(message) {
        Ok(verdict) => Judgement { verdict, sqlstate },
        Err(_) => Judgement::drop(DropReason::AuthzUnavailable),
    }
}

/// Five digits or capitals: nothing else is passed on to a client.
fn is_sqlstate(text: &str) -> bool {
    text.len() == 5
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}

fn reason_of(code: Code) -> DropReason {
    match code {
        Code::DeadlineExceeded | Code::Cancelled => DropReason::Deadline,
        Code::ResourceExhausted => DropReason::PoolSaturated,
        _ => DropReason::AuthzUnavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authz(names: &[&str]) -> Authz {
        let endpoint = tonic::transport::Endpoint::from_static("http://127.0.0.1:1");
        Authz::new(
            names
                .iter()
                .map(|name| ((*name).to_owned(), endpoint.connect_lazy())),
        )
    }

    #[tokio::test]
    async fn a_project_keeps_its_replica_while_others_come_and_go() {
        let (three, two) = (authz(&["a", "b", "c"]), authz(&["c", "a"]));
        let mut moved = 0;
        let mut first = std::collections::BTreeMap::new();
        for n in 0..300 {
            let project = ProjectId::parse(&format!("p{n}")).unwrap();
            let (before, after) = (&three.ranked(&project)[0].name, &two.ranked(&project)[0].name);
            assert!(before == "b" || before == after);
            moved += usize::from(before != after);
            *first.entry(before.clone()).or_insert(0) += 1;
        }
        assert!(moved > 50 && first.values().all(|count| *count > 50), "{first:?}");
    }

    #[test]
    fn only_a_sqlstate_passes_as_one() {
        assert!(is_sqlstate("22P02"));
        for text in ["", "22p02", "22P021", "row 1", "22P0\u{e9}"] {
            assert!(!is_sqlstate(text), "{text}");
        }
    }
}
