//! What gateways are told of a table.

use realtime_proto::v1::{CannotEmit, Comparison};
use tonic::Code;

use crate::fixture::*;

#[tokio::test]
async fn a_table_that_cannot_emit_says_why_first_things_first() {
    let db = Fixture::start().await;
    db.run(
        "create table good(id int primary key); alter table good enable row level security; \
         create view v as select 1 as x; create materialized view mv as select 1 as x; create sequence sq; \
         create table root(id int) partition by range (id); create table leaf partition of root for values from (0) to (9); \
         alter table root enable row level security; \
         create table opted(id int); select anvilbase_realtime.set_table('public', 'opted', cdc_enabled => false); \
         create schema other; create table other.t(id int); \
         create table bare(id int); \
         create table public_t(id int); select anvilbase_realtime.set_table('public', 'public_t', realtime_public => true); \
         create table locked(id int); alter table locked enable row level security; revoke select on locked from anon;",
    )
    .await;
    let expected = [
        ("public", "good", CannotEmit::Unspecified),
        ("public", "root", CannotEmit::Unspecified),
        ("public", "public_t", CannotEmit::Unspecified),
        ("public", "missing", CannotEmit::NoSuchTable),
        ("missing", "good", CannotEmit::NoSuchTable),
        ("public", "GOOD", CannotEmit::NoSuchTable),
        ("public", "v", CannotEmit::NotABaseTable),
        ("public", "mv", CannotEmit::NotABaseTable),
        ("public", "sq", CannotEmit::NotABaseTable),
        ("public", "leaf", CannotEmit::Partition),
        ("public", "opted", CannotEmit::OptedOut),
        ("other", "t", CannotEmit::OptedOut),
        ("public", "bare", CannotEmit::RlsDisabled),
        ("public", "locked", CannotEmit::NoPrivilege),
    ];
    for (schema, table, reason) in expected {
        let told = db.describe(schema, table, "anon").await.unwrap();
        assert_eq!(told.cannot_emit(), reason, "{schema}.{table}");
        assert_eq!(
            told.relid == 0,
            reason == CannotEmit::NoSuchTable,
            "{schema}.{table}"
        );
    }
    // service_role is bound by none of it but by what the table is.
    for (table, reason) in [
        ("bare", CannotEmit::Unspecified),
        ("locked", CannotEmit::Unspecified),
        ("v", CannotEmit::NotABaseTable),
    ] {
        let told = db.describe("public", table, "service_role").await.unwrap();
        assert_eq!(told.cannot_emit(), reason, "{table}");
        assert!(told.columns.iter().all(|column| column.readable));
    }
}

#[tokio::test]
async fn columns_are_described_for_filters() {
    let db = Fixture::start().await;
    let folds = db.create_folded_collation().await;
    db.run(
        r#"create type mood as enum ('sad', 'ok'); alter type mood add value 'bad' before 'ok';
           create domain small as int check (value < 10); create domain smaller as small;
           create type t_pair as (a int, b int);
           create type printed as enum ('x'); create function to_json(printed) returns json language sql as $$ select null::json $$;
           create cast (printed as json) with function to_json(printed);
           create table t(p printed, pa printed[], "Id" bigint, k2 text collate "C", primary key (k2, "Id"), i2 int2, n numeric(5,2), f4 real, f8 double precision,
             b bool, t text, v varchar(3) collate "POSIX", c char(3), u uuid, d date, tm time, ts timestamp, tz timestamptz,
             by bytea, m mood, dom smaller, j jsonb, a int[], iv interval, fold text collate folded, o oid, ttz timetz, js json, ip inet, net cidr,
             am mood[], dom_a small[], js_a json[], fold_a text[] collate folded, cash money, pair t_pair, v2 int2vector, bits bit(3));
           alter table t enable row level security;
           revoke select on t from anon; grant select ("Id", m) on t to anon;"#,
    )
    .await;
    let told = db.describe("public", "t", "anon").await.unwrap();
    let expected = [
        ("Id", "int8", Comparison::Decimal, false, true),
        ("k2", "text", Comparison::Text, true, true),
        ("i2", "int2", Comparison::Decimal, false, false),
        ("n", "numeric", Comparison::Decimal, false, false),
        ("f4", "float4", Comparison::Float4, false, false),
        ("f8", "float8", Comparison::Float8, false, false),
        ("b", "bool", Comparison::Bool, false, false),
        ("v", "varchar", Comparison::Text, true, false),
        ("u", "uuid", Comparison::Uuid, false, false),
        ("d", "date", Comparison::Date, false, false),
        ("tm", "time", Comparison::Time, false, false),
        ("ts", "timestamp", Comparison::Timestamp, false, false),
        ("tz", "timestamptz", Comparison::Timestamptz, false, false),
        ("by", "bytea", Comparison::Bytea, false, false),
        ("m", "mood", Comparison::Enum, false, false),
        ("dom", "int4", Comparison::Decimal, false, false),
        ("j", "jsonb", Comparison::Jsonb, false, false),
        ("a", "_int4", Comparison::Array, false, false),
        ("iv", "interval", Comparison::Interval, false, false),
        (
            "fold",
            "text",
            if folds {
                Comparison::FoldedText
            } else {
                Comparison::Text
            },
            !folds,
            false,
        ),
        ("o", "oid", Comparison::Decimal, false, false),
        ("ttz", "timetz", Comparison::Timetz, false, false),
        ("js", "json", Comparison::Veiled, false, false),
        ("ip", "inet", Comparison::Network, false, false),
        ("net", "cidr", Comparison::Network, false, false),
        ("am", "_mood", Comparison::Array, false, false),
        ("dom_a", "_small", Comparison::Array, false, false),
        ("js_a", "_json", Comparison::Opaque, false, false),
        (
            "fold_a",
            "_text",
            if folds {
                Comparison::Opaque
            } else {
                Comparison::Array
            },
            false,
            false,
        ),
        ("cash", "money", Comparison::Opaque, false, false),
        ("pair", "t_pair", Comparison::Veiled, false, false),
        ("v2", "int2vector", Comparison::Opaque, false, false),
        ("bits", "bit", Comparison::Opaque, false, false),
        ("p", "printed", Comparison::Veiled, false, false),
        ("pa", "_printed", Comparison::Veiled, false, false),
    ];
    for (name, type_name, comparison, by_bytes, key) in expected {
        let column = told.columns.iter().find(|column| column.name == name).unwrap();
        assert_eq!(column.type_name, type_name, "{name}");
        assert_eq!(column.comparison(), comparison, "{name}");
        assert_eq!(column.ordered_by_bytes, by_bytes, "{name}");
        assert_eq!(column.primary_key, key, "{name}");
        assert_eq!(column.readable, ["Id", "m"].contains(&name), "{name}");
    }
    let padded = told.columns.iter().find(|column| column.name == "c").unwrap();
    assert_eq!(padded.comparison(), Comparison::PaddedText);
    let mood = told.columns.iter().find(|column| column.name == "m").unwrap();
    assert_eq!(mood.enum_labels, ["sad", "bad", "ok"]);
    let element = |name: &str| {
        let column = told.columns.iter().find(|column| column.name == name).unwrap();
        let element = column.element.as_ref().unwrap();
        (
            element.type_name.clone(),
            element.comparison(),
            column.enum_labels.clone(),
        )
    };
    assert_eq!(element("a"), ("int4".into(), Comparison::Decimal, vec![]));
    assert_eq!(element("dom_a"), ("int4".into(), Comparison::Decimal, vec![]));
    let labels = ["sad", "bad", "ok"].map(String::from).to_vec();
    assert_eq!(element("am"), ("mood".into(), Comparison::Enum, labels));
    // The default collation is the database's own.
    let by_bytes: bool = db
        .admin
        .query_one(
            "select datcollate in ('C', 'POSIX') from pg_database where datname = current_database()",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(
        told.columns
            .iter()
            .find(|column| column.name == "t")
            .unwrap()
            .ordered_by_bytes,
        by_bytes
    );
}

#[tokio::test]
async fn descriptions_follow_the_feed_and_names_move() {
    let db = Fixture::start().await;
    db.run("create table t(id int primary key); alter table t enable row level security")
        .await;
    let at = |seq| realtime_core::change::Position { epoch: 1, seq };
    let first = db.describe_after("public", "t", "anon", at(1)).await.unwrap();
    db.run(
        "alter table t rename to s; create table t(a int, b int); alter table t enable row level security",
    )
    .await;
    let second = db.describe_after("public", "t", "anon", at(2)).await.unwrap();
    assert_eq!((first.columns.len(), second.columns.len()), (1, 2));
    assert_ne!(first.relid, second.relid);
    assert_eq!(
        db.describe_after("public", "s", "anon", at(2))
            .await
            .unwrap()
            .relid,
        first.relid
    );
    assert!(second.delete_events);
}

#[tokio::test]
async fn a_role_that_is_not_the_projects_is_refused_without_its_name() {
    let db = Fixture::start().await;
    let refused = db.describe("public", "t", "postgres").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("role:") && !refused.message().contains("postgres"));
}

/// Filters compare the bytes of UTF-8, the server its own.
#[tokio::test]
async fn text_is_ordered_by_bytes_only_where_the_servers_bytes_are_in_our_order() {
    let db = Fixture::start().await;
    let columns = include_str!("../../src/tables/sql/columns.sql");
    for (encoding, ordered) in [
        ("UTF8", true),
        ("LATIN1", true),
        ("LATIN2", false),
        ("EUC_JP", false),
    ] {
        let name = encoding.to_lowercase();
        db.run(&format!(
            "create database {name} with template template0 encoding '{encoding}' lc_collate 'C' lc_ctype 'C'"
        ))
        .await;
        let client = db.pg.connect(&name).await;
        client
            .batch_execute(
                "create table t(plain text, named text collate \"C\", kept text collate \"POSIX\")",
            )
            .await
            .unwrap();
        let relid = client.query_one("select 't'::regclass::oid", &[]).await.unwrap();
        let rows = client
            .query(columns, &[&relid.get::<_, u32>(0), &"anon"])
            .await
            .unwrap();
        let found: Vec<bool> = rows.iter().map(|row| row.get("ordered_by_bytes")).collect();
        assert_eq!(found, [ordered; 3], "{encoding}");
    }
}
