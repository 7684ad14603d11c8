//! `anvilbase dev`: the three services in one process, for one database.
//!
//! Must never differ from the three processes in anything but the bus and the gRPC transport:
//! both run in memory here, and everything else is the same code.

mod announce;
mod database;
mod project;
mod services;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use realtime_node::args::LogFormat;
use realtime_node::secret::Secret;
use realtime_node::tasks::Tasks;
use realtime_node::{process, telemetry};

/// How the address and the keys are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For a person, with a client to paste.
    Text,
    /// One line of JSON.
    Json,
}

/// Arguments of `anvilbase dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// The database to serve. Without one, a private PostgreSQL is started from this machine's binaries.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<Secret>,
    /// Folder of the private PostgreSQL and of the project's file; .anvilbase here, or below /var/tmp for root.
    #[arg(long, env = "ANVILBASE_DEV_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address that clients connect to.
    #[arg(long, env = "ANVILBASE_DEV_HOST", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port that clients connect to; 0 = any free one.
    #[arg(long, env = "ANVILBASE_DEV_PORT", default_value_t = 4000)]
    port: u16,
    /// Port of the private PostgreSQL; 0 = any free one.
    #[arg(long, env = "ANVILBASE_DEV_DATABASE_PORT", default_value_t = 0)]
    database_port: u16,
    /// Port of the admin server on 127.0.0.1; 0 = any free one.
    #[arg(long, env = "ANVILBASE_DEV_ADMIN_PORT", default_value_t = 0)]
    admin_port: u16,
    /// How the address and the keys are told on standard output.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Remove the data folder first: the private database and all that is in it.
    #[arg(long, conflicts_with = "database_url")]
    reset: bool,
    /// Give AnvilBase's logins on a named server new passwords, although something may use them.
    #[arg(long)]
    take_logins: bool,
    /// Log directives.
    #[arg(long, env = "ANVILBASE_REALTIME_LOG", default_value = "warn")]
    log: String,
    /// Form of the log lines.
    #[arg(long, env = "ANVILBASE_REALTIME_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

const DRAIN: Duration = Duration::from_secs(5);

/// Serves until told to stop.
pub async fn run(args: DevArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log, args.log_format)?;
    let tasks = Tasks::new();
    let stop = process::terminated();
    tokio::pin!(stop);
    // Whatever was started when the signal comes is ended by what holds it.
    let started = tokio::select! {
        started = start(&args, &tasks) => started?,
        signal = &mut stop => return signal,
    };
    stop.await?;
    let drained = tasks.drain(DRAIN).await;
    if let Some(mut server) = started {
        tokio::task::spawn_blocking(move || server.stop(false)).await?;
    }
    if drained {
        Ok(())
    } else {
        anyhow::bail!("tasks were left after {} s", DRAIN.as_secs())
    }
}

async fn start(
    args: &DevArgs,
    tasks: &Tasks,
) -> anyhow::Result<Option<realtime_node::postgres::private::Server>> {
    let data_dir = match &args.data_dir {
        Some(folder) => std::path::absolute(folder)?,
        None => database::default_data_dir()?,
    };
    if args.reset {
        database::remove(&data_dir)?;
    }
    let named = args
        .database_url
        .as_ref()
        .map(crate::provision::database)
        .transpose()?;
    let database = database::open(named, &data_dir, args.database_port).await?;
    let project = project::open(&data_dir, &database, args.take_logins).await?;
    let edge = SocketAddr::new(args.host, args.port);
    let admin = SocketAddr::from(([127, 0, 0, 1], args.admin_port));
    let addresses = services::start(&project, edge, admin, tasks).await?;
    announce::announce(args.output, &database, &project, &addresses)?;
    Ok(database.server)
}
