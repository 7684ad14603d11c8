//! What is set for tables on the feed, as its operator reads and changes it.
//!
//! Must never take a connection that judges rows wait for: its own are few, each for one call. And
//! must never change anything but by the one function that provisioning made for it.

mod session;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use realtime_core::id::ProjectId;
use realtime_node::catalog::Catalog;
use realtime_node::postgres::Dsn;
use realtime_proto::v1;
use realtime_proto::v1::table_service_server::TableService;
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tonic::{Request, Response, Status};

use crate::pools::Pools;
use session::{Session, SessionError};

/// Most tables of one answer.
pub const TABLES_MAX: u32 = 10_000;

/// Longest name of a schema or table, in bytes. PostgreSQL cuts longer ones, and would find another table.
const NAME_BYTES_MAX: usize = 63;

const STATE: &str = include_str!("settings/state.sql");
const SET: &str = "select from anvilbase_realtime.set_table($1, $2, cdc_enabled => $3, realtime_public => $4, \
     delete_events => $5, emit_events => $6, replica_events => $7)";

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// What the service holds to.
#[derive(Debug, Clone, Copy)]
pub struct SettingsLimits {
    /// Longest time of one call, and of one statement in it.
    pub deadline: Duration,
    /// Calls that are worked on at once, of all projects; of one project it is one.
    pub calls_max: usize,
}

/// The service's state. Cloning shares it.
#[derive(Clone)]
pub struct Settings(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    pools: Arc<Pools>,
    limits: SettingsLimits,
    calls: Arc<Semaphore>,
    /// One call at a time, by project: as many as there are projects.
    turns: Mutex<FxHashMap<ProjectId, Arc<Semaphore>>>,
}

impl Settings {
    /// The service over a catalog's projects; its connections count among those of `pools`.
    pub fn new(catalog: Catalog, pools: Arc<Pools>, limits: SettingsLimits) -> Self {
        Self(Arc::new(Inner {
            catalog,
            pools,
            limits,
            calls: Arc::new(Semaphore::new(limits.calls_max)),
            turns: Mutex::default(),
        }))
    }

    /// A session of the project's service login, once it is this call's turn. The permits are held with it.
    async fn session(
        &self,
        project: &str,
        deadline: Instant,
    ) -> Result<(Session, [OwnedSemaphorePermit; 2]), Status> {
        let (id, dsn) = self.login(project)?;
        let turn = Arc::clone(
            self.0
                .turns
                .lock()
                .entry(id.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(1))),
        );
        let waited = async {
            // The project's own turn first: whoever waits for that keeps no other project waiting.
            let own = turn.acquire_owned().await.ok()?;
            Some([own, Arc::clone(&self.0.calls).acquire_owned().await.ok()?])
        };
        let permits = timeout_at(deadline, waited).await.ok().flatten();
        let permits = permits.ok_or_else(|| Status::resource_exhausted("table settings: too many calls"))?;
        let session = Session::open(&self.0.pools, &dsn, &id, deadline).await;
        Ok((session.map_err(|error| refused(&error, &id))?, permits))
    }

    fn login(&self, project: &str) -> Result<(ProjectId, Dsn), Status> {
        let id = ProjectId::parse(project).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let config = self.0.catalog.get(&id);
        let config = config.ok_or_else(|| Status::failed_precondition("project: unknown"))?;
        let dsn = config
            .database
            .as_ref()
            .and_then(|database| database.service_dsn.clone());
        let dsn = dsn.ok_or_else(|| Status::failed_precondition("project: has no [database] service_dsn"))?;
        Ok((id, dsn))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.0.limits.deadline
    }
}

#[tonic::async_trait]
impl TableService for Settings {
    async fn list_tables(
        &self,
        request: Request<v1::ListTablesRequest>,
    ) -> Result<Response<v1::ListTablesResponse>, Status> {
        let deadline = self.deadline();
        let v1::ListTablesRequest {
            project,
            schema,
            after,
            limit,
        } = request.into_inner();
        if !(1..=TABLES_MAX).contains(&limit) {
            return Err(Status::invalid_argument(format!(
                "limit: must be 1 to {TABLES_MAX}"
            )));
        }
        if !is_name(&schema) || !(after.is_empty() || is_name(&after)) {
            return Ok(Response::new(v1::ListTablesResponse::default()));
        }
        let (session, _permits) = self.session(&project, deadline).await?;
        let sql = format!(
            "{STATE} and c.relname OPERATOR(pg_catalog.>) $2::pg_catalog.text::pg_catalog.name order by c.relname limit $3"
        );
        let one_more = i64::from(limit) + 1;
        let parameters: [Parameter<'_>; 3] = [
            (&schema, Type::TEXT),
            (&after, Type::TEXT),
            (&one_more, Type::INT8),
        ];
        let read = timeout_at(deadline, session.client().query_typed(&sql, &parameters)).await;
        let mut tables = match read.map_err(|_| late())? {
            Ok(rows) => rows.iter().map(state).collect::<Vec<_>>(),
            Err(error) if cannot_be_a_name(&error) => Vec::new(),
            Err(error) => return Err(failed(&error)),
        };
        session.end();
        let more = tables.len() > limit as usize;
        tables.truncate(limit as usize);
        Ok(Response::new(v1::ListTablesResponse { tables, more }))
    }

    async fn set_table(
        &self,
        request: Request<v1::SetTableRequest>,
    ) -> Result<Response<v1::SetTableResponse>, Status> {
        let deadline = self.deadline();
        let request = request.into_inner();
        if !is_name(&request.schema) || !is_name(&request.table) {
            return Err(no_such_table());
        }
        let (session, _permits) = self.session(&request.project, deadline).await?;
        let table = timeout_at(deadline, set(&session, &request))
            .await
            .map_err(|_| late())??;
        session.end();
        // Names of tables are no row data; who asked is in the gateway's log.
        tracing::info!(
            project = request.project,
            schema = table.schema,
            table = table.table,
            cdc_enabled = table.cdc_enabled,
            realtime_public = table.realtime_public,
            delete_events = table.delete_events,
            emit_events = table.emit_events,
            replica_events = table.replica_events,
            "settings of a table were set"
        );
        Ok(Response::new(v1::SetTableResponse { table: Some(table) }))
    }
}

/// Sets, and reads what came of it, in one transaction. A table that is not listed is not set either: to whoever
/// asks, those that service_role may not read are not there.
async fn set(session: &Session, request: &v1::SetTableRequest) -> Result<v1::TableState, Status> {
    let v1::SetTableRequest {
        schema,
        table,
        cdc_enabled,
        realtime_public,
        delete_events,
        emit_events,
        replica_events,
        ..
    } = request;
    let client = session.client();
    let settings: [Parameter<'_>; 7] = [
        (schema, Type::TEXT),
        (table, Type::TEXT),
        (cdc_enabled, Type::BOOL),
        (realtime_public, Type::BOOL),
        (delete_events, Type::BOOL),
        (emit_events, Type::BOOL),
        (replica_events, Type::BOOL),
    ];
    let sql = format!("{STATE} and c.relname OPERATOR(pg_catalog.=) $2::pg_catalog.text::pg_catalog.name");
    let name: [Parameter<'_>; 2] = [(schema, Type::TEXT), (table, Type::TEXT)];
    client
        .batch_execute("begin")
        .await
        .map_err(|error| failed(&error))?;
    match client.query_typed(&sql, &name).await {
        Ok(rows) if rows.is_empty() => return Err(no_such_table()),
        Ok(_) => {}
        Err(error) if cannot_be_a_name(&error) => return Err(no_such_table()),
        Err(error) => return Err(failed(&error)),
    }
    if let Err(error) = client.query_typed(SET, &settings).await {
        return Err(match error.code() {
            Some(code) if *code == SqlState::UNDEFINED_TABLE => no_such_table(),
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Status::permission_denied(
                "table: the login that provisioned the database is not its owner, and cannot change its triggers",
            ),
            _ => failed(&error),
        });
    }
    let rows = client
        .query_typed(&sql, &name)
        .await
        .map_err(|error| failed(&error))?;
    let table = rows.first().map(state).ok_or_else(no_such_table)?;
    client
        .batch_execute("commit")
        .await
        .map_err(|error| failed(&error))?;
    Ok(table)
}

fn state(row: &Row) -> v1::TableState {
    v1::TableState {
        schema: row.get("schema_name"),
        table: row.get("table_name"),
        cdc_enabled: row.get("cdc_enabled"),
        rls_enabled: row.get("rls_enabled"),
        realtime_public: row.get("realtime_public"),
        delete_events: row.get("delete_events"),
        emit_events: row.get("emit_events"),
        replica_events: row.get("replica_events"),
        emitting: row.get("emitting"),
        text_key: row.get("text_key"),
    }
}

/// Whether PostgreSQL could know something by this name.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains('\0')
}

/// The name has a character that the database's encoding lacks.
fn cannot_be_a_name(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        [
            SqlState::UNTRANSLATABLE_CHARACTER,
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        ]
        .contains(code)
    })
}

fn no_such_table() -> Status {
    Status::not_found("table: no such base table")
}

fn late() -> Status {
    Status::deadline_exceeded("database: no answer in time")
}

/// What a failed statement means to the caller.
fn failed(error: &tokio_postgres::Error) -> Status {
    let described = realtime_node::postgres::describe(error);
    match error.code().map(SqlState::code) {
        // A lock that was not had in time: lock_not_available, query_canceled, deadlock_detected.
        Some("55P03" | "57014" | "40P01") => {
            Status::aborted("table: another transaction holds a lock on it; try again")
        }
        // An undefined schema, table, column or function, or no privilege on one: all are ours.
        Some("3F000" | "42P01" | "42703" | "42883" | "42501") => {
            tracing::warn!(
                error = described,
                "the database is not provisioned for table settings"
            );
            Status::failed_precondition("database: is not provisioned by this release")
        }
        _ => {
            tracing::warn!(error = described, "table settings cannot be had");
            Status::unavailable("database: cannot be asked just now")
        }
    }
}

fn refused(error: &SessionError, project: &ProjectId) -> Status {
    tracing::warn!(%project, %error, "no connection for table settings");
    match error {
        SessionError::Pool(_) => {
            Status::resource_exhausted("table settings: no connection became free in time")
        }
        SessionError::Login(_) => Status::failed_precondition("service login: is not one to set tables with"),
        SessionError::Connect(_) | SessionError::Database(_) => {
            Status::unavailable("database: cannot be asked just now")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_name_is_looked_up() {
        let longest = "é".repeat(31) + "x";
        assert!(is_name("Orders 2"));
        assert!(is_name(&longest));
        for text in ["", "a\0b", &(longest + "x")] {
            assert!(!is_name(text), "{text:?}");
        }
    }
}
