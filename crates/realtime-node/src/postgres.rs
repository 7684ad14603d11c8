//! Connections to PostgreSQL, over rustls where the server offers TLS.
//!
//! Must never print a connection string, nor a server's message whose text may hold row data:
//! errors are described by [`describe`].

pub mod private;
mod tls;

use std::fmt;
use std::future::poll_fn;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::secret::Secret;

/// A connection string, parsed. `Debug` shows host and database at most.
#[derive(Clone)]
pub struct Dsn(Config);

/// How to connect.
#[derive(Debug, Clone)]
pub struct PgOptions {
    /// What `pg_stat_activity` shows.
    pub application_name: String,
    /// Most time for connecting and logging in.
    pub connect_deadline: Duration,
    /// Certificate authority for `sslmode=require`; the system's without one.
    pub ca_file: Option<PathBuf>,
}

/// The half of a connection that moves bytes: it must be polled for the client to make progress.
pub struct PgConnection(Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum PgError {
    /// The connection string does not parse. Its text is not repeated.
    #[error("database connection string: cannot be parsed")]
    Dsn,
    /// The certificate authority cannot be read.
    #[error("database certificate authority: {0}")]
    Tls(String),
    /// The server cannot be reached, or refused.
    #[error("database connection: {0}")]
    Connect(String),
    /// Not connected in time.
    #[error("database connection: no answer within {0:?}")]
    Deadline(Duration),
}

impl Dsn {
    /// Parses a connection string in URL or key-value form.
    ///
    /// `sslmode=disable` never uses TLS; `prefer` (the default) uses it where offered, without
    /// verifying the server, as libpq does; `require` verifies the server.
    ///
    /// # Errors
    /// [`PgError::Dsn`], without the text.
    pub fn parse(text: &str) -> Result<Self, PgError> {
        text.parse().map(Self).map_err(|_| PgError::Dsn)
    }

    /// The parsed form.
    pub fn config(&self) -> &Config {
        &self.0
    }

    /// The same server and database, as another login.
    pub fn with_login(&self, user: &str, password: &str) -> Self {
        let mut config = self.0.clone();
        config.user(user).password(password);
        Self(config)
    }

    /// The connection string in key-value form: server, database, login and `sslmode`.
    pub fn to_key_values(&self) -> Secret {
        let mut pairs: Vec<(&str, String)> = Vec::new();
        let hosts = self.0.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        pairs.push(("host", hosts.collect::<Vec<_>>().join(",")));
        let ports: Vec<_> = self.0.get_ports().iter().map(u16::to_string).collect();
        pairs.push(("port", ports.join(",")));
        pairs.push(("dbname", self.0.get_dbname().unwrap_or_default().to_owned()));
        pairs.push(("user", self.0.get_user().unwrap_or_default().to_owned()));
        let password = String::from_utf8_lossy(self.0.get_password().unwrap_or_default()).into_owned();
        pairs.push(("password", password));
        let ssl_mode = match self.0.get_ssl_mode() {
            SslMode::Disable => "disable",
            SslMode::Require => "require",
            _ => "prefer",
        };
        pairs.push(("sslmode", ssl_mode.to_owned()));
        let pairs = pairs
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| format!("{key}='{}'", value.replace('\\', "\\\\").replace('\'', "\\'")));
        Secret::new(pairs.collect::<Vec<_>>().join(" "))
    }
}

impl std::str::FromStr for Dsn {
    type Err = PgError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl<'de> serde::Deserialize<'de> for Dsn {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dsn({:?}, {:?})", self.0.get_hosts(), self.0.get_dbname())
    }
}

impl PgOptions {
    /// The usual options under an application name.
    pub fn new(application_name: impl Into<String>) -> Self {
        Self {
            application_name: application_name.into(),
            connect_deadline: Duration::from_secs(5),
            ca_file: None,
        }
    }
}

/// Connects and logs in.
///
/// # Errors
/// See [`PgError`].
pub async fn connect(dsn: &Dsn, options: &PgOptions) -> Result<(Client, PgConnection), PgError> {
    let mut config = dsn.0.clone();
    config
        .application_name(&options.application_name)
        .connect_timeout(options.connect_deadline)
        .keepalives_idle(Duration::from_secs(10))
        .keepalives_interval(Duration::from_secs(5))
        .keepalives_retries(3)
        .tcp_user_timeout(Duration::from_secs(25));
    let verify = config.get_ssl_mode() == SslMode::Require;
    let tls = tls::connector(verify, options.ca_file.as_deref()).map_err(PgError::Tls)?;
    let connected = tokio::time::timeout(options.connect_deadline, config.connect(tls)).await;
    match connected {
        Ok(Ok((client, connection))) => Ok((client, PgConnection(connection))),
        Ok(Err(error)) => Err(PgError::Connect(describe(&error))),
        Err(_) => Err(PgError::Deadline(options.connect_deadline)),
    }
}

impl PgConnection {
    /// Moves bytes until the connection ends; notices and notifications are discarded.
    pub async fn drive(mut self) {
        while let Some(Ok(_)) = self.next_message().await {}
    }

    /// The next notice or notification; `None` once the connection ended in peace.
    pub async fn next_message(&mut self) -> Option<Result<AsyncMessage, tokio_postgres::Error>> {
        poll_fn(|context| self.0.poll_message(context)).await
    }
}

impl fmt::Debug for PgConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PgConnection")
    }
}

/// Describes an error without anything that may be row data: the SQLSTATE always, the server's
/// message only for the classes that speak of the connection and the server itself.
pub fn describe(error: &tokio_postgres::Error) -> String {
    let Some(db) = error.as_db_error() else {
        return match std::error::Error::source(error) {
            Some(source) if source.is::<std::io::Error>() => format!("{error}: {source}"),
            _ => error.to_string(),
        };
    };
    let code = db.code().code();
    match code.get(..2) {
        Some("08" | "28" | "3D" | "53" | "57") => format!("{code}: {}", db.message()),
        _ => format!("SQLSTATE {code}"),
    }
}

/// Quotes a name as an SQL identifier. The only function of its kind (invariant 11).
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_quoted() {
        assert_eq!(quote_identifier("a"), r#""a""#);
        assert_eq!(
            quote_identifier(r#"x"; drop table t; --"#),
            r#""x""; drop table t; --""#
        );
    }

    #[test]
    fn a_connection_string_does_not_show_its_password() {
        let dsn = Dsn::parse("postgresql://login:hunter2@db.example/app").unwrap();
        let shown = format!("{dsn:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("login"), "{shown}");
        let refused = Dsn::parse("postgresql://me:hunter2@db:notaport/app").unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("hunter2"));
    }
}
