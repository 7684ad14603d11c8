//! Reads the facts of one table for one role from the catalog, in one transaction that is
//! always rolled back.
//!
//! Must never run anything that a user of the database can define: the statements name only
//! what is in pg_catalog, and the one view of ours.

use realtime_core::claims::Role;
use realtime_core::id::TableRef;
use realtime_core::table::{ColumnFacts, RelationKind};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::columns::{ElementRow, TypeRow, comparison, fidelity};
use super::{Access, Column, KeyColumn, Kind, Policy, Reads, Settings, Table};
use crate::pools::{Lease, STAMP, is_lost};

const TABLE: &str = include_str!("sql/table.sql");
const COLUMNS: &str = include_str!("sql/columns.sql");
const POLICIES: &str = include_str!("sql/policies.sql");
const SETTINGS: &str = "select s.cdc_enabled, s.realtime_public, s.delete_events \
     from anvilbase_realtime.table_settings s where s.relid OPERATOR(pg_catalog.=) $1";
const RESOLVE: &str = "select c.oid from pg_catalog.pg_class c \
     join pg_catalog.pg_namespace n on n.oid OPERATOR(pg_catalog.=) c.relnamespace \
     where n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.text::pg_catalog.name \
       and c.relname OPERATOR(pg_catalog.=) $2::pg_catalog.text::pg_catalog.name \
       and pg_catalog.octet_length($1) < 64 and pg_catalog.octet_length($2) < 64";

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The oid behind a name, or `None`.
pub(super) async fn resolve(client: &Client, table: &TableRef) -> Result<Option<u32>, tokio_postgres::Error> {
    let parameters: [Parameter<'_>; 2] = [(&&*table.schema, Type::TEXT), (&&*table.table, Type::TEXT)];
    let rows = client.query_typed(RESOLVE, &parameters).await?;
    Ok(rows.first().map(|row| row.get(0)))
}

/// What came of reading a table's facts.
pub(super) enum Loaded {
    /// The facts.
    Table(Table),
    /// There is no such relation (any more).
    NoTable,
    /// The prober cannot take the role on, or there is no such role.
    RoleUnusable,
}

/// Reads the facts of a relation.
pub(super) async fn load(lease: &Lease, relid: u32, role: &Role) -> Result<Loaded, tokio_postgres::Error> {
    let client = lease.client();
    let name = role.as_str();
    let path = lease.search_path();
    let path = &*path;
    let of_table: [Parameter<'_>; 1] = [(&relid, Type::OID)];
    let of_both: [Parameter<'_>; 2] = [(&relid, Type::OID), (&name, Type::TEXT)];
    let of_path: [Parameter<'_>; 1] = [(&path, Type::TEXT)];
    // The settings are ours to read and not the role's: before the switch.
    // Of one snapshot: the policies are read twice and put together by their order. Numbers in their conditions are
    // written out in full, whatever the database's own setting.
    let begin = async {
        client
            .batch_execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = ''; \
                 SET LOCAL extra_float_digits = 1",
            )
            .await
    };
    let settings = client.query_typed(SETTINGS, &of_table);
    // Before what it stands for: a change in between makes it an old one.
    let stamp = client.query_typed(STAMP, &of_both);
    let switch = async {
        // service_role is not one that the prober can take on, and row security does not bind it.
        if role.is_service() {
            return Ok(Vec::new());
        }
        let switch = "select pg_catalog.set_config('role', $1, true)";
        client.query_typed(switch, &[(&name, Type::TEXT)]).await
    };
    let table = client.query_typed(TABLE, &of_both);
    let columns = client.query_typed(COLUMNS, &of_both);
    let qualified = client.query_typed(POLICIES, &of_both);
    let to_path = client.query_typed("select pg_catalog.set_config('search_path', $1, true)", &of_path);
    let in_path = client.query_typed(POLICIES, &of_both);
    let end = client.batch_execute("ROLLBACK");
    let (begin, settings, stamp, switch, table, columns, qualified, to_path, in_path, end) = futures_util::join!(
        begin, settings, stamp, switch, table, columns, qualified, to_path, in_path, end
    );
    // The first error is the one that says why.
    begin?;
    let settings = settings?;
    if switch.as_ref().err().is_some_and(|error| !is_lost(error)) {
        return Ok(Loaded::RoleUnusable);
    }
    let stamp = stamp?;
    switch?;
    let (table, columns, qualified) = (table?, columns?, qualified?);
    to_path?;
    let in_path = in_path?;
    end?;
    let (Some(row), Some(stamp)) = (table.first(), stamp.first()) else {
        return Ok(Loaded::NoTable);
    };
    Ok(Loaded::Table(assemble(
        relid,
        row,
        &columns,
        settings.first(),
        policy(&qualified, &in_path),
        stamp.get(0),
    )))
}

fn assemble(
    relid: u32,
    row: &Row,
    columns: &[Row],
    settings: Option<&Row>,
    policy: Policy,
    stamp: i64,
) -> Table {
    let kind = match (row.get::<_, &str>("relkind"), row.get("is_partition")) {
        ("r" | "p", false) => Kind::Base,
        ("r" | "p", true) => Kind::Partition,
        ("v", _) => Kind::Other(RelationKind::View),
        ("m", _) => Kind::Other(RelationKind::MaterializedView),
        ("f", _) => Kind::Other(RelationKind::ForeignTable),
        ("S", _) => Kind::Other(RelationKind::Sequence),
        ("i" | "I", _) => Kind::Other(RelationKind::Index),
        _ => Kind::Other(RelationKind::Other),
    };
    let settings = settings.map_or(
        Settings {
            cdc_enabled: true,
            realtime_public: false,
            delete_events: true,
        },
        |row| Settings {
            cdc_enabled: row.get(0),
            realtime_public: row.get(1),
            delete_events: row.get(2),
        },
    );
    let access = Access {
        schema_usage: row.get("schema_usage"),
        select: row.get("may_select"),
        rls_active: row.get("rls_active"),
    };
    let mut key: Vec<(i64, KeyColumn)> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        if let Some(place) = column.get::<_, Option<i64>>("key_place") {
            let type_sql = column.get::<_, Option<&str>>("type_sql").map(Box::from);
            let equals_sql = column.get::<_, &str>("equals_sql").into();
            key.push((
                place,
                KeyColumn {
                    column: at,
                    type_sql,
                    equals_sql,
                },
            ));
        }
    }
    key.sort_by_key(|(place, _)| *place);
    Table {
        relid,
        table: TableRef::new(
            row.get::<_, &str>("schema_name"),
            row.get::<_, &str>("table_name"),
        ),
        kind,
        partitioned: row.get::<_, &str>("relkind") == "p",
        settings,
        attached: row.get("attached"),
        columns: columns.iter().map(column).collect(),
        key: key.into_iter().map(|(_, column)| column).collect(),
        access,
        policy,
        plans_lie: row.get("plans_lie"),
        stamp,
    }
}

fn column(row: &Row) -> Column {
    let type_row = TypeRow {
        oid: row.get("type_oid"),
        kind: row.get("type_kind"),
        ordered_by_bytes: row.get("ordered_by_bytes"),
        deterministic: row.get("deterministic"),
        letters: row.get("letters"),
        dotted_i: row.get("dotted_i"),
        kelvin: row.get("kelvin"),
        labels: row.get("labels"),
        element: row.get::<_, Option<u32>>("element_oid").map(|oid| ElementRow {
            oid,
            name: row.get("element_name"),
            kind: row.get("element_kind"),
        }),
        opaque: row.get("opaque"),
    };
    Column {
        attnum: row.get("attnum"),
        facts: ColumnFacts {
            name: row.get::<_, &str>("name").into(),
            type_name: row.get::<_, &str>("type_name").into(),
            compare: comparison(&type_row),
            readable: row.get("readable"),
            key: row.get::<_, Option<i64>>("key_place").is_some(),
        },
        fidelity: fidelity(row.get("opaque"), row.get("json_top"), row.get("json_inside")),
        domain: row.get("is_domain"),
    }
}

/// One condition out of the policies: a permissive one must admit the row, and every
/// restrictive one too.
fn policy(qualified: &[Row], in_path: &[Row]) -> Policy {
    let mut reads = Reads::default();
    let (mut permissive, mut restrictive) = (Vec::new(), Vec::new());
    for (at, row) in qualified.iter().enumerate() {
        reads.merge(Reads::of_stored(row.get("stored")));
        let condition = safest(
            row.get("condition"),
            in_path.get(at).map(|row| row.get("condition")),
        );
        let list = if row.get("permissive") {
            &mut permissive
        } else {
            &mut restrictive
        };
        list.push(format!("({condition})"));
    }
    if permissive.is_empty() {
        return Policy {
            condition: None,
            reads,
        };
    }
    // PostgreSQL's own order: restrictive ones by name, permissive ones by name backwards.
    permissive.reverse();
    restrictive.push(format!("({})", permissive.join(" OR ")));
    Policy {
        condition: Some(restrictive.join(" AND ").into()),
        reads,
    }
}

/// Written out under an empty search_path a condition names everything with its schema, but for
/// what is in pg_catalog; and a better match in a schema of the search path would take the
/// place of that. Where there is one, PostgreSQL writes `pg_catalog.` under that search path, and
/// only then: such a text is taken instead.
fn safest<'a>(qualified: &'a str, in_path: Option<&'a str>) -> &'a str {
    let named = |text: &str| text.matches("pg_catalog.").count();
    match in_path {
        Some(in_path) if named(in_path) > named(qualified) => in_path,
        _ => qualified,
    }
}
