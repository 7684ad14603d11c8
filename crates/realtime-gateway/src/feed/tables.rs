//! What is known of tables, shared by the whole gateway for a short while.
//!
//! Must never outlive a change of the table that the gateway has heard of, and never ask twice
//! at once for the same thing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use realtime_core::change::Position;
use realtime_core::claims::Role;
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::table::TableFacts;
use rustc_hash::FxHashMap;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use super::patterns::Patterns;
use crate::authz::{Authz, NoFacts};

/// How long facts hold where no event can tell that they changed.
const FACTS_AGE_MAX: Duration = Duration::from_secs(5);

/// Deadline of one question.
const DESCRIBE_DEADLINE: Duration = Duration::from_secs(2);

/// Questions of one project's joins that are on their way at once. Fewer than authz has connections for the
/// project, because verdicts need those too.
const JOINS_ASK_MAX: usize = 2;

/// Entries beyond which outdated ones are looked for.
const ENTRIES_SWEEP: usize = 1_024;

/// Facts about tables, by project, table and role. Cloning shares them.
#[derive(Clone)]
pub struct Tables {
    authz: Authz,
    known: Arc<Mutex<Known>>,
    patterns: Patterns,
}

#[derive(Default)]
struct Known {
    entries: FxHashMap<Key, Arc<Entry>>,
    /// The last change of tables heard of, by project.
    changes: FxHashMap<ProjectId, Position>,
    /// The joins' turns, by project: as many as there are projects.
    turns: FxHashMap<ProjectId, Arc<Semaphore>>,
    /// How many entries there must be before outdated ones are looked for again.
    sweep_at: usize,
}

type Key = (ProjectId, TableRef, Role);

struct Entry {
    asked_at: Instant,
    answer: OnceCell<Result<Arc<TableFacts>, NoFacts>>,
}

impl Entry {
    fn holds(&self, now: Instant) -> bool {
        now.duration_since(self.asked_at) < FACTS_AGE_MAX
    }
}

impl Tables {
    /// No facts yet.
    pub fn new(authz: Authz) -> Self {
        Self {
            authz,
            known: Arc::default(),
            patterns: Patterns::default(),
        }
    }

    /// What the filters on each table have of patterns.
    pub fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// As [`Tables::describe`], for joins: names there are the client's choice, so that each may cost a
    /// question. A session asks in its own `turn`, one question at a time, and all sessions of a project
    /// together ask [`JOINS_ASK_MAX`] at a time: verdicts never wait for them, and a session waits
    /// behind one question of each other, whatever those have left to ask.
    ///
    /// # Errors
    /// As [`Tables::describe`].
    pub async fn describe_in_turn(
        &self,
        project: &ProjectId,
        table: &TableRef,
        role: &Role,
        turn: &Semaphore,
    ) -> Result<Arc<TableFacts>, NoFacts> {
        let key = (project.clone(), table.clone(), role.clone());
        if self.is_known(&key) {
            return self.describe(project, table, role).await;
        }
        let all = Arc::clone(
            self.known
                .lock()
                .turns
                .entry(project.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(JOINS_ASK_MAX))),
        );
        let _own = turn.acquire().await.map_err(|_| NoFacts)?;
        let _shared = all.acquire().await.map_err(|_| NoFacts)?;
        self.describe(project, table, role).await
    }

    /// Facts about a table for a role: those at hand while they hold, else authz is asked, once
    /// for all who want to know at the same time.
    ///
    /// # Errors
    /// authz could not tell within 2 s. That is not kept: the next to ask asks anew.
    pub async fn describe(
        &self,
        project: &ProjectId,
        table: &TableRef,
        role: &Role,
    ) -> Result<Arc<TableFacts>, NoFacts> {
        let key = (project.clone(), table.clone(), role.clone());
        let (entry, changed) = self.entry(&key);
        let answer = entry.answer.get_or_init(|| async {
            let asked = self
                .authz
                .describe(project, table, role, changed, DESCRIBE_DEADLINE);
            asked.await.map(Arc::new)
        });
        let answer = answer.await.clone();
        if answer.is_err() {
            let mut known = self.known.lock();
            if known
                .entries
                .get(&key)
                .is_some_and(|held| Arc::ptr_eq(held, &entry))
            {
                known.entries.remove(&key);
            }
        }
        answer
    }

    /// The last change of tables that was heard of in a project.
    pub fn changed_at(&self, project: &ProjectId) -> Position {
        self.known
            .lock()
            .changes
            .get(project)
            .copied()
            .unwrap_or_default()
    }

    /// Tables of a project changed: what was known of it is forgotten, and authz is told the
    /// position with every question from now on.
    pub fn changed(&self, project: &ProjectId, position: Position) {
        let mut known = self.known.lock();
        known.entries.retain(|(of, _, _), _| of != project);
        let last = known.changes.entry(project.clone()).or_default();
        *last = position.max(*last);
    }

    /// A project's feed is no longer followed: its changes are not heard of any more.
    pub fn forget(&self, project: &ProjectId) {
        let mut known = self.known.lock();
        known.entries.retain(|(of, _, _), _| of != project);
        known.changes.remove(project);
    }

    /// Whether facts are at hand or on their way.
    fn is_known(&self, key: &Key) -> bool {
        let now = Instant::now();
        self.known
            .lock()
            .entries
            .get(key)
            .is_some_and(|entry| entry.holds(now))
    }

    fn entry(&self, key: &Key) -> (Arc<Entry>, Position) {
        let now = Instant::now();
        let mut known = self.known.lock();
        let changed = known.changes.get(&key.0).copied().unwrap_or_default();
        if let Some(entry) = known.entries.get(key).filter(|entry| entry.holds(now)) {
            return (Arc::clone(entry), changed);
        }
        if known.entries.len() >= known.sweep_at.max(ENTRIES_SWEEP) {
            known.entries.retain(|_, entry| entry.holds(now));
            // Twice what is left, so that a sweep costs each new entry a constant.
            known.sweep_at = 2 * known.entries.len();
        }
        let entry = Arc::new(Entry {
            asked_at: now,
            answer: OnceCell::new(),
        });
        known.entries.insert(key.clone(), Arc::clone(&entry));
        (entry, changed)
    }
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tables({} entries)", self.known.lock().entries.len())
    }
}
