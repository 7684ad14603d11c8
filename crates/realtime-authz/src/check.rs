//! One event judged for many subjects: facts by role, the decision order, and the database
//! where it is needed.
//!
//! Must never fail as a whole once it has begun: every subject gets a verdict, and whatever
//! went wrong for one is a drop with a reason.

use std::sync::Arc;

use realtime_core::change::{ChangeEvent, Position};
use realtime_core::claims::{Claims, Role};
use realtime_core::verdict::{DropReason, Verdict};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::gate::{self, Step};
use crate::metrics::AuthzMetrics;
use crate::policy::{Failure, Outcome, Question, Unaskable, judge};
use crate::pools::Lease;
use crate::projects::Project;
use crate::tables::Table;

/// A verdict, with the SQLSTATE of a policy's error.
pub type Judgement = (Verdict, Option<Box<str>>);

/// What is asked.
pub struct Check<'a> {
    /// The project.
    pub project: &'a Project,
    /// The event.
    pub event: &'a ChangeEvent,
    /// Whose eyes.
    pub subjects: &'a [Claims],
    /// The last change of facts that the caller has seen.
    pub seen: Position,
    /// When the answer is due.
    pub deadline: Instant,
    /// What is counted.
    pub metrics: &'a AuthzMetrics,
}

impl Check<'_> {
    /// One verdict per subject, in their order.
    pub async fn run(&self) -> Vec<Judgement> {
        let mut verdicts: Vec<Option<Judgement>> = vec![None; self.subjects.len()];
        let mut groups = Vec::new();
        // All facts first: whoever held a connection while waiting for another could wait for itself.
        for (role, members) in self.by_role() {
            match self.facts(role).await {
                Ok(table) => groups.push((role, members, table)),
                Err(reason) => fill(&mut verdicts, &members, dropped(reason)),
            }
        }
        let mut lease = None;
        let mut misfits = Vec::new();
        for (role, members, table) in groups {
            let found = self
                .judge_with(&table, role, &members, &mut lease, &mut verdicts)
                .await;
            if !found.is_empty() {
                misfits.push((role, found, table));
            }
        }
        if let Some(lease) = lease {
            lease.release();
        }
        for (role, members, stale) in misfits {
            self.judge_again(role, &members, &stale, &mut verdicts).await;
        }
        verdicts
            .into_iter()
            .map(|verdict| verdict.unwrap_or_else(|| dropped(DropReason::Deadline)))
            .collect()
    }

    fn by_role(&self) -> FxHashMap<&Role, Vec<usize>> {
        let mut roles: FxHashMap<&Role, Vec<usize>> = FxHashMap::default();
        for (at, subject) in self.subjects.iter().enumerate() {
            roles.entry(subject.role()).or_default().push(at);
        }
        roles
    }

    /// Once more with new facts: the table has changed since those were read, or the statement that was made
    /// of them did not fit the database.
    async fn judge_again(
        &self,
        role: &Role,
        members: &[usize],
        stale: &Table,
        verdicts: &mut [Option<Judgement>],
    ) {
        self.project.facts.forget(stale, role);
        let table = match self.facts(role).await {
            Ok(table) => table,
            Err(reason) => return fill(verdicts, members, dropped(reason)),
        };
        if !table.names_mean_the_same(stale) {
            return fill(verdicts, members, dropped(DropReason::ImageUnreadable));
        }
        let mut lease = None;
        self.judge_with(&table, role, members, &mut lease, verdicts).await;
        if let Some(lease) = lease {
            lease.release();
        }
    }

    /// The facts of the event's table for a role, where it is one to judge.
    async fn facts(&self, role: &Role) -> Result<Arc<Table>, DropReason> {
        // service_role is delivered to without a question; the prober could not become it either.
        if role.is_service() || !self.project.config.allows_role(role) {
            return Err(DropReason::NoPrivilege);
        }
        let Project { pool, facts, .. } = self.project;
        let read = facts.table(pool, self.event.relid, role, self.seen, self.metrics);
        match tokio::time::timeout_at(self.deadline, read).await {
            Ok(Ok(Some(table))) => Ok(table),
            // Nobody can be asked any more what was visible of a table that is gone.
            Ok(Ok(None)) => Err(DropReason::ImageUnreadable),
            Ok(Err(error)) => Err(self.project.unavailable(&error, self.metrics)),
            Err(_) => Err(DropReason::Deadline),
        }
    }

    /// Judges subjects of one role with given facts. Returns those whom other facts may give another verdict;
    /// the verdict that they have is no delivery.
    async fn judge_with(
        &self,
        table: &Table,
        role: &Role,
        members: &[usize],
        lease: &mut Option<Lease>,
        verdicts: &mut [Option<Judgement>],
    ) -> Vec<usize> {
        let subject = (table, role);
        let question = match (
            gate::first_step(table, self.event),
            table.policy.condition.as_deref(),
        ) {
            (Step::Settled(verdict @ Verdict::Drop(_)), _) => {
                fill(verdicts, members, (verdict, None));
                return Vec::new();
            }
            (Step::Settled(verdict @ Verdict::Deliver(_)), _) => {
                return match self.ask(subject, None, members, lease).await {
                    Asked::Answered(_) => {
                        fill(verdicts, members, (verdict, None));
                        Vec::new()
                    }
                    Asked::Stale => stale(verdicts, members),
                    Asked::Failed(reason) => {
                        fill(verdicts, members, dropped(reason));
                        Vec::new()
                    }
                };
            }
            (Step::Images, Some(condition)) => Question::images(table, self.event, role, condition),
            (Step::Images, None) => Err(Unaskable(DropReason::NotVisible)),
            (Step::Key, _) => Question::key(table, self.event, role),
        };
        let asked = match question {
            Err(Unaskable(reason)) => Asked::Failed(reason),
            Ok(question) => self.ask(subject, Some(&question), members, lease).await,
        };
        let outcomes = match asked {
            Asked::Answered(outcomes) => outcomes,
            Asked::Stale => return stale(verdicts, members),
            Asked::Failed(reason) => vec![Outcome::Failed(Failure::new(reason)); members.len()],
        };
        let mut misfits = Vec::new();
        for (at, outcome) in members.iter().zip(outcomes) {
            verdicts[*at] = Some(match outcome {
                Outcome::Sees(sight) => (gate::settle(table, self.event, sight), None),
                Outcome::Failed(failure) => {
                    if failure.is_misfit() {
                        misfits.push(*at);
                    }
                    (Verdict::Drop(failure.reason), failure.sqlstate)
                }
            });
        }
        misfits
    }

    async fn ask(
        &self,
        subject: (&Table, &Role),
        question: Option<&Question>,
        members: &[usize],
        lease: &mut Option<Lease>,
    ) -> Asked {
        let mut held = match lease.take() {
            Some(lease) => lease,
            None => match tokio::time::timeout_at(self.deadline, self.project.pool.acquire()).await {
                Ok(Ok(lease)) => lease,
                Ok(Err(error)) => return Asked::Failed(self.project.unavailable(&error, self.metrics)),
                Err(_) => return Asked::Failed(DropReason::Deadline),
            },
        };
        let subjects: Vec<&Claims> = members.iter().map(|at| &self.subjects[*at]).collect();
        let judged = judge(held.connection(), subject, question, &subjects, self.deadline).await;
        if !judged.intact {
            self.metrics.connections_suspect.inc();
            return Asked::Failed(match Instant::now() >= self.deadline {
                true => DropReason::Deadline,
                false => DropReason::DatabaseUnavailable,
            });
        }
        *lease = Some(held);
        match judged.current {
            true => Asked::Answered(judged.outcomes),
            false => Asked::Stale,
        }
    }
}

/// What came of asking the database.
enum Asked {
    /// One outcome per subject, by facts that were current.
    Answered(Vec<Outcome>),
    /// The facts were no longer the catalog's.
    Stale,
    /// Nothing.
    Failed(DropReason),
}

/// No verdict by facts that have changed; should newer ones change as well, it is a loss.
fn stale(verdicts: &mut [Option<Judgement>], members: &[usize]) -> Vec<usize> {
    fill(verdicts, members, dropped(DropReason::ImageUnreadable));
    members.to_vec()
}

fn dropped(reason: DropReason) -> Judgement {
    (Verdict::Drop(reason), None)
}

fn fill(verdicts: &mut [Option<Judgement>], members: &[usize], judgement: Judgement) {
    for at in members {
        verdicts[*at] = Some(judgement.clone());
    }
}
