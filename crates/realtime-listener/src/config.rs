//! What an operator can set about the listener, as arguments and as values.

use std::path::PathBuf;
use std::time::Duration;

use realtime_node::backoff::SESSION_STEPS;

/// Arguments of the listener, besides those of every service.
#[derive(Debug, Clone, clap::Args)]
pub struct ListenerArgs {
    /// Projects whose sessions this replica may hold; more are deferred.
    #[arg(long, env = "ANVILBASE_REALTIME_MAX_LISTENERS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_listeners: u32,
    /// Database connections that this process may hold.
    #[arg(long, env = "ANVILBASE_REALTIME_MAX_DB_CONNECTIONS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_db_connections: u32,
    /// How long a project's session outlives the last interest of a gateway, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_LINGER_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub linger_seconds: u64,
    /// Events of one project that may wait for the bus; more are dropped and announced.
    #[arg(long, env = "ANVILBASE_REALTIME_PUBLISH_EVENTS_MAX", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub publish_events_max: u32,
    /// How often a session proves that notifications reach it, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_HEARTBEAT_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub heartbeat_seconds: u64,
    /// How long such a proof may take, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_HEARTBEAT_DEADLINE_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub heartbeat_deadline_seconds: u64,
    /// File with the certificate authority of the databases, for `sslmode=require`; the system's without one.
    #[arg(long, env = "ANVILBASE_REALTIME_DATABASE_CA_FILE")]
    pub database_ca_file: Option<PathBuf>,
    /// Name of this replica in messages and logs; made up without one.
    #[arg(long, env = "ANVILBASE_REALTIME_REPLICA_ID")]
    pub replica_id: Option<String>,
}

/// The listener's settings.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// Projects whose sessions this replica may hold.
    pub max_listeners: usize,
    /// Database connections that this process may hold; at least `max_listeners`.
    pub max_db_connections: usize,
    /// How long a session outlives the last interest.
    pub linger: Duration,
    /// Events of one project that may wait for the bus.
    pub publish_events_max: usize,
    /// How often a session proves that notifications reach it.
    pub heartbeat_every: Duration,
    /// How long such a proof may take.
    pub heartbeat_deadline: Duration,
    /// How often `Up` is said on `ctl`.
    pub up_every: Duration,
    /// How long opening a session may take, all steps together.
    pub open_deadline: Duration,
    /// How often projects of `listen = "always"` that nobody here holds are tried.
    pub pinned_every: Duration,
    /// Delays between attempts to reopen a lost session.
    pub reopen_steps: &'static [Duration],
    /// Certificate authority of the databases.
    pub database_ca_file: Option<PathBuf>,
    /// Name of this replica.
    pub replica_id: String,
}

/// Limits that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "ANVILBASE_REALTIME_MAX_DB_CONNECTIONS ({connections}) must be at least ANVILBASE_REALTIME_MAX_LISTENERS ({listeners}): \
     each project takes a connection"
)]
pub struct InvalidLimits {
    listeners: usize,
    connections: usize,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            max_listeners: 100,
            max_db_connections: 200,
            linger: Duration::from_secs(60),
            publish_events_max: 4096,
            heartbeat_every: Duration::from_secs(30),
            heartbeat_deadline: Duration::from_secs(5),
            up_every: Duration::from_secs(5),
            open_deadline: Duration::from_secs(15),
            pinned_every: Duration::from_secs(5),
            reopen_steps: SESSION_STEPS,
            database_ca_file: None,
            replica_id: format!("listener-{:08x}", fastrand::u32(..)),
        }
    }
}

impl ListenerConfig {
    /// Checks the limits against each other.
    ///
    /// # Errors
    /// [`InvalidLimits`], naming both.
    pub fn validate(&self) -> Result<(), InvalidLimits> {
        if self.max_db_connections < self.max_listeners {
            return Err(InvalidLimits {
                listeners: self.max_listeners,
                connections: self.max_db_connections,
            });
        }
        Ok(())
    }
}

impl From<ListenerArgs> for ListenerConfig {
    fn from(args: ListenerArgs) -> Self {
        let defaults = Self::default();
        Self {
            max_listeners: args.max_listeners as usize,
            max_db_connections: args.max_db_connections as usize,
            linger: Duration::from_secs(args.linger_seconds),
            publish_events_max: args.publish_events_max as usize,
            heartbeat_every: Duration::from_secs(args.heartbeat_seconds),
            heartbeat_deadline: Duration::from_secs(args.heartbeat_deadline_seconds),
            database_ca_file: args.database_ca_file,
            replica_id: args.replica_id.unwrap_or_else(|| defaults.replica_id.clone()),
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_contradict_are_named() {
        let config = ListenerConfig {
            max_listeners: 3,
            max_db_connections: 2,
            ..ListenerConfig::default()
        };
        let error = config.validate().unwrap_err().to_string();
        assert!(
            error.contains("MAX_DB_CONNECTIONS (2)") && error.contains("MAX_LISTENERS (3)"),
            "{error}"
        );
        assert!(ListenerConfig::default().validate().is_ok());
    }
}
