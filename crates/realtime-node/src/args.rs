//! Arguments that every service takes. The environment is read here, by clap, and nowhere else
//! (invariant 9).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};

use crate::bus::{self, Bus, NatsOptions};
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
    /// NATS servers, comma separated: `tls://` ones, or `nats://` on this machine. Rows and orders pass there.
    #[arg(
        long,
        env = "ANVILBASE_REALTIME_NATS_URL",
        default_value = "nats://127.0.0.1:4222",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub nats_url: Vec<String>,
    /// User at the NATS server; needs its password.
    #[arg(long, env = "ANVILBASE_REALTIME_NATS_USER")]
    pub nats_user: Option<String>,
    /// File with the password at the NATS server.
    #[arg(long, env = "ANVILBASE_REALTIME_NATS_PASSWORD_FILE")]
    pub nats_password_file: Option<PathBuf>,
    /// File with the certificate authority of the NATS server.
    #[arg(long, env = "ANVILBASE_REALTIME_NATS_CA_FILE")]
    pub nats_ca_file: Option<PathBuf>,
    /// Speak in clear to NATS servers on other machines: only where the network between is itself encrypted.
    #[arg(long, env = "ANVILBASE_REALTIME_NATS_PLAINTEXT")]
    pub nats_plaintext: bool,
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
    /// Checks what the arguments say together.
    ///
    /// # Errors
    /// A user without a password, or a password without a user: either is no login, and the server may let it in as
    /// somebody else. A server on another machine that would be spoken to in clear.
    pub fn validate(&self) -> anyhow::Result<()> {
        match (&self.nats_user, &self.nats_password_file) {
            (Some(_), None) => bail!(
                "ANVILBASE_REALTIME_NATS_USER: needs ANVILBASE_REALTIME_NATS_PASSWORD_FILE, the user's password"
            ),
            (None, Some(_)) => bail!(
                "ANVILBASE_REALTIME_NATS_PASSWORD_FILE: needs ANVILBASE_REALTIME_NATS_USER, whose password it is"
            ),
            _ => {}
        }
        let in_clear = |url: &String| !bus::is_encrypted(url) && !bus::is_on_this_machine(url);
        let encrypted = self.nats_plaintext || self.nats_ca_file.is_some();
        if !encrypted && self.nats_url.iter().any(in_clear) {
            bail!(
                "ANVILBASE_REALTIME_NATS_URL: a server on another machine must be a tls:// one, or have its authority in ANVILBASE_REALTIME_NATS_CA_FILE; ANVILBASE_REALTIME_NATS_PLAINTEXT=true speaks in clear, rows included"
            );
        }
        Ok(())
    }

    /// Connects to NATS.
    ///
    /// # Errors
    /// The arguments do not go together, the password file cannot be read, or no server answers within 10 s.
    pub async fn connect(&self, name: &str, tasks: &Tasks) -> anyhow::Result<Bus> {
        self.validate()?;
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

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn nats(arguments: &[&str]) -> Result<(), String> {
        let command = NatsArgs::augment_args(clap::Command::new("x").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        let args = NatsArgs::from_arg_matches(&matches).unwrap();
        args.validate().map_err(|error| error.to_string())
    }

    #[test]
    fn a_nats_user_has_a_password() {
        let (user, file) = (["--nats-user", "hunter2"], ["--nats-password-file", "hunter2"]);
        assert_eq!(nats(&[user, file].concat()), Ok(()));
        for (half, needs) in [(user, "NATS_PASSWORD_FILE"), (file, "NATS_USER")] {
            let refused = nats(&half).unwrap_err();
            assert!(
                refused.contains(needs) && !refused.contains("hunter2"),
                "{refused}"
            );
        }
    }

    #[test]
    fn rows_pass_no_other_machine_in_clear_unless_that_is_asked_for() {
        for here in [
            "nats://127.0.0.1:4222",
            "127.0.0.1",
            "localhost:4222",
            "nats://u:p@[::1]:4222",
            "nats://localhost,tls://nats.example",
            "tls://nats.example:4222",
        ] {
            assert_eq!(nats(&["--nats-url", here]), Ok(()), "{here}");
        }
        for there in [
            "nats://nats.example:4222",
            "nats.example",
            "ws://10.0.0.1",
            "nats://u:hunter2@10.0.0.1",
            "nats://127.0.0.1@nats.example",
            "nats://localhost.example",
            "tls://nats.example,nats://other.example",
            "nats://[2001:db8::1]:4222",
            "",
        ] {
            let refused = nats(&["--nats-url", there]).unwrap_err();
            assert!(
                refused.contains("NATS_PLAINTEXT") && !refused.contains("hunter2"),
                "{refused}"
            );
            assert_eq!(
                nats(&["--nats-url", there, "--nats-ca-file", "ca.pem"]),
                Ok(()),
                "{there}"
            );
            assert_eq!(
                nats(&["--nats-url", there, "--nats-plaintext"]),
                Ok(()),
                "{there}"
            );
        }
    }
}
