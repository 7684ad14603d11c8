//! authz's own arguments.
//!
//! Must never let anything bind that was not checked: [`AuthzArgs::options`] is the one way on.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::pools::PoolLimits;
use crate::service::ServiceLimits;
use crate::settings::SettingsLimits;
use crate::tables::FactsLimits;

/// Arguments of authz.
#[derive(Debug, Clone, Args)]
pub struct AuthzArgs {
    /// Address of the gRPC service. One that is not loopback needs the three TLS files.
    #[arg(
        long,
        env = "ANVILBASE_REALTIME_AUTHZ_ADDR",
        default_value = "127.0.0.1:50051"
    )]
    pub authz_addr: SocketAddr,
    /// File with the service's certificate chain, PEM.
    #[arg(long, env = "ANVILBASE_REALTIME_AUTHZ_TLS_CERT_FILE")]
    pub authz_tls_cert_file: Option<PathBuf>,
    /// File with the key of that certificate, PEM.
    #[arg(long, env = "ANVILBASE_REALTIME_AUTHZ_TLS_KEY_FILE")]
    pub authz_tls_key_file: Option<PathBuf>,
    /// File with the certificate authority that gateways' certificates must come from, PEM.
    #[arg(long, env = "ANVILBASE_REALTIME_AUTHZ_TLS_CLIENT_CA_FILE")]
    pub authz_tls_client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    /// Limits.
    pub limits: LimitArgs,
}

/// Limits of authz.
#[derive(Debug, Clone, Args)]
pub struct LimitArgs {
    /// Database connections per project.
    #[arg(long, env = "ANVILBASE_REALTIME_QUERY_POOL_SIZE", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub query_pool_size: u32,
    /// Database connections of the process.
    #[arg(long, env = "ANVILBASE_REALTIME_MAX_DB_CONNECTIONS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_db_connections: u32,
    /// Longest wait for a database connection, in milliseconds; then the check fails closed.
    #[arg(long, env = "ANVILBASE_REALTIME_QUERY_POOL_ACQUIRE_MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_pool_acquire_ms: u64,
    /// A database connection unused for so many seconds is closed.
    #[arg(long, env = "ANVILBASE_REALTIME_QUERY_POOL_IDLE_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_pool_idle_seconds: u64,
    /// Statements that one database connection keeps prepared.
    #[arg(long, env = "ANVILBASE_REALTIME_QUERY_POOL_STATEMENTS_MAX", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub query_pool_statements_max: u32,
    /// Longest time of one call, and of one statement in it, in milliseconds.
    #[arg(long, env = "ANVILBASE_REALTIME_AUTHZ_DEADLINE_MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(10..))]
    pub authz_deadline_ms: u64,
    /// Calls that are worked on at once; more of them wait, until their deadline.
    #[arg(long, env = "ANVILBASE_REALTIME_AUTHZ_CALLS_MAX", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub authz_calls_max: u32,
    /// Calls for table settings that are worked on at once, each on a database connection of its own; never more than half of all.
    #[arg(long, env = "ANVILBASE_REALTIME_SETTINGS_CALLS_MAX", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub settings_calls_max: u32,
    /// Longest time of one call for table settings, in milliseconds. A table that somebody holds locked is waited for as long, and its writers wait behind.
    #[arg(long, env = "ANVILBASE_REALTIME_SETTINGS_DEADLINE_MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(10..))]
    pub settings_deadline_ms: u64,
    /// Facts about tables older than this are read again, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_FACTS_AGE_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub facts_age_seconds: u64,
    /// Facts kept per project, one for each table and role.
    #[arg(long, env = "ANVILBASE_REALTIME_FACTS_ENTRIES_MAX", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub facts_entries_max: u32,
    /// The search_path that policies are judged under: the one that REST sets.
    #[arg(long, env = "ANVILBASE_REALTIME_SEARCH_PATH", default_value = "public")]
    pub search_path: String,
}

/// Certificates of a service that is reachable from other machines, PEM.
#[derive(Clone)]
pub struct Tls {
    /// The service's chain.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// Where clients' certificates must come from.
    pub client_ca: Vec<u8>,
}

/// Why the arguments cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    /// Only some of the three TLS files are given.
    #[error("ANVILBASE_REALTIME_AUTHZ_TLS_CERT_FILE, _KEY_FILE, _CLIENT_CA_FILE: all three or none")]
    TlsIncomplete,
    /// Everybody who can reach the address could ask what anybody may see.
    #[error(
        "ANVILBASE_REALTIME_AUTHZ_ADDR: an address that is not loopback needs ANVILBASE_REALTIME_AUTHZ_TLS_CERT_FILE, _KEY_FILE and _CLIENT_CA_FILE"
    )]
    TlsRequired,
    /// A TLS file cannot be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

impl AuthzArgs {
    /// The TLS files' content, where given; an error where the address needs them.
    ///
    /// # Errors
    /// See [`ArgsError`].
    pub fn tls(&self) -> Result<Option<Tls>, ArgsError> {
        let files = [
            &self.authz_tls_cert_file,
            &self.authz_tls_key_file,
            &self.authz_tls_client_ca_file,
        ];
        match files {
            [Some(certificate), Some(key), Some(client_ca)] => Ok(Some(Tls {
                certificate: read(certificate)?,
                key: read(key)?,
                client_ca: read(client_ca)?,
            })),
            [None, None, None] if self.authz_addr.ip().is_loopback() => Ok(None),
            [None, None, None] => Err(ArgsError::TlsRequired),
            _ => Err(ArgsError::TlsIncomplete),
        }
    }
}

impl LimitArgs {
    /// What the pools hold to.
    pub fn pools(&self) -> PoolLimits {
        PoolLimits {
            per_project: self.query_pool_size as usize,
            in_all: self.max_db_connections as usize,
            acquire: Duration::from_millis(self.query_pool_acquire_ms),
            idle: Duration::from_secs(self.query_pool_idle_seconds),
            statement: Duration::from_millis(self.authz_deadline_ms),
            search_path: Arc::from(self.search_path.as_str()),
            statements_max: self.query_pool_statements_max as usize,
        }
    }

    /// What facts hold to.
    pub fn facts(&self) -> FactsLimits {
        FactsLimits {
            age_max: Duration::from_secs(self.facts_age_seconds),
            entries_max: self.facts_entries_max as usize,
        }
    }

    /// What the service holds to.
    pub fn service(&self) -> ServiceLimits {
        ServiceLimits {
            deadline: Duration::from_millis(self.authz_deadline_ms),
            calls_max: self.authz_calls_max as usize,
        }
    }
}

impl LimitArgs {
    /// What calls for table settings hold to.
    pub fn settings(&self) -> SettingsLimits {
        // Rows are judged on what is left.
        let half = (self.max_db_connections / 2).max(1);
        SettingsLimits {
            deadline: Duration::from_millis(self.settings_deadline_ms),
            calls_max: self.settings_calls_max.min(half) as usize,
        }
    }
}

impl Default for LimitArgs {
    fn default() -> Self {
        Self {
            query_pool_size: 5,
            max_db_connections: 200,
            query_pool_acquire_ms: 500,
            query_pool_idle_seconds: 60,
            query_pool_statements_max: 256,
            authz_deadline_ms: 2000,
            authz_calls_max: 512,
            settings_calls_max: 4,
            settings_deadline_ms: 2000,
            facts_age_seconds: 5,
            facts_entries_max: 10_000,
            search_path: "public".to_owned(),
        }
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, ArgsError> {
    std::fs::read(path).map_err(|error| ArgsError::Io {
        path: path.clone(),
        error,
    })
}
