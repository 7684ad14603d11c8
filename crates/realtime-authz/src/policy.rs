//! Policies judged on the event's own images: the table's conditions, evaluated as each subject
//! over rows made from the row's JSON, in a transaction per subject.
//!
//! Must never let one subject's role, claims, settings or error reach another's: three forms that
//! do are tempting, wrong, and kept out by tests (`tests/it/forbidden.rs`): one statement over many
//! claims, switching roles while a cursor is read, and a loop whose rounds are not rolled back.

mod image;
mod question;

pub(crate) use question::relation;
pub use question::{Answer, Question, Unaskable};

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use realtime_core::claims::{Claims, Role};
use realtime_core::verdict::DropReason;
use tokio::time::Instant;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::gate::Sight;
use crate::pools::{Connection, Prepared, StatementKey, TransactionError, is_lost, is_unguarded};
use crate::tables::Table;

/// Transactions on their way to the server at once, on one connection.
const PIPELINED: usize = 32;

/// What came of one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The database answered.
    Sees(Sight),
    /// It did not, or not so that it can be believed.
    Failed(Failure),
}

impl Outcome {
    /// Whether it may have come of a guard that is not what it was.
    fn questions_guard(&self) -> bool {
        match self {
            Self::Sees(_) => false,
            Self::Failed(failure) => failure.is_misfit() || failure.reason == DropReason::DatabaseUnavailable,
        }
    }
}

/// Why a subject could not be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason to give.
    pub reason: DropReason,
    /// The SQLSTATE of a policy's error.
    pub sqlstate: Option<Box<str>>,
}

/// The outcomes, and whether the connection can be used again.
pub struct Judged {
    /// One per subject, in their order.
    pub outcomes: Vec<Outcome>,
    /// Every answer that was asked for came, and the session was found clean after the last of them. Without that there
    /// are no outcomes but failures.
    pub intact: bool,
    /// The facts that the question was made of were those of the catalog when it was asked.
    pub current: bool,
}

/// Asks a question for subjects of one role, until `deadline`. Without a question the facts alone say what
/// the subjects see, and only whether they are current is asked. No answer is believed before the session was found clean:
/// one subject's policy may have changed what answers for the next.
pub async fn judge(
    connection: &mut Connection,
    (table, role): (&Table, &Role),
    question: Option<&Question>,
    subjects: &[&Claims],
    deadline: Instant,
) -> Judged {
    let mut outcomes = Vec::with_capacity(subjects.len());
    let stamp = connection.stamp(table.relid, role);
    let mut stamped = None;
    let work = async {
        match question {
            Some(question) => {
                ask_all(connection, question, subjects, &mut outcomes).await && connection.cleanse().await
            }
            None => true,
        }
    };
    let work = async { futures_util::join!(async { stamped = Some(stamp.await) }, work).1 };
    let intact = tokio::time::timeout_at(deadline, work).await.unwrap_or(false);
    let lost = matches!(&stamped, Some(Err(error)) if is_lost(error));
    let intact = intact && !lost;
    let current = matches!(stamped, Some(Ok(Some(stamp))) if stamp == table.stamp);
    let missing = if intact || Instant::now() >= deadline {
        DropReason::Deadline
    } else {
        DropReason::DatabaseUnavailable
    };
    if !intact {
        outcomes.clear();
    }
    outcomes.resize(subjects.len(), Outcome::Failed(Failure::new(missing)));
    Judged {
        outcomes,
        intact,
        current,
    }
}

/// Fills `outcomes` as far as the connection lives. `false`: it must not be used again.
async fn ask_all(
    connection: &mut Connection,
    question: &Question,
    subjects: &[&Claims],
    outcomes: &mut Vec<Outcome>,
) -> bool {
    let statement = match connection.statement(&question.key, question.parameters()).await {
        Ok(statement) => statement,
        Err(error) => {
            let failed = Failed::of(error);
            outcomes.resize(subjects.len(), Outcome::Failed(failed.failure));
            return !failed.lost;
        }
    };
    let mut doubtful = Vec::new();
    {
        let asked: &Connection = connection;
        let statement = &statement;
        let mut waiting = subjects.iter().copied();
        let mut answers = FuturesOrdered::new();
        loop {
            for claims in waiting.by_ref().take(PIPELINED - answers.len()) {
                answers.push_back(ask(asked, statement, question, claims));
            }
            let Some(answer) = answers.next().await else { break };
            match answer {
                Ok(answer) => outcomes.push(answer.outcome()),
                Err(failed) if failed.lost => return false,
                Err(failed) => {
                    doubtful.push(outcomes.len());
                    outcomes.push(Outcome::Failed(failed.failure));
                }
            }
        }
    }
    // A guard may be another's now, or gone.
    if outcomes.iter().any(Outcome::questions_guard) {
        connection.forget_guards();
    }
    doubtful.retain(
        |at| matches!(&outcomes[*at], Outcome::Failed(failure) if failure.reason == DropReason::PolicyError),
    );
    reconsider(connection, question, subjects, outcomes, &doubtful).await
}

/// Looks again at the subjects whose statement raised an error: was it about the row before, one
/// of several readings of the image, the policy, or the image itself?
async fn reconsider(
    connection: &mut Connection,
    question: &Question,
    subjects: &[&Claims],
    outcomes: &mut [Outcome],
    doubtful: &[usize],
) -> bool {
    let Some(first) = doubtful.first() else {
        return true;
    };
    if let Some(simpler) = question.simpler() {
        let asked: Vec<&Claims> = doubtful.iter().map(|at| subjects[*at]).collect();
        let mut again = Vec::with_capacity(asked.len());
        let intact = Box::pin(ask_all(connection, simpler, &asked, &mut again)).await;
        for (at, outcome) in doubtful.iter().zip(again) {
            outcomes[*at] = outcome;
        }
        return intact;
    }
    let Some(check) = question.image_check() else {
        return true;
    };
    let statement = match connection.statement(&check.key, check.parameters()).await {
        Ok(statement) => statement,
        Err(error) => return !Failed::of(error).lost,
    };
    match ask(connection, &statement, check, subjects[*first]).await {
        Err(failed) if failed.lost => false,
        Err(failed) if failed.failure.reason == DropReason::PolicyError => {
            for at in doubtful {
                outcomes[*at] = Outcome::Failed(Failure::new(DropReason::ImageUnreadable));
            }
            true
        }
        Ok(_) | Err(_) => true,
    }
}

async fn ask(
    connection: &Connection,
    statement: &Prepared,
    question: &Question,
    claims: &Claims,
) -> Result<Answer, Failed> {
    let (role, json) = (claims.role().as_str(), claims.json());
    let mut parameters = vec![role, json];
    parameters.extend(question.values.iter().map(String::as_str));
    let statement = async {
        let said = connection.ask(statement, &parameters).await?;
        Ok(question.answer(&said))
    };
    let answer = connection
        .as_subject(role, json, question.plans, statement)
        .await
        .map_err(Failed::of)?;
    // The role or the claims were not in force all along: whatever was answered is worth nothing.
    answer.ok_or_else(|| Failed {
        failure: Failure {
            reason: DropReason::PolicyError,
            sqlstate: Some(NOT_IN_FORCE.into()),
        },
        lost: false,
    })
}

/// "Object not in prerequisite state": what a subject is told whose policy changed the role or the
/// claims that it was being judged with.
pub const NOT_IN_FORCE: &str = "55000";

struct Failed {
    failure: Failure,
    lost: bool,
}

impl Failed {
    fn of(error: TransactionError) -> Self {
        match error {
            TransactionError::Lost(_) => Self {
                failure: Failure::new(DropReason::DatabaseUnavailable),
                lost: true,
            },
            TransactionError::Unguarded => Self {
                failure: Failure::new(DropReason::DatabaseUnavailable),
                lost: false,
            },
            TransactionError::Subject(error) if !is_lost(&error) => Self {
                failure: match error.code() {
                    Some(&SqlState::QUERY_CANCELED) => Failure::new(DropReason::Deadline),
                    // Claims that are no text for this database are the subject's own fault; a role
                    // that the prober cannot take on can see nothing.
                    Some(code)
                        if code.code().starts_with("22") && *code != SqlState::INVALID_PARAMETER_VALUE =>
                    {
                        Failure::policy(code)
                    }
                    _ => Failure::new(DropReason::NoPrivilege),
                },
                lost: false,
            },
            TransactionError::Subject(error) | TransactionError::Statement(error) => {
                Self::of_statement(&error)
            }
        }
    }

    fn of_statement(error: &Error) -> Self {
        if is_lost(error) || is_unguarded(error) {
            return Self {
                failure: Failure::new(DropReason::DatabaseUnavailable),
                lost: is_lost(error),
            };
        }
        let failure = match error.code() {
            Some(&SqlState::QUERY_CANCELED) => Failure::new(DropReason::Deadline),
            Some(code) if code.code().starts_with("40") => Failure::new(DropReason::DatabaseUnavailable),
            Some(code) => Failure::policy(code),
            None => Failure::new(DropReason::DatabaseUnavailable),
        };
        Self { failure, lost: false }
    }
}

impl Failure {
    /// A failure that is no policy's.
    pub fn new(reason: DropReason) -> Self {
        Self {
            reason,
            sqlstate: None,
        }
    }

    fn policy(code: &SqlState) -> Self {
        Self {
            reason: DropReason::PolicyError,
            sqlstate: Some(code.code().into()),
        }
    }

    /// Whether the statement itself did not fit the database: its facts may be out of date.
    pub fn is_misfit(&self) -> bool {
        // 42: names and types that do not exist or do not go together; 0A: a changed row type; XX: a
        // row that is not what the plan was made for.
        let class = self.sqlstate.as_deref().and_then(|code| code.get(..2));
        self.reason == DropReason::PolicyError && matches!(class, Some("42" | "0A" | "XX"))
    }
}

/// Stands for a table's columns and their types, so that statements made for another shape are not used.
pub fn shape(table: &crate::tables::Table) -> u64 {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = rustc_hash::FxHasher::default();
    for column in &table.columns {
        (column.attnum, &column.facts.name, &column.facts.type_name).hash(&mut hasher);
    }
    hasher.finish()
}

/// The key of a statement over a table for a role.
fn statement_key(
    table: &crate::tables::Table,
    role: &realtime_core::claims::Role,
    sql: String,
) -> StatementKey {
    StatementKey {
        relid: table.relid,
        role: role.clone(),
        sql: Arc::from(sql),
        shape: shape(table),
    }
}
