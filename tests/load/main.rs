//! `realtime-load`: what the deployed form does, measured beside a peer that does the least that
//! could do the same job, in the same run.
//!
//! Must never print a figure without its peer's, nor one of a pass that lost something unsaid.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement whose fixture broke ends; figures go to standard output"
)]

mod latency;
mod report;

use std::time::Duration;

use clap::Parser;

/// Longest run, whatever was asked for.
const RUN_DEADLINE: Duration = Duration::from_secs(600);

/// Measures the services as they are deployed, and prints JSON and a Markdown table.
#[derive(Debug, Parser)]
#[command(version)]
enum Scenario {
    /// From just before COMMIT is sent to the subscriber's receipt, under row-level security,
    /// beside a bare LISTEN client.
    Latency(latency::LatencyArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let measured = async {
        match Scenario::parse() {
            Scenario::Latency(args) => latency::run(&args).await,
        }
    };
    let report = tokio::time::timeout(RUN_DEADLINE, measured)
        .await
        .map_err(|_| anyhow::anyhow!("the run took more than {RUN_DEADLINE:?}"))??;
    println!("{}", report.json());
    println!("\n{}", report.markdown());
    anyhow::ensure!(report.is_whole(), "changes are missing: see `missing`");
    Ok(())
}
