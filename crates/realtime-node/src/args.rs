//! Arguments that every service takes. The environment is read here, by clap, and nowhere else
//! (invariant 9).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::bus::{Bus, NatsOptions};
use crate::secret::Secret;
use crate::tasks::Tasks;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For a person at a terminal.
    Text,
}

/// Arguments of every service.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Folder with one `<project-id>.toml` per project; re-read when a file changes.
    #[arg(long, env = "ANVILBASE_REALTIME_PROJECTS_DIR", default_value = "projects.d")]
    pub projects_dir: PathBuf,
    /// How often the projects folder is looked at, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_PROJECTS_POLL_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub projects_poll_seconds: u64,
    /// Address of the admin server: `/livez`, `/readyz`, `/metrics`, `/metrics/projects`, `/debug/feeds`.
    #[arg(long, env = "ANVILBASE_REALTIME_ADMIN_ADDR", default_value = "127.0.0.1:9090")]
    pub admin_addr: SocketAddr,
    /// How long a stopping process may take, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_DRAIN_SECONDS", default_value_t = 30)]
    pub drain_seconds: u64,
    /// Log directives, such as `info,realtime_gateway=debug`.
    #[arg(long, env = "ANVILBASE_REALTIME_LOG", default_value = "info")]
    pub log: String,
    /// Form of the log lines.
    #[arg(long, env = "ANVILBASE_REALTIME_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

/// Arguments of the connection to NATS.
#[derive(Debug, Clone, Args)]
pub struct NatsArgs {
    /// NATS servers, comma separated.
    #[arg(
        long,
        env = "ANVILBASE_REALTIME_NATS_URL",
        default_value = "nats://127.0.0.1:4222",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub nats_url: Vec<String>,
    /// User at the NATS server.
    #[arg(long, env = "ANVILBASE_REALTIME_NATS_USER")]
    pub nats_user: Option<String>,
    /// File with the password at the NATS server.
    #[arg(long, env = "ANVILBASE_REALTIME_NATS_PASSWORD_FILE")]
    pub nats_password_file: Option<PathBuf>,
    /// File with the certificate authority of the NATS server.
    #[arg(long, env = "ANVILBASE_REALTIME_NATS_CA_FILE")]
    pub nats_ca_file: Option<PathBuf>,
    /// Messages that one subscription may hold before messages are dropped and announced.
    #[arg(long, env = "ANVILBASE_REALTIME_NATS_SUBSCRIPTION_MESSAGES_MAX", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub nats_subscription_messages_max: u32,
}

/// A group of arguments from the environment alone, defaults for the rest: for processes that
/// hold several services, whose variables set the same limits there.
///
/// # Errors
/// A variable's value is not one that the argument takes.
pub fn from_environment<A: Args>() -> anyhow::Result<A> {
    let command = A::augment_args(clap::Command::new("anvilbase"));
    let matches = command.try_get_matches_from(["anvilbase"])?;
    Ok(A::from_arg_matches(&matches)?)
}

impl CommonArgs {
    /// How long a stopping process may take.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

    /// How often the projects folder is looked at.
    pub fn projects_poll(&self) -> Duration {
        Duration::from_secs(self.projects_poll_seconds)
    }
}

impl NatsArgs {
    /// Connects to NATS.
    ///
    /// # Errors
    /// The password file cannot be read, or no server answers within 10 s.
    pub async fn connect(&self, name: &str, tasks: &Tasks) -> anyhow::Result<Bus> {
        let password = match &self.nats_password_file {
            Some(path) => {
                let text = tokio::fs::read_to_string(path)
                    .await
                    .map_err(|error| anyhow::anyhow!("nats password file {}: {error}", path.display()))?;
                Some(Secret::new(text.trim_end()))
            }
            None => None,
        };
        let options = NatsOptions {
            servers: self.nats_url.clone(),
            name: name.to_owned(),
            user: self.nats_user.clone(),
            password,
            ca_file: self.nats_ca_file.clone(),
            subscription_capacity: self.nats_subscription_messages_max as usize,
        };
        Ok(Bus::connect_nats(options, tasks).await?)
    }
}
