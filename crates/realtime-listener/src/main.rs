//! The `realtime-listener` process.

use std::sync::Arc;

use clap::Parser;
use realtime_listener::{Listener, ListenerArgs};
use realtime_node::admin::{self, Admin, Readiness};
use realtime_node::args::{CommonArgs, NatsArgs};
use realtime_node::catalog::Catalog;
use realtime_node::metrics::Metrics;
use realtime_node::tasks::Tasks;
use realtime_node::{process, telemetry};

/// Holds one database session per project and publishes each change on NATS.
#[derive(Parser)]
#[command(name = "realtime-listener", version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    listener: ListenerArgs,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    telemetry::init(&args.common.log, args.common.log_format)?;
    let drain = args.common.drain();
    process::run(Tasks::new(), drain, |tasks| serve(args, tasks)).await
}

async fn serve(args: Args, tasks: Tasks) -> anyhow::Result<()> {
    let config: realtime_listener::ListenerConfig = args.listener.into();
    config.validate()?;
    let catalog = Catalog::watch(
        args.common.projects_dir.clone(),
        args.common.projects_poll(),
        &tasks,
    )?;
    let metrics = Metrics::new();
    catalog.register(&metrics);
    let readiness = Readiness::default();
    readiness.set("attach", false);
    // The connection outlives the feeds: their last words go through it.
    let bus = args.nats.connect(&config.replica_id, &Tasks::new()).await?;
    let listener = Listener::start(config, bus, catalog, &metrics, &tasks).await?;
    readiness.set("attach", true);
    let feeds = listener.clone();
    let admin = Admin {
        metrics,
        readiness,
        feeds: Some(Arc::new(move || feeds.debug_page())),
    };
    admin::serve(args.common.admin_addr, admin, &tasks).await?;
    Ok(())
}
