//! One session of the prober, and the transaction in which one subject is judged.
//!
//! Must never commit: a subject's transaction is rolled back whatever came of it, and with it
//! every setting, role and temporary object. Must run what policies' authors wrote within the
//! role's guard, where there is one: a function of the role's own, out of which nobody can become
//! another role. Must never send by name what runs outside of a guard: who is judged can put statements of his own in the
//! place of named ones, and they outlive a rollback.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use realtime_core::claims::Role;
use realtime_core::id::ProjectId;
use realtime_node::postgres::{Dsn, PgOptions, connect, quote_identifier};
use realtime_node::tasks::Tasks;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Statement};

use super::{LoginFault, PoolError, PoolLimits, inspect};
use crate::metrics::{AuthzMetrics, Counted};

/// Takes on a subject's role and claims until the transaction's end.
const SUBJECT: &str = "select pg_catalog.set_config('role', $1, true), \
     pg_catalog.set_config('request.jwt.claims', $2, true)";

/// What a session keeps over a rollback. Sent without a name of its own: named statements could
/// have been replaced by the very work that this looks for.
const CLEANSE: &str = "select pg_catalog.pg_advisory_unlock_all(), \
     (select pg_catalog.count(*) filter (where s.from_sql) OPERATOR(pg_catalog.=) 0 \
        and pg_catalog.count(*) OPERATOR(pg_catalog.=) $1::pg_catalog.int8 from pg_catalog.pg_prepared_statements s), \
     session_user::pg_catalog.text OPERATOR(pg_catalog.=) current_user::pg_catalog.text";

/// See its file.
pub(crate) const STAMP: &str = include_str!("../tables/sql/stamp.sql");

/// A role's guard, where it is as provisioning made it, and whether the role was given one. Of an owner's own settings on it
/// none are taken: they would be in force while policies are judged.
const GUARD: &str = "select ( \
       select p.proname::pg_catalog.text from pg_catalog.pg_proc p \
       join pg_catalog.pg_namespace n on n.oid OPERATOR(pg_catalog.=) p.pronamespace \
       join pg_catalog.pg_roles r on r.oid OPERATOR(pg_catalog.=) p.proowner \
       where n.nspname OPERATOR(pg_catalog.=) 'anvilbase_realtime'::pg_catalog.name \
         and p.proname OPERATOR(pg_catalog.=) pg_catalog.concat('as_', $1)::pg_catalog.name \
         and r.rolname OPERATOR(pg_catalog.=) $1::pg_catalog.name \
         and p.proargtypes::pg_catalog.text OPERATOR(pg_catalog.=) '25 1009' \
         and p.prosecdef and p.proconfig is null and p.provolatile OPERATOR(pg_catalog.=) 'v'::pg_catalog.\"char\" \
         and pg_catalog.array_length(p.proacl, 1) OPERATOR(pg_catalog.=) 1 \
     ), exists ( \
       select from anvilbase_realtime.guarded g where g.role_name OPERATOR(pg_catalog.=) $1::pg_catalog.name \
     )";

/// What a guard raises that is no longer as provisioning made it.
const NO_GUARD: &str = "AVB02";

/// How long it is believed what was found of a role's guard.
const GUARD_AGE_MAX: Duration = Duration::from_secs(5);

/// The name that a session knows its latest statement of a text by.
const NAME: &str = "select s.name from pg_catalog.pg_prepared_statements s \
     where s.statement OPERATOR(pg_catalog.=) $1 and not s.from_sql order by s.prepare_time desc limit 1";

/// One session with the database, with the statements that it has prepared.
pub struct Connection {
    client: Arc<Client>,
    _driver: Driver,
    stamp: Statement,
    guards: HashMap<Role, (Way, Instant)>,
    statements: HashMap<StatementKey, Named>,
    statements_max: usize,
    _counted: Option<Counted>,
}

/// What a prepared statement belongs to. The role is part of it: names are looked up, and plans
/// made, as the role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatementKey {
    /// The table's oid: a table made anew under the same name has another row type.
    pub relid: u32,
    /// The role.
    pub role: Role,
    /// The statement's text.
    pub sql: Arc<str>,
    /// Stands for the table's columns and their types.
    pub shape: u64,
}

/// A statement that a session has prepared. Its answer is one list of booleans.
#[derive(Clone)]
pub struct Prepared {
    statement: Named,
    way: Way,
}

#[derive(Clone)]
struct Named {
    statement: Statement,
    /// The session's name of it; only known where there was a guard to tell it to.
    name: Option<Arc<str>>,
}

/// How a role's statements are run.
#[derive(Clone)]
enum Way {
    /// Through its guard, which this calls.
    Guarded(Arc<str>),
    /// By themselves: nobody has given the role a guard.
    Bare,
    /// Not at all: it had a guard, and that one is gone or has been altered.
    Closed,
}

/// Whether plans may serve one subject after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plans {
    /// As PostgreSQL keeps them.
    Kept,
    /// Every one is made anew for the subject, also inside of functions.
    Anew,
}

/// Where a subject's transaction failed.
#[derive(Debug)]
pub enum TransactionError {
    /// The role or the claims could not be taken on.
    Subject(Error),
    /// The statement failed.
    Statement(Error),
    /// The role has no guard any more, or a statement of ours is gone: nothing was asked.
    Unguarded,
    /// The transaction could not be begun or ended: nothing is known of the session any more.
    Lost(Error),
}

impl Connection {
    /// Connects, looks at what the login is, and sets the session up.
    ///
    /// # Errors
    /// The database cannot be reached, or the login may do what a prober must not.
    pub async fn open(
        dsn: &Dsn,
        project: &ProjectId,
        limits: &PoolLimits,
        tasks: &Tasks,
    ) -> Result<Self, PoolError> {
        let options = PgOptions::new(format!("anvilbase-realtime-authz/{project}"));
        let (client, connection) = connect(dsn, &options).await?;
        let driver = Driver(tasks.spawn("query connection", connection.drive()));
        if let Some(fault) = inspect(&client, LoginFault::OF_PROBER).await? {
            return Err(PoolError::Prober(fault));
        }
        set_up(&client, limits).await?;
        let stamp = client.prepare_typed(STAMP, &[Type::OID, Type::TEXT]).await?;
        Ok(Self {
            client: Arc::new(client),
            _driver: driver,
            stamp,
            guards: HashMap::new(),
            statements: HashMap::new(),
            statements_max: limits.statements_max,
            _counted: None,
        })
    }

    /// Counts the connection as open until it is dropped.
    pub(super) fn counted(mut self, metrics: &AuthzMetrics) -> Self {
        self._counted = Some(metrics.count_connection());
        self
    }

    /// The client, for statements that are not kept.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What the facts about a relation for a role stamp as just now; `None`: there is no such relation. Sent at
    /// the first poll, ahead of whatever is sent after that. By name: for a session that nobody was judged on since it was
    /// found clean.
    pub fn stamp(&self, relid: u32, role: &Role) -> impl Future<Output = Result<Option<i64>, Error>> + use<> {
        let (client, statement, role) = (Arc::clone(&self.client), self.stamp.clone(), role.clone());
        async move {
            let rows = client.query(&statement, &[&relid, &role.as_str()]).await?;
            Ok(rows.first().map(|row| row.get(0)))
        }
    }

    /// Whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs one statement as one subject, in a transaction that is rolled back. Everything is
    /// sent at the first poll, so that transactions polled together share round trips.
    ///
    /// # Errors
    /// Where the transaction failed.
    pub async fn as_subject<T>(
        &self,
        role: &str,
        claims: &str,
        plans: Plans,
        statement: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, TransactionError> {
        let subject: [(&(dyn ToSql + Sync), Type); 2] = [(&role, Type::TEXT), (&claims, Type::TEXT)];
        let (begun, switched, answer, ended) = futures_util::join!(
            self.client.batch_execute(match plans {
                // Each statement sees the catalog as it is: a guard that was altered just now does not find itself intact.
                Plans::Kept => "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
                Plans::Anew => "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; DISCARD PLANS",
            }),
            self.client.query_typed(SUBJECT, &subject),
            statement,
            self.client.batch_execute("ROLLBACK"),
        );
        begun.map_err(TransactionError::Lost)?;
        switched.map_err(TransactionError::Subject)?;
        let answer = answer.map_err(TransactionError::Statement)?;
        ended.map_err(TransactionError::Lost)?;
        Ok(answer)
    }

    /// A statement, prepared as its role under REST's search_path.
    ///
    /// A policy may name what the role itself cannot look up (a helper in a schema without
    /// USAGE): PostgreSQL stores policies resolved. Such a statement is prepared as the prober.
    ///
    /// # Errors
    /// As of [`Connection::as_subject`].
    pub async fn statement(
        &mut self,
        key: &StatementKey,
        parameters: usize,
    ) -> Result<Prepared, TransactionError> {
        let way = self.way(&key.role).await?;
        if matches!(way, Way::Closed) {
            return Err(TransactionError::Unguarded);
        }
        if let Some(statement) = self.statements.get(key)
            && (statement.name.is_some() || matches!(way, Way::Bare))
        {
            let statement = statement.clone();
            return Ok(Prepared { statement, way });
        }
        let types = vec![Type::TEXT; parameters];
        let prepared = self
            .as_subject(
                key.role.as_str(),
                "{}",
                Plans::Kept,
                self.client.prepare_typed(&key.sql, &types),
            )
            .await;
        let statement = match prepared {
            Err(TransactionError::Statement(error))
                if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) =>
            {
                // The role's own error is the one to report where the prober fares no better.
                let as_prober = self.client.prepare_typed(&key.sql, &types).await;
                as_prober.map_err(|_| TransactionError::Statement(error))?
            }
            prepared => prepared?,
        };
        let mut name = None;
        if matches!(way, Way::Guarded(_)) {
            let named = self.client.query_typed(NAME, &[(&&*key.sql, Type::TEXT)]).await;
            let named = named.map_err(TransactionError::Lost)?;
            let row = named.first().ok_or(TransactionError::Unguarded)?;
            name = Some(Arc::from(row.get::<_, &str>(0)));
        }
        if self.statements.len() >= self.statements_max {
            self.statements.clear();
        }
        let statement = Named { statement, name };
        self.statements.insert(key.clone(), statement.clone());
        Ok(Prepared { statement, way })
    }

    /// How statements are run for a role.
    async fn way(&mut self, role: &Role) -> Result<Way, TransactionError> {
        if let Some((way, at)) = self.guards.get(role)
            && at.elapsed() < GUARD_AGE_MAX
        {
            return Ok(way.clone());
        }
        let (way, at) = (self.find_guard(role).await?, Instant::now());
        self.guards.insert(role.clone(), (way.clone(), at));
        Ok(way)
    }

    async fn find_guard(&self, role: &Role) -> Result<Way, TransactionError> {
        let name = role.as_str();
        let found = match self.client.query_typed(GUARD, &[(&name, Type::TEXT)]).await {
            Err(error) if is_lost(&error) => return Err(TransactionError::Lost(error)),
            // An error else is a database of an earlier release.
            found => found.unwrap_or_default(),
        };
        let found = found
            .first()
            .map(|row| (row.get::<_, Option<&str>>(0), row.get(1)));
        let (guard, given) = found.unwrap_or((None, true));
        Ok(match (guard, given) {
            (Some(guard), _) => {
                let guard = quote_identifier(guard);
                Way::Guarded(format!("SELECT anvilbase_realtime.{guard}($1, $2)").into())
            }
            (None, true) => {
                tracing::warn!(
                    ?role,
                    "the role's guard in the database is gone or altered, and nobody is judged as it: provision again"
                );
                Way::Closed
            }
            (None, false) => {
                tracing::warn!(?role, "the role has no guard in the database: provision it again");
                Way::Bare
            }
        })
    }

    /// What is known of guards is to be looked up again.
    pub fn forget_guards(&mut self) {
        self.guards.clear();
    }

    /// What a statement says: to be run as its role, within [`Connection::as_subject`].
    ///
    /// # Errors
    /// The statement failed.
    pub async fn ask(&self, prepared: &Prepared, parameters: &[&str]) -> Result<Vec<Option<bool>>, Error> {
        let rows = match (&prepared.way, &prepared.statement.name) {
            (Way::Guarded(call), Some(name)) => {
                let through: [(&(dyn ToSql + Sync), Type); 2] =
                    [(&&**name, Type::TEXT), (&parameters, Type::TEXT_ARRAY)];
                self.client.query_typed(call, &through).await?
            }
            (Way::Bare, _) => {
                let each = parameters.iter().map(|one| one as &(dyn ToSql + Sync));
                let each: Vec<_> = each.collect();
                self.client.query(&prepared.statement.statement, &each).await?
            }
            (Way::Guarded(_), None) | (Way::Closed, _) => Vec::new(),
        };
        // No row, or no list, is no answer.
        Ok(rows
            .first()
            .and_then(|row| row.try_get(0).ok())
            .unwrap_or_default())
    }

    /// Forgets a prepared statement.
    pub fn forget(&mut self, key: &StatementKey) {
        self.statements.remove(key);
    }

    /// Takes off the session what outlives a rollback. `false`: it must not be used again, and nothing that was answered
    /// since it was last found clean is to be believed: a statement of somebody else's may have given the answer.
    pub async fn cleanse(&self) -> bool {
        // Statements given up were closed before this one was sent.
        let prepared = (self.statements.len() + 1) as i64;
        match self
            .client
            .query_typed(CLEANSE, &[(&prepared, Type::INT8)])
            .await
            .as_deref()
        {
            Ok([row]) => [1, 2].iter().all(|at| matches!(row.try_get(*at), Ok(Some(true)))),
            _ => false,
        }
    }
}

/// The task that moves a session's bytes.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        // Not a farewell but a closed socket: what is still running is not waited for.
        self.0.abort();
    }
}

/// What holds for the whole session: a subject's transaction can change it for itself only.
async fn set_up(client: &Client, limits: &PoolLimits) -> Result<(), Error> {
    let settings: [(&str, &str); 13] = [
        ("search_path", &limits.search_path),
        ("statement_timeout", &limits.statement.as_millis().to_string()),
        ("idle_in_transaction_session_timeout", "60000"),
        ("row_security", "on"),
        // Images are read under the settings that they were printed under, where reading depends on them.
        ("lc_monetary", "C"),
        ("intervalstyle", "postgres"),
        ("xmloption", "content"),
        ("default_transaction_read_only", "on"),
        ("jit", "off"),
        // What REST sets besides.
        ("request.method", "GET"),
        ("request.path", "/"),
        ("request.headers", "{}"),
        ("request.cookies", "{}"),
    ];
    for (name, value) in settings {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&name, Type::TEXT), (&value, Type::TEXT)];
        client
            .query_typed("select pg_catalog.set_config($1, $2, false)", &parameters)
            .await?;
    }
    Ok(())
}

/// Whether an error says that a role's guard is not as it was made, or not there.
pub fn is_unguarded(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code() == NO_GUARD)
}

/// Whether an error says that the session, or the server, is gone or going.
pub fn is_lost(error: &Error) -> bool {
    match error.code() {
        None => true,
        Some(code) => {
            let class = &code.code()[..2];
            // Not a cancelled statement, which is the statement's own.
            matches!(class, "08" | "26" | "53" | "57" | "58") && *code != SqlState::QUERY_CANCELED
        }
    }
}
