//! Who writes, and how its session is set.

use realtime_testkit::postgres::Postgres;
use tokio_postgres::Client;

use super::Dice;
use crate::support::DATABASE;

/// Logins that may do less and less; `visitor` becomes `anon`, as REST does.
pub const ROLES: &str = "
    create role keeper login password 'keeper';
    create role narrow login password 'narrow';
    create role visitor login noinherit password 'visitor';
    grant anon to visitor;
    create schema twin authorization keeper;
    grant create, usage on schema public to keeper;
    grant usage on schema public, twin to narrow, anon;";

/// What the platform, and the owner, grant.
pub const GRANTS: &str = "
    grant select, insert, update, delete on all tables in schema public, twin to anon;
    grant insert, update, delete on all tables in schema public, twin to narrow;
    grant select on public.docs, twin.docs, public.every, twin.every, public.part, twin.part to narrow;";

/// Settings that any login may have, and values that print, plan or check otherwise than usual. Not debug_parallel_query:
/// under it the server runs in parallel what it never does otherwise, and then refuses a cast that sets something.
const SETTINGS: &[(&str, &[&str])] = &[
    (
        "timezone",
        &["America/New_York", "Asia/Kathmandu", "UTC", "-13:37"],
    ),
    ("datestyle", &["SQL, DMY", "German", "Postgres, MDY", "ISO, YMD"]),
    ("intervalstyle", &["sql_standard", "iso_8601", "postgres_verbose"]),
    ("bytea_output", &["escape"]),
    ("extra_float_digits", &["-15", "0", "3"]),
    ("standard_conforming_strings", &["off"]),
    ("escape_string_warning", &["off"]),
    ("backslash_quote", &["off", "on"]),
    ("quote_all_identifiers", &["on"]),
    (
        "search_path",
        &[
            "",
            "hostile, pg_catalog, public",
            "pg_temp, hostile",
            "public, hostile",
            "nowhere",
        ],
    ),
    ("client_encoding", &["LATIN1", "EUC_JP", "SQL_ASCII", "WIN1252"]),
    ("row_security", &["off"]),
    ("statement_timeout", &["60s"]),
    ("lock_timeout", &["5s"]),
    ("lc_monetary", &["C.UTF-8", "POSIX"]),
    ("lc_numeric", &["C.UTF-8"]),
    ("lc_time", &["C.UTF-8"]),
    ("xmlbinary", &["hex"]),
    ("xmloption", &["document"]),
    (
        "default_transaction_isolation",
        &["serializable", "repeatable read"],
    ),
    ("default_transaction_deferrable", &["on"]),
    ("default_toast_compression", &["lz4", "pglz"]),
    ("work_mem", &["64kB"]),
    ("temp_buffers", &["800kB"]),
    ("jit_above_cost", &["0"]),
    ("plan_cache_mode", &["force_generic_plan", "force_custom_plan"]),
    ("enable_seqscan", &["off"]),
    ("enable_indexscan", &["off"]),
    ("enable_nestloop", &["off"]),
    ("enable_hashjoin", &["off"]),
    ("enable_sort", &["off"]),
    ("parallel_setup_cost", &["0"]),
    ("min_parallel_table_scan_size", &["0"]),
    ("check_function_bodies", &["off"]),
    ("array_nulls", &["off"]),
    ("transform_null_equals", &["on"]),
    ("constraint_exclusion", &["on"]),
    ("default_statistics_target", &["1"]),
    ("from_collapse_limit", &["1"]),
    ("join_collapse_limit", &["1"]),
    ("geqo_threshold", &["2"]),
    ("plpgsql.extra_errors", &["all"]),
    ("plpgsql.extra_warnings", &["all"]),
    ("plpgsql.check_asserts", &["off"]),
    ("plpgsql.print_strict_params", &["on"]),
    ("client_min_messages", &["debug5", "error"]),
    ("exit_on_error", &["off"]),
    ("restrict_nonsystem_relation_kind", &["view"]),
    ("synchronous_commit", &["off"]),
    ("request.jwt.claims", &["{", "{}"]),
    ("anvilbase_realtime.session", &["x"]),
];

/// Settings of a superuser.
const SUPERUSER_SETTINGS: &[(&str, &[&str])] = &[
    ("session_replication_role", &["replica", "local"]),
    ("plpgsql.variable_conflict", &["use_variable", "use_column"]),
    ("log_statement", &["all"]),
    ("log_min_messages", &["debug5"]),
    ("lc_messages", &["C.UTF-8"]),
    ("event_triggers", &["off"]),
    ("max_stack_depth", &["300kB"]),
    ("track_functions", &["all"]),
    ("compute_query_id", &["on"]),
    ("allow_system_table_mods", &["on"]),
];

/// A writer's session.
pub struct Session {
    pub client: Client,
    /// What it is, for whoever reads a failure.
    pub is: String,
}

impl Session {
    /// A session of any role with any settings.
    pub async fn open(pg: &Postgres, dice: &mut Dice) -> Self {
        let role = ["postgres", "keeper", "keeper", "narrow", "visitor"][dice.below(5)];
        let client = match role {
            "postgres" => pg.connect(DATABASE).await,
            login => pg.connect_login(login, login, DATABASE).await,
        };
        let mut is = role.to_owned();
        if role == "visitor" {
            client.batch_execute("set role anon").await.unwrap();
        }
        let mut pool = SETTINGS.to_vec();
        if role == "postgres" {
            pool.extend(SUPERUSER_SETTINGS);
        }
        dice.ascii_only = false;
        for _ in 0..dice.below(9) {
            let (name, values) = pool[dice.below(pool.len())];
            let value = values[dice.below(values.len())];
            // A schema list is no string to SET.
            let set = format!("select pg_catalog.set_config('{name}', '{value}', false)");
            // Not every version and build has every setting.
            if client.simple_query(&set).await.is_ok() {
                // The client reads and writes UTF-8: what it sends and gets then must be the same in all encodings.
                dice.ascii_only |= name == "client_encoding";
                is.push_str(&format!(", {name} = {value:?}"));
            }
        }
        Self { client, is }
    }
}
