//! The `realtime-gateway` binary: parse everything, then bind, then serve until told to stop.

use anyhow::Context as _;
use clap::Parser;
use realtime_gateway::args::GatewayArgs;
use realtime_gateway::{Config, run};
use realtime_node::admin::{self, Admin, Readiness};
use realtime_node::args::{CommonArgs, NatsArgs};
use realtime_node::catalog::Catalog;
use realtime_node::metrics::Metrics;
use realtime_node::tasks::Tasks;
use realtime_node::{process, telemetry};
use tokio::net::TcpListener;

/// Serves change feeds to WebSocket clients.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    gateway: GatewayArgs,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    telemetry::init(&args.common.log, args.common.log_format)?;
    let grace = args.common.drain();
    process::run(Tasks::new(), grace, |tasks| start(args, tasks)).await
}

async fn start(args: Args, tasks: Tasks) -> anyhow::Result<()> {
    let common = &args.common;
    let authz = args.gateway.authz.client().await?;
    let management = &args.gateway.management;
    let operator_token = management.operator_token(common.projects_poll(), &tasks).await?;
    let catalog = Catalog::watch(common.projects_dir.clone(), common.projects_poll(), &tasks)?;
    let name = args
        .gateway
        .gateway_name
        .unwrap_or_else(|| format!("gateway-{:08x}", fastrand::u32(..)));
    // The bus outlives the drain: sessions get their changes until they are closed.
    let bus = args.nats.connect(&name, &Tasks::new()).await?;
    let listener = TcpListener::bind(args.gateway.gateway_addr)
        .await
        .with_context(|| format!("gateway address {}: cannot be bound", args.gateway.gateway_addr))?;
    let addr = listener
        .local_addr()
        .context("gateway address: unknown after bind")?;
    let (metrics, readiness) = (Metrics::new(), Readiness::default());
    catalog.register(&metrics);
    let config = Config {
        catalog,
        bus,
        authz,
        limits: args.gateway.limits.clone(),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        name,
        drain: common.drain(),
        operator_token,
    };
    let gateway = run(listener, config, &tasks);
    let feeds = std::sync::Arc::new(move || gateway.feeds_page());
    let admin_addr = admin::serve(
        common.admin_addr,
        Admin {
            metrics,
            readiness,
            feeds: Some(feeds),
        },
        &tasks,
    )
    .await?;
    tracing::info!(limits = ?args.gateway.limits, "limits");
    tracing::info!(%addr, admin = %admin_addr, "gateway serves");
    Ok(())
}
