//! One session of a project's service login, for one call.
//!
//! Must never be used for a second call: what one left behind in a session would meet the next.

use std::time::Duration;

use realtime_core::id::ProjectId;
use realtime_node::postgres::{Dsn, PgError, PgOptions, connect};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;

use crate::metrics::Counted;
use crate::pools::{LoginFault, PoolError, Pools, inspect};

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// All the process's connections are in use.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The database cannot be reached.
    #[error(transparent)]
    Connect(#[from] PgError),
    /// The login is not one to set tables with.
    #[error("service login: {0}")]
    Login(LoginFault),
    /// The database refused.
    #[error("database: {}", realtime_node::postgres::describe(.0))]
    Database(#[from] tokio_postgres::Error),
}

/// A session. Dropped without [`Session::end`] its socket is closed at once, and with it goes what was not
/// committed.
pub struct Session {
    client: Client,
    driver: Driver,
    _total: OwnedSemaphorePermit,
    _counted: Counted,
}

struct Driver(Option<JoinHandle<()>>);

impl Session {
    /// Connects, looks at what the login is, and sets the session up.
    ///
    /// # Errors
    /// The database cannot be reached in time, no connection is free, or the login is not one to set tables with.
    pub async fn open(
        pools: &Pools,
        dsn: &Dsn,
        project: &ProjectId,
        deadline: Instant,
    ) -> Result<Self, SessionError> {
        let total = pools.place().await?;
        let left = deadline.duration_since(Instant::now());
        let options = PgOptions {
            connect_deadline: left.max(Duration::from_millis(1)),
            ..PgOptions::new(format!("anvilbase-realtime-authz/{project}/settings"))
        };
        let (client, connection) = connect(dsn, &options).await?;
        let (task, counted) = pools.adopt("settings connection", connection.drive());
        let session = Self {
            client,
            driver: Driver(Some(task)),
            _total: total,
            _counted: counted,
        };
        let prepared = timeout_at(deadline, session.prepare(left)).await;
        prepared.map_err(|_| PgError::Deadline(left))??;
        Ok(session)
    }

    async fn prepare(&self, statement: Duration) -> Result<(), SessionError> {
        // Under an empty search_path every name here is written out or is the server's own.
        let settings = format!(
            "set search_path = ''; set statement_timeout = {}; set idle_in_transaction_session_timeout = 60000",
            statement.as_millis().max(1)
        );
        self.client.batch_execute(&settings).await?;
        match inspect(&self.client, LoginFault::OF_SERVICE).await? {
            Some(fault) => Err(SessionError::Login(fault)),
            None => Ok(()),
        }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Takes leave of the server.
    pub fn end(mut self) {
        // The task says goodbye when the client is gone, and ends.
        self.driver.0 = None;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}
