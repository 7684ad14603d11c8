//! Every database connection that authz holds: a few per project, a limit in all.
//!
//! Must never hand out a connection that somebody else's work may have touched: one whose
//! answer was late, lost or strange is closed, and what a session can keep over a rollback is
//! taken off it before the next use, and before what it answered is believed.

mod connection;
mod login;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use realtime_core::id::ProjectId;
use realtime_node::postgres::{Dsn, PgError};
use realtime_node::tasks::Tasks;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use connection::STAMP;
pub use connection::{Connection, Plans, Prepared, StatementKey, TransactionError, is_lost, is_unguarded};
pub use login::LoginFault;
pub(crate) use login::inspect;

use crate::metrics::{AuthzMetrics, Counted};

/// What the pools hold to.
#[derive(Debug, Clone)]
pub struct PoolLimits {
    /// Connections per project.
    pub per_project: usize,
    /// Connections of the process.
    pub in_all: usize,
    /// Longest wait for a connection.
    pub acquire: Duration,
    /// A connection unused for so long is closed.
    pub idle: Duration,
    /// Longest time of one statement.
    pub statement: Duration,
    /// The search_path that REST sets.
    pub search_path: Arc<str>,
    /// Statements that one connection keeps prepared.
    pub statements_max: usize,
}

/// Why there is no connection, or no answer from one.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No connection became free in time.
    #[error(
        "query pool: no connection became free in time (ANVILBASE_REALTIME_QUERY_POOL_SIZE, ANVILBASE_REALTIME_MAX_DB_CONNECTIONS)"
    )]
    Saturated,
    /// The database cannot be reached.
    #[error(transparent)]
    Connect(#[from] PgError),
    /// The login is not one to judge with.
    #[error("prober login: {0}")]
    Prober(LoginFault),
    /// The role does not exist, or the prober cannot become it.
    #[error("role: the prober login cannot take it on (GRANT … TO the prober)")]
    Role,
    /// The database refused, or the connection was lost.
    #[error("database: {}", realtime_node::postgres::describe(.0))]
    Database(#[from] tokio_postgres::Error),
}

/// The pools of all projects, and the limit over them.
pub struct Pools {
    limits: PoolLimits,
    total: Arc<Semaphore>,
    pools: Mutex<Vec<Weak<Pool>>>,
    tasks: Tasks,
    metrics: AuthzMetrics,
}

/// One project's connections.
pub struct Pool {
    project: ProjectId,
    dsn: Dsn,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    shared: Arc<Pools>,
}

struct Idle {
    connection: Connection,
    total: OwnedSemaphorePermit,
    since: Instant,
}

/// A connection in use. Dropped, it is closed; [`Lease::settle`] and [`Lease::release`] return it.
pub struct Lease {
    connection: Connection,
    pool: Arc<Pool>,
    total: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Pools {
    /// No connections yet; idle ones are closed by a task of `tasks`.
    pub fn new(limits: PoolLimits, tasks: &Tasks, metrics: AuthzMetrics) -> Arc<Self> {
        let pools = Arc::new(Self {
            total: Arc::new(Semaphore::new(limits.in_all)),
            pools: Mutex::new(Vec::new()),
            tasks: tasks.clone(),
            metrics,
            limits,
        });
        let swept = Arc::downgrade(&pools);
        let stop = tasks.cancelled();
        let every = pools.limits.idle / 2;
        tasks.spawn("idle query connections", async move {
            tokio::pin!(stop);
            loop {
                let stopped = tokio::select! {
                    () = &mut stop => true,
                    () = tokio::time::sleep(every) => false,
                };
                let Some(pools) = swept.upgrade() else { return };
                pools.sweep(if stopped {
                    Duration::ZERO
                } else {
                    pools.limits.idle
                });
                if stopped {
                    return;
                }
            }
        });
        pools
    }

    /// A pool for a project.
    pub fn pool(self: &Arc<Self>, project: ProjectId, dsn: Dsn) -> Arc<Pool> {
        let pool = Arc::new(Pool {
            project,
            dsn,
            places: Arc::new(Semaphore::new(self.limits.per_project)),
            idle: Mutex::new(Vec::new()),
            shared: Arc::clone(self),
        });
        let mut pools = self.pools.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        pool
    }

    /// A place among the process's connections, for one that is in no pool.
    ///
    /// # Errors
    /// [`PoolError::Saturated`] after the acquire deadline.
    pub async fn place(&self) -> Result<OwnedSemaphorePermit, PoolError> {
        self.total(Instant::now() + self.limits.acquire).await
    }

    /// Runs the half that moves the bytes of a connection that is in no pool, and counts it as open.
    pub fn adopt(
        &self,
        name: &'static str,
        driving: impl Future<Output = ()> + Send + 'static,
    ) -> (JoinHandle<()>, Counted) {
        self.metrics.connections_opened.inc();
        (self.tasks.spawn(name, driving), self.metrics.count_connection())
    }

    async fn total(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, PoolError> {
        loop {
            if let Ok(permit) = Arc::clone(&self.total).try_acquire_owned() {
                return Ok(permit);
            }
            if !self.close_one_idle() {
                break;
            }
        }
        let waited = tokio::time::timeout_at(deadline, Arc::clone(&self.total).acquire_owned());
        match waited.await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(self.saturated()),
        }
    }

    fn saturated(&self) -> PoolError {
        self.metrics.saturated.inc();
        PoolError::Saturated
    }

    /// Closes what was unused for so long, or has ended.
    fn sweep(&self, unused: Duration) {
        for pool in self.live() {
            pool.idle
                .lock()
                .retain(|idle| idle.since.elapsed() < unused && !idle.connection.is_closed());
        }
    }

    /// Closes the connection that was idle the longest, of whatever project.
    fn close_one_idle(&self) -> bool {
        let oldest = self.live().into_iter().filter_map(|pool| {
            let since = pool.idle.lock().first().map(|idle| idle.since)?;
            Some((since, pool))
        });
        let Some((_, pool)) = oldest.min_by_key(|(since, _)| *since) else {
            return false;
        };
        let mut idle = pool.idle.lock();
        if idle.is_empty() {
            return false;
        }
        idle.remove(0);
        true
    }

    fn live(&self) -> Vec<Arc<Pool>> {
        self.pools.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Pool {
    /// A connection of this project's: an idle one, or a new one where the limits allow.
    ///
    /// # Errors
    /// [`PoolError::Saturated`] after the acquire deadline; or why no new one came about.
    pub async fn acquire(self: &Arc<Self>) -> Result<Lease, PoolError> {
        let deadline = Instant::now() + self.shared.limits.acquire;
        let place = tokio::time::timeout_at(deadline, Arc::clone(&self.places).acquire_owned());
        let Ok(Ok(place)) = place.await else {
            return Err(self.shared.saturated());
        };
        while let Some(Idle {
            connection, total, ..
        }) = self.pop_idle()
        {
            if !connection.is_closed() {
                return Ok(Lease {
                    connection,
                    pool: Arc::clone(self),
                    total,
                    _place: place,
                });
            }
        }
        let total = self.shared.total(deadline).await?;
        let connection =
            Connection::open(&self.dsn, &self.project, &self.shared.limits, &self.shared.tasks).await?;
        self.shared.metrics.connections_opened.inc();
        Ok(Lease {
            connection: connection.counted(&self.shared.metrics),
            pool: Arc::clone(self),
            total,
            _place: place,
        })
    }

    fn pop_idle(&self) -> Option<Idle> {
        // The one used last: the others then grow old and are closed.
        self.idle.lock().pop()
    }
}

impl Lease {
    /// The connection.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The connection's client, for statements that are not kept.
    pub fn client(&self) -> &tokio_postgres::Client {
        self.connection.client()
    }

    /// The search_path that REST sets.
    pub fn search_path(&self) -> Arc<str> {
        Arc::clone(&self.pool.shared.limits.search_path)
    }

    /// Returns the connection after a transaction that was rolled back and ran nothing of a user's.
    ///
    /// # Errors
    /// The work's own.
    pub fn settle<T>(self, work: Result<T, tokio_postgres::Error>) -> Result<T, PoolError> {
        // An error of a statement leaves the session as it was; a lost session is closed.
        if work.as_ref().err().is_none_or(|error| !is_lost(error)) {
            self.put_back();
        }
        Ok(work?)
    }

    /// Returns the connection after work that ran policies, once [`Connection::cleanse`] has found it clean.
    pub fn release(self) {
        self.put_back();
    }

    fn put_back(self) {
        let Self {
            connection,
            pool,
            total,
            _place,
        } = self;
        // Told to stop: nothing is kept for later.
        if pool.shared.tasks.is_cancelled() {
            return;
        }
        pool.idle.lock().push(Idle {
            connection,
            total,
            since: Instant::now(),
        });
    }
}
