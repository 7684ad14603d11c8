//! One session of the prober, and the transaction in which one subject is judged.
//!
//! Must never commit: a subject's transaction is rolled back whatever came of it, and with it
//! every setting, role and temporary object. Must run what policies' authors wrote within the
//! role's guard, where there is one: a function of the role's own, out of which nobody can become
//! another role.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use realtime_core::claims::Role;
use realtime_core::id::ProjectId;
use realtime_node::postgres::{Dsn, PgOptions, connect, quote_identifier};
use realtime_node::tasks::Tasks;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Statement};

use super::{PoolError, PoolLimits, prober};
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

/// Whether a role has a guard that is as provisioning made it. Of an owner's own settings on it none are taken: they
/// would be in force while policies are judged.
const GUARD: &str = "select p.proname::pg_catalog.text from pg_catalog.pg_proc p \
     join pg_catalog.pg_namespace n on n.oid OPERATOR(pg_catalog.=) p.pronamespace \
     join pg_catalog.pg_roles r on r.oid OPERATOR(pg_catalog.=) p.proowner \
     where n.nspname OPERATOR(pg_catalog.=) 'anvilbase_realtime'::pg_catalog.name \
       and p.proname OPERATOR(pg_catalog.=) pg_catalog.concat('as_', $1)::pg_catalog.name \
       and r.rolname OPERATOR(pg_catalog.=) $1::pg_catalog.name \
       and p.proargtypes::pg_catalog.text OPERATOR(pg_catalog.=) '25 1009' \
       and p.prosecdef and p.proconfig is null";

/// The name that a session knows its latest statement of a text by.
const NAME: &str = "select s.name from pg_catalog.pg_prepared_statements s \
     where s.statement OPERATOR(pg_catalog.=) $1 and not s.from_sql order by s.prepare_time desc limit 1";

/// One session with the database, with the statements that it has prepared.
pub struct Connection {
    client: Arc<Client>,
    _driver: Driver,
    subject: Statement,
    stamp: Statement,
    /// The call of each role's guard; `None` where it has none.
    guards: HashMap<Role, Option<Statement>>,
    statements: HashMap<StatementKey, Prepared>,
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
    statement: Statement,
    guard: Option<Guard>,
}

/// The way to a statement through its role's guard.
#[derive(Clone)]
struct Guard {
    call: Statement,
    /// The session's name of the statement.
    name: Arc<str>,
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
        prober::inspect(&client).await?;
        set_up(&client, limits).await?;
        let (subject, stamp) = futures_util::try_join!(
            client.prepare_typed(SUBJECT, &[Type::TEXT, Type::TEXT]),
            client.prepare_typed(STAMP, &[Type::OID, Type::TEXT]),
        )?;
        Ok(Self {
            client: Arc::new(client),
            _driver: driver,
            subject,
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
    /// the first poll, ahead of whatever is sent after that.
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
        let subject: [&(dyn ToSql + Sync); 2] = [&role, &claims];
        let (begun, switched, answer, ended) = futures_util::join!(
            self.client.batch_execute(match plans {
                Plans::Kept => "BEGIN READ ONLY",
                Plans::Anew => "BEGIN READ ONLY; DISCARD PLANS",
            }),
            self.client.query(&self.subject, &subject),
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
        if let Some(statement) = self.statements.get(key) {
            return Ok(statement.clone());
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
        let guard = self.guard(&key.role, &key.sql).await?;
        if self.statements.len() >= self.statements_max {
            self.statements.clear();
        }
        let prepared = Prepared { statement, guard };
        self.statements.insert(key.clone(), prepared.clone());
        Ok(prepared)
    }

    /// The way through a role's guard to the statement that was prepared last.
    async fn guard(&mut self, role: &Role, sql: &str) -> Result<Option<Guard>, TransactionError> {
        let call = match self.guards.get(role) {
            Some(call) => call.clone(),
            None => {
                let call = self.find_guard(role).await?;
                self.guards.insert(role.clone(), call.clone());
                call
            }
        };
        let Some(call) = call else { return Ok(None) };
        let named = self.client.query_typed(NAME, &[(&sql, Type::TEXT)]).await;
        let named = named.map_err(TransactionError::Lost)?;
        Ok(named.first().map(|row| Guard {
            call,
            name: Arc::from(row.get::<_, &str>(0)),
        }))
    }

    async fn find_guard(&self, role: &Role) -> Result<Option<Statement>, TransactionError> {
        let name = role.as_str();
        let found = self.client.query_typed(GUARD, &[(&name, Type::TEXT)]).await;
        let found = found.map_err(TransactionError::Lost)?;
        let Some(row) = found.first() else {
            tracing::warn!(?role, "the role has no guard in the database: provision it again");
            return Ok(None);
        };
        let guard = quote_identifier(row.get(0));
        let sql = format!("SELECT anvilbase_realtime.{guard}($1, $2)");
        let call = self.client.prepare_typed(&sql, &[Type::TEXT, Type::TEXT_ARRAY]);
        let call = self.as_subject(name, "{}", Plans::Kept, call).await?;
        Ok(Some(call))
    }

    /// What a statement says: to be run as its role, within [`Connection::as_subject`].
    ///
    /// # Errors
    /// The statement failed.
    pub async fn ask(&self, prepared: &Prepared, parameters: &[&str]) -> Result<Vec<Option<bool>>, Error> {
        let rows = match &prepared.guard {
            Some(Guard { call, name }) => self.client.query(call, &[&&**name, &parameters]).await?,
            None => {
                let each = parameters.iter().map(|one| one as &(dyn ToSql + Sync));
                let each: Vec<_> = each.collect();
                self.client.query(&prepared.statement, &each).await?
            }
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

    /// Takes off the session what outlives a rollback. `false`: it must not be used again.
    pub async fn cleanse(&self) -> bool {
        // Statements given up were closed before this one was sent.
        let guards = self.guards.values().flatten().count();
        let prepared = (self.statements.len() + guards + 2) as i64;
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
