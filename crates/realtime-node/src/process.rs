//! The frame of a process: start, serve until told to stop, drain, exit.

use std::future::Future;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::tasks::Tasks;

/// Waits for SIGTERM or SIGINT.
///
/// # Errors
/// Signal handlers cannot be installed.
pub async fn terminated() -> anyhow::Result<()> {
    let mut term = signal(SignalKind::terminate()).context("SIGTERM: cannot be handled")?;
    let mut int = signal(SignalKind::interrupt()).context("SIGINT: cannot be handled")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

/// Runs a started service until a signal comes, then drains its tasks within `grace`.
///
/// # Errors
/// The service could not start, or tasks were left after `grace`.
pub async fn run<S, F>(tasks: Tasks, grace: Duration, start: S) -> anyhow::Result<()>
where
    S: FnOnce(Tasks) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let stop = terminated();
    tokio::pin!(stop);
    // A signal during the start ends it in order too: what was started is drained.
    let stopped = tokio::select! {
        started = start(tasks.clone()) => {
            started?;
            false
        }
        signal = &mut stop => {
            signal?;
            true
        }
    };
    if !stopped {
        stop.await?;
    }
    tracing::info!("told to stop, draining");
    if tasks.drain(grace).await {
        Ok(())
    } else {
        anyhow::bail!("tasks were left after the drain window of {} s", grace.as_secs())
    }
}
