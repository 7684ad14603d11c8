//! One database session that holds a project's feed: its lock, its channel, its heartbeat.
//!
//! Must never open a transaction (an idle one holds back the server's queue), and never put the channel's name into a
//! statement: `open_feed()` listens without showing it.

use std::time::Duration;

use realtime_node::postgres::{Dsn, PgError, PgOptions, connect, describe};
use realtime_node::tasks::Tasks;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::config::ListenerConfig;
use crate::source::{Beats, NotifySource, start};

/// Of the server's side: a listener that vanished must not hold the lock for long. Keepalives alone do not end a
/// session with unacknowledged notifications; the user timeout does. No effect on Unix sockets.
const SESSION_SETTINGS: &str = "\
    set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3; \
    set tcp_user_timeout = 25000; set idle_session_timeout = 0; set statement_timeout = '10s'; \
    set lock_timeout = '5s'; set search_path = pg_catalog, pg_temp; set default_transaction_read_only = off; \
    set default_transaction_isolation = 'read committed'";

/// Most time for giving the lock back; closing the session does it too.
const RELEASE_DEADLINE: Duration = Duration::from_secs(1);

/// A session that holds the feed until it ends.
#[derive(Debug)]
pub struct Session {
    /// What the database sends.
    pub source: NotifySource,
    /// Of this session, and greater than any before it.
    pub epoch: u64,
    /// The heart of the session, to be watched while the source is read.
    pub heart: Heart,
    /// Its share of the process's connections.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// Proves from time to time that notifications reach the session.
#[derive(Debug)]
pub struct Heart {
    client: Client,
    beats: Beats,
    deadline: Duration,
}

/// What came of an attempt to take the feed.
#[derive(Debug)]
pub enum Opened {
    /// The feed is ours.
    Taken(Box<Session>),
    /// Another listener holds it.
    HeldElsewhere,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] PgError),
    /// The connection goes through a pooler that changes server sessions between statements.
    #[error(
        "listener_dsn: leads through a transaction pooler, which delivers no notifications; it must lead to the \
         database itself, or to a pooler in session mode"
    )]
    TransactionPooler,
    /// The server cannot notify.
    #[error("listener_dsn: leads to a standby, which delivers no notifications; it must lead to the primary")]
    Standby,
    /// Our objects are missing, or this login may not use them.
    #[error(
        "the database is not provisioned for this login; run `anvilbase realtime provision` (SQLSTATE {0})"
    )]
    NotProvisioned(String),
    /// The database refused a statement.
    #[error("the database refused: {0}")]
    Refused(String),
    /// A heartbeat did not come back.
    #[error("no heartbeat came back through the database within {0:?}")]
    NoHeartbeat(Duration),
    /// The session ended.
    #[error("the session ended")]
    Ended,
    /// Opening took too long.
    #[error("the session was not open within {0:?}")]
    Deadline(Duration),
}

/// Opens a session and takes the feed. The session's reader runs in `tasks`.
///
/// # Errors
/// See [`SessionError`].
pub async fn open(
    dsn: &Dsn,
    project: &str,
    config: &ListenerConfig,
    spare_connection: bool,
    tasks: &Tasks,
) -> Result<Opened, SessionError> {
    let attempt = take(dsn, project, config, spare_connection, tasks);
    match timeout(config.open_deadline, attempt).await {
        Ok(opened) => opened,
        Err(_) => Err(SessionError::Deadline(config.open_deadline)),
    }
}

async fn take(
    dsn: &Dsn,
    project: &str,
    config: &ListenerConfig,
    spare_connection: bool,
    tasks: &Tasks,
) -> Result<Opened, SessionError> {
    let options = PgOptions {
        ca_file: config.database_ca_file.clone(),
        ..PgOptions::new(format!("anvilbase-realtime-listener {project}"))
    };
    let (client, connection) = connect(dsn, &options).await?;
    let (source, beats) = start(connection, config.publish_events_max, tasks);
    refuse_standby(&client).await?;
    let spare = spare_connection.then_some((dsn, &options));
    refuse_transaction_pooler(&client, spare, tasks).await?;
    client.batch_execute(SESSION_SETTINGS).await?;
    let row = client
        .query_one(
            "select outcome, epoch, key_rotated from anvilbase_realtime.open_feed()",
            &[],
        )
        .await?;
    if row.get::<_, bool>(2) {
        tracing::error!(project, "a stranger held the feed's lock; the lock was replaced");
    }
    if row.get::<_, String>(0) != "taken" {
        return Ok(Opened::HeldElsewhere);
    }
    let epoch = u64::try_from(row.get::<_, i64>(1)).unwrap_or_default();
    let mut heart = Heart {
        client,
        beats,
        deadline: config.heartbeat_deadline,
    };
    match heart.beat().await {
        Ok(()) => Ok(Opened::Taken(Box::new(Session {
            source,
            epoch,
            heart,
            permit: None,
        }))),
        // The statement went through and its notification did not come: what poolers do.
        Err(SessionError::NoHeartbeat(_)) if !heart.client.is_closed() => {
            Err(SessionError::TransactionPooler)
        }
        Err(error) => Err(error),
    }
}

impl Opened {
    /// The session keeps its share of the process's connections until it ends.
    #[must_use]
    pub fn holding(mut self, permit: Option<OwnedSemaphorePermit>) -> Self {
        if let Self::Taken(session) = &mut self {
            session.permit = permit;
        }
        self
    }
}

impl Heart {
    /// One round trip: a notification to ourselves through the feed's own channel.
    ///
    /// # Errors
    /// [`SessionError::NoHeartbeat`] after the deadline; or the database refused.
    pub async fn beat(&mut self) -> Result<(), SessionError> {
        let nonce = fastrand::u128(..);
        let expected = realtime_core::envelope::heartbeat(nonce);
        let nonce = format!("{nonce:032x}");
        let deadline = self.deadline;
        let round_trip = async {
            self.client
                .execute("select anvilbase_realtime.beat($1)", &[&nonce])
                .await?;
            match self.beats.wait_for(|beat| *beat == expected).await {
                Ok(_) => Ok(()),
                // The reader ended.
                Err(_) => Err(SessionError::NoHeartbeat(deadline)),
            }
        };
        timeout(deadline, round_trip)
            .await
            .unwrap_or(Err(SessionError::NoHeartbeat(deadline)))
    }

    /// How full the server's notification queue is, 0 to 1.
    ///
    /// # Errors
    /// The database refused, or did not answer before the heartbeat's deadline.
    pub async fn queue_usage(&self) -> Result<f64, SessionError> {
        let query = self
            .client
            .query_one("select pg_catalog.pg_notification_queue_usage()", &[]);
        match timeout(self.deadline, query).await {
            Ok(row) => Ok(row?.get(0)),
            Err(_) => Err(SessionError::NoHeartbeat(self.deadline)),
        }
    }

    /// Gives the lock back and ends the session.
    pub async fn release(self) {
        let released = self
            .client
            .batch_execute("unlisten *; select pg_catalog.pg_advisory_unlock_all()");
        if timeout(RELEASE_DEADLINE, released).await.is_err() {
            tracing::warn!("a feed's lock was not given back in time; it ends with its session");
        }
    }
}

async fn refuse_standby(client: &Client) -> Result<(), SessionError> {
    match one_value(client, "select pg_catalog.pg_is_in_recovery()")
        .await?
        .as_deref()
    {
        Some("t") => Err(SessionError::Standby),
        _ => Ok(()),
    }
}

/// A pooler in transaction mode gives our next statement another server session, or another client's statement ours.
/// Both are looked for while a second connection occupies the session that is free. Simple protocol only: prepared
/// statements fail on such poolers before anything could be told.
async fn refuse_transaction_pooler(
    client: &Client,
    spare: Option<(&Dsn, &PgOptions)>,
    tasks: &Tasks,
) -> Result<(), SessionError> {
    let mark = format!("{:032x}", fastrand::u128(..));
    let set = format!("select pg_catalog.set_config('anvilbase_realtime.session', '{mark}', false)");
    client.simple_query(&set).await?;
    let shown = "select pg_catalog.pg_backend_pid()::text || ' ' \
                 || coalesce(pg_catalog.current_setting('anvilbase_realtime.session', true), '')";
    let ours = one_value(client, shown).await?;
    // Kept until the end of the test, and closed by being dropped.
    let mut second = None;
    if let Some((dsn, options)) = spare
        && let Ok((other, connection)) = connect(dsn, options).await
    {
        tasks.spawn("pooler test", connection.drive());
        other.simple_query("begin").await?;
        let theirs = one_value(&other, shown).await?;
        if theirs == ours || theirs.is_some_and(|theirs| theirs.ends_with(&mark)) {
            return Err(SessionError::TransactionPooler);
        }
        second = Some(other);
    }
    let again = one_value(client, shown).await?;
    drop(second);
    if again == ours && ours.is_some_and(|ours| ours.ends_with(&mark)) {
        Ok(())
    } else {
        Err(SessionError::TransactionPooler)
    }
}

async fn one_value(client: &Client, query: &str) -> Result<Option<String>, SessionError> {
    let messages = client.simple_query(query).await?;
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}

impl From<tokio_postgres::Error> for SessionError {
    fn from(error: tokio_postgres::Error) -> Self {
        let missing = [
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::UNDEFINED_FUNCTION,
            SqlState::UNDEFINED_TABLE,
            SqlState::INSUFFICIENT_PRIVILEGE,
        ];
        match error.code() {
            Some(code) if missing.contains(code) => Self::NotProvisioned(code.code().to_owned()),
            _ => Self::Refused(describe(&error)),
        }
    }
}
