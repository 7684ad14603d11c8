//! The authz process.

use std::sync::Arc;

use clap::Parser;
use realtime_authz::AuthzArgs;
use realtime_node::admin::{Admin, Readiness};
use realtime_node::args::CommonArgs;
use realtime_node::catalog::Catalog;
use realtime_node::metrics::Metrics;
use realtime_node::tasks::Tasks;
use realtime_node::{admin, process, telemetry};

/// Judges who may see which row change of which project.
#[derive(Debug, Parser)]
#[command(name = "realtime-authz", version)]
struct Cli {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    authz: AuthzArgs,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Arc::new(Cli::parse());
    telemetry::init(&cli.common.log, cli.common.log_format)?;
    let tasks = Tasks::new();
    process::run(tasks, cli.common.drain(), |tasks| async move {
        start(&cli, &tasks).await
    })
    .await
}

async fn start(cli: &Cli, tasks: &Tasks) -> anyhow::Result<()> {
    let metrics = Metrics::new();
    let readiness = Readiness::default();
    readiness.set("serving", false);
    let catalog = Catalog::watch(cli.common.projects_dir.clone(), cli.common.projects_poll(), tasks)?;
    catalog.register(&metrics);
    realtime_authz::run(&cli.authz, catalog, &metrics, tasks).await?;
    readiness.set("serving", true);
    admin::serve(
        cli.common.admin_addr,
        Admin {
            metrics,
            readiness,
            feeds: None,
        },
        tasks,
    )
    .await?;
    Ok(())
}
