//! Installs the feed in a project's database: schema `anvilbase_realtime`, its roles, the triggers.
//!
//! Idempotent: a second run changes nothing that the first one made, and keeps the channel and the lock key.
//! Must never put a clear-text password into a statement (a server's log may hold statements), never apply the
//! platform's own grants ([`PLATFORM_SQL`]) to a project by itself, and never hold locks on many tables at once.

mod password;

use std::fmt;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel};

pub use password::Password;

/// The platform's usual grants on schema `public`, for `anvilbase dev` and tests only.
pub const PLATFORM_SQL: &str = include_str!("sql/platform.sql");

/// Oldest server that the SQL is written for.
pub const SERVER_VERSION_MIN: i32 = 140_000;

/// The login that holds the feed's session.
pub const LISTENER_ROLE: &str = "anvilbase_realtime_listener";
/// The login that judges rows.
pub const PROBER_ROLE: &str = "anvilbase_realtime_prober";
/// The login for work as service_role.
pub const SERVICE_ROLE: &str = "anvilbase_realtime_service";

/// One run at a time on a database; the number has no other meaning.
const PROVISION_LOCK: i64 = 0x616e_7669_6c72_7400;
/// Roles are shared by the whole cluster, so two databases' runs can collide.
const ATTEMPTS_MAX: u32 = 5;
/// A waiting trigger creation queues the table's writers behind it: so briefly, and again later.
const TABLE_LOCK_TIMEOUT_MS: u32 = 2_000;
const TABLE_ATTEMPTS_MAX: u32 = 3;

const FILES: [&str; 7] = [
    include_str!("sql/schema.sql"),
    include_str!("sql/emit.sql"),
    include_str!("sql/attach.sql"),
    include_str!("sql/judge.sql"),
    include_str!("sql/feed.sql"),
    include_str!("sql/auth.sql"),
    include_str!("sql/owners.sql"),
];
const ROLES_SQL: &str = include_str!("sql/roles.sql");
const EVENTS_SQL: &str = include_str!("sql/events.sql");
const GRANTS_SQL: &str = include_str!("sql/grants.sql");

/// What to do besides installing.
#[derive(Debug, Default)]
pub struct ProvisionOptions {
    /// Password of [`LISTENER_ROLE`].
    pub listener_password: Password,
    /// Password of [`PROBER_ROLE`].
    pub prober_password: Password,
    /// Password of [`SERVICE_ROLE`].
    pub service_password: Password,
    /// Makes a new channel and a new lock key. Events of the moment are lost: the listener must reconnect.
    pub rotate_channel: bool,
}

/// What a run did and what it could not do.
#[derive(Debug, Default)]
pub struct ProvisionReport {
    /// The login was a superuser: event triggers keep tables attached and facts fresh.
    pub superuser: bool,
    /// Tables that carry our triggers since this run, as `schema.table`, quoted where needed.
    pub attached: Vec<String>,
    /// Tables that ought to carry them and do not, each with the database's reason.
    pub not_attached: Vec<(String, String)>,
    /// What an operator should know; one sentence each.
    pub notices: Vec<String>,
    /// Clear text of the passwords that this run generated.
    pub generated: GeneratedPasswords,
}

/// Passwords made by [`Password::Generate`]. `Debug` does not print them.
#[derive(Default)]
pub struct GeneratedPasswords {
    /// Of [`LISTENER_ROLE`].
    pub listener: Option<String>,
    /// Of [`PROBER_ROLE`].
    pub prober: Option<String>,
    /// Of [`SERVICE_ROLE`].
    pub service: Option<String>,
}

/// Why a database was not provisioned.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// The server is older than [`SERVER_VERSION_MIN`].
    #[error("the server is older than PostgreSQL 14")]
    ServerTooOld,
    /// The server is a standby: it cannot be written to.
    #[error("the server is a standby; provision its primary")]
    Standby,
    /// A password option that is not a SCRAM verifier.
    #[error("password: must be a SCRAM-SHA-256 verifier")]
    NotAVerifier,
    /// The database refused.
    #[error("{}", describe(.0))]
    Database(#[from] tokio_postgres::Error),
}

/// Provisions the database that `client` is connected to. The client must be in no transaction; its session's
/// `lock_timeout` and `search_path` are left as they were.
pub async fn provision(
    client: &mut Client,
    options: ProvisionOptions,
) -> Result<ProvisionReport, ProvisionError> {
    let row = client
        .query_one(
            "select pg_catalog.current_setting('server_version_num')::int4, pg_catalog.pg_is_in_recovery(), \
             (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user)",
            &[],
        )
        .await?;
    if row.get::<_, i32>(0) < SERVER_VERSION_MIN {
        return Err(ProvisionError::ServerTooOld);
    }
    if row.get(1) {
        return Err(ProvisionError::Standby);
    }
    let mut report = ProvisionReport {
        superuser: row.get(2),
        ..ProvisionReport::default()
    };
    let passwords = [
        (
            LISTENER_ROLE,
            options.listener_password.resolve(random(client).await?)?,
        ),
        (
            PROBER_ROLE,
            options.prober_password.resolve(random(client).await?)?,
        ),
        (
            SERVICE_ROLE,
            options.service_password.resolve(random(client).await?)?,
        ),
    ];
    let mut attempt = 0;
    while let Err(error) = install(client, report.superuser, &passwords, options.rotate_channel).await {
        attempt += 1;
        if attempt == ATTEMPTS_MAX || !collided(&error) {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..200))).await;
    }
    let [listener, prober, service] = passwords.map(|(_, password)| password.and_then(|p| p.clear));
    report.generated = GeneratedPasswords {
        listener,
        prober,
        service,
    };
    attach_tables(client, &mut report).await?;
    note(client, &mut report).await?;
    Ok(report)
}

/// 244 random bits of the server's strong source, in hex.
async fn random(client: &Client) -> Result<String, tokio_postgres::Error> {
    let two = "select pg_catalog.replace(pg_catalog.gen_random_uuid()::text || pg_catalog.gen_random_uuid()::text, '-', '')";
    Ok(client.query_one(two, &[]).await?.get(0))
}

async fn install(
    client: &mut Client,
    superuser: bool,
    passwords: &[(&str, Option<password::Resolved>)],
    rotate_channel: bool,
) -> Result<(), tokio_postgres::Error> {
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await?;
    transaction
        .batch_execute(&format!(
            "set local search_path = pg_catalog, pg_temp; set local lock_timeout = '10s'; \
             set local client_min_messages = warning; select pg_advisory_xact_lock({PROVISION_LOCK})"
        ))
        .await?;
    transaction.batch_execute(ROLES_SQL).await?;
    if !superuser {
        // Objects are given to these roles, which takes membership of them.
        transaction
            .batch_execute("grant anvilbase_realtime_owner, anvilbase_realtime_printer to current_user")
            .await?;
    }
    for file in FILES {
        transaction.batch_execute(file).await?;
    }
    if superuser {
        transaction.batch_execute(EVENTS_SQL).await?;
    }
    if rotate_channel {
        transaction
            .batch_execute(
                "update anvilbase_realtime.settings set channel = 'anvilbase_rt_' \
                 || anvilbase_realtime.random_hex(32), lock_key = anvilbase_realtime.random_key()",
            )
            .await?;
    }
    transaction.batch_execute(GRANTS_SQL).await?;
    if !superuser {
        // Membership of the owner stays: without event triggers, attaching is this login's work.
        transaction
            .batch_execute("revoke anvilbase_realtime_printer from current_user")
            .await?;
    }
    for (role, password) in passwords {
        if let Some(password) = password {
            // A verifier holds nothing but base64 and `$:-=`; resolve() has checked that.
            transaction
                .batch_execute(&format!("alter role {role} password '{}'", password.verifier))
                .await?;
        }
    }
    transaction.commit().await
}

/// Each table in a transaction of its own, so that no lock outlives one table's trigger.
async fn attach_tables(client: &Client, report: &mut ProvisionReport) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("select anvilbase_realtime.prune()").await?;
    let pending = "select u.relation, \
        pg_catalog.format('%I.%I', u.schema_name, u.table_name) from anvilbase_realtime.unattached u order by 2";
    for attempt in 1..=TABLE_ATTEMPTS_MAX {
        report.not_attached.clear();
        for row in client.query(pending, &[]).await? {
            let (relation, name): (u32, String) = (row.get(0), row.get(1));
            // One simple-protocol batch is one transaction.
            let statement = format!(
                "set local lock_timeout = '{TABLE_LOCK_TIMEOUT_MS}ms'; select anvilbase_realtime.attach({relation})"
            );
            match client.batch_execute(&statement).await {
                Ok(()) => report.attached.push(name),
                Err(error) if error.is_closed() => return Err(error),
                Err(error) => report.not_attached.push((name, describe(&error))),
            }
        }
        if report.not_attached.is_empty() || attempt == TABLE_ATTEMPTS_MAX {
            break;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(100..400))).await;
    }
    Ok(())
}

async fn note(client: &Client, report: &mut ProvisionReport) -> Result<(), tokio_postgres::Error> {
    if !report.superuser {
        report.notices.push(
            "the login is not a superuser: there are no event triggers, so new tables are attached, and changes of \
             tables noticed, by the next `provision` only; and only tables that the login owns are attached"
                .to_owned(),
        );
    }
    let missing = client
        .query(
            "select wanted.login, wanted.role from (values ('anvilbase_realtime_prober', 'anon'), \
               ('anvilbase_realtime_prober', 'authenticated'), ('anvilbase_realtime_service', 'service_role')) \
               as wanted(login, role) \
             left join pg_catalog.pg_roles r on r.rolname = wanted.role \
             where r.oid is null or not pg_catalog.pg_has_role(wanted.login::name, r.oid, 'member')",
            &[],
        )
        .await?;
    for row in missing {
        report.notices.push(format!(
            "{} is no member of {}, which the login may not create or grant: subscribers of that role get nothing",
            row.get::<_, String>(0),
            row.get::<_, String>(1)
        ));
    }
    let strangers = client
        .query(
            "select r.rolname::text, m.rolname::text from pg_catalog.pg_auth_members a \
             join pg_catalog.pg_roles r on r.oid = a.roleid join pg_catalog.pg_roles m on m.oid = a.member \
             where r.rolname in ('anvilbase_realtime_owner', 'anvilbase_realtime_printer', \
               'anvilbase_realtime_listener') and m.rolname <> current_user and not m.rolsuper",
            &[],
        )
        .await?;
    for row in strangers {
        report.notices.push(format!(
            "role {:?} has the member {:?}, which can learn the channel's name",
            row.get::<_, String>(0),
            row.get::<_, String>(1)
        ));
    }
    if !report.not_attached.is_empty() {
        report
            .notices
            .push(format!("{} tables do not emit", report.not_attached.len()));
    }
    Ok(())
}

/// Another run on the same cluster was in the way; nothing of this one is left.
fn collided(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => [
            // "tuple concurrently updated"
            SqlState::INTERNAL_ERROR,
            SqlState::UNIQUE_VIOLATION,
            SqlState::DUPLICATE_OBJECT,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ]
        .contains(code),
        None => false,
    }
}

/// The server's message and hint, without the detail, which may hold a row's values.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => match db.hint() {
            Some(hint) => format!("{} ({hint})", db.message()),
            None => db.message().to_owned(),
        },
        None => error.to_string(),
    }
}

impl fmt::Debug for GeneratedPasswords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GeneratedPasswords(..)")
    }
}
