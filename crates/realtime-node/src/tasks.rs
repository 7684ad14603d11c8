//! Tasks, and their end.
//!
//! Must stay the only place that spawns (invariant 9): what is spawned here is counted, named,
//! told to stop, and waited for.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

/// A group of tasks that are told to stop together. Cloning shares the group.
#[derive(Clone, Debug)]
pub struct Tasks {
    token: CancellationToken,
    tracker: TaskTracker,
    /// The groups above: each waits for this group's tasks too.
    ancestors: Arc<[TaskTracker]>,
    panics: Arc<AtomicU64>,
}

impl Tasks {
    /// A group of its own.
    pub fn new() -> Self {
        Self {
            token: CancellationToken::new(),
            tracker: TaskTracker::new(),
            ancestors: Arc::from([]),
            panics: Arc::new(AtomicU64::new(0)),
        }
    }

    /// A group within this one: it stops with this one, and can be stopped and drained alone.
    pub fn child(&self) -> Self {
        let above = self.ancestors.iter().chain([&self.tracker]).cloned();
        Self {
            token: self.token.child_token(),
            tracker: TaskTracker::new(),
            ancestors: above.collect(),
            panics: Arc::clone(&self.panics),
        }
    }

    /// Spawns a task. A panic in it ends it alone, is counted, and is logged under `name`; the
    /// handle then yields the panic as a `JoinError`.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let held: Vec<_> = self.ancestors.iter().map(TaskTracker::token).collect();
        let panics = Arc::clone(&self.panics);
        self.tracker.spawn(async move {
            let _held = held;
            match AssertUnwindSafe(future).catch_unwind().await {
                Ok(output) => output,
                Err(panic) => {
                    panics.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(task = name, "a task panicked");
                    std::panic::resume_unwind(panic)
                }
            }
        })
    }

    /// Completes when the group is told to stop.
    pub fn cancelled(&self) -> WaitForCancellationFutureOwned {
        self.token.clone().cancelled_owned()
    }

    /// Whether the group was told to stop.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Tells the group to stop; does not wait.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Tells the group to stop and waits for its tasks. `false`: some were left after `grace`.
    pub async fn drain(&self, grace: Duration) -> bool {
        self.cancel();
        self.tracker.close();
        tokio::time::timeout(grace, self.tracker.wait()).await.is_ok()
    }

    /// Panics caught in this group and those it stems from.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_group_waits_for_its_childrens_tasks() {
        let tasks = Tasks::new();
        let child = tasks.child();
        let grandchild = child.child();
        let stop = grandchild.cancelled();
        let task = grandchild.spawn("waits", stop);
        assert!(!child.is_cancelled());
        assert!(tasks.drain(Duration::from_secs(5)).await);
        assert!(grandchild.is_cancelled() && task.is_finished());
    }

    #[tokio::test]
    async fn a_child_ends_alone() {
        let tasks = Tasks::new();
        let child = tasks.child();
        child.spawn("waits", child.cancelled());
        assert!(child.drain(Duration::from_secs(5)).await);
        assert!(!tasks.is_cancelled());
    }

    #[tokio::test]
    async fn a_panic_ends_one_task_and_is_counted() {
        let tasks = Tasks::new();
        let failed = tasks
            .child()
            .spawn("fails", async { panic!("expected by this test") });
        assert!(failed.await.is_err_and(|error| error.is_panic()));
        assert_eq!(tasks.panics(), 1);
        assert!(tasks.drain(Duration::from_secs(5)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_stop_is_reported() {
        let tasks = Tasks::new();
        tasks.spawn("stays", std::future::pending::<()>());
        assert!(!tasks.drain(Duration::from_secs(1)).await);
    }
}
