//! Reference events, which carry a key and no row.

use realtime_core::change::Marker;
use realtime_proto::v1;

use crate::fixture::*;

#[tokio::test]
async fn a_row_is_found_by_its_key_whatever_the_keys_type() {
    let db = Fixture::start().await;
    db.create_folded_collation().await;
    db.run(
        r#"create schema "My Types"; create type "My Types"."State" as enum ('New', 'Do''ne');
           create type "My Types".pair as (a int, b text);
           create domain code as varchar(12) collate "C";
           create domain nocase as text collate folded;"#,
    )
    .await;
    let keys: [(&str, &[&str]); 17] = [
        (
            "varchar(12)",
            &["a'b", "x\"y", " padded ", "-1", "1e5", "Ünï", "\\", "null", "{}"],
        ),
        ("char(5)", &["ab", "a'b"]),
        ("code", &["a'b", "Ünï"]),
        ("nocase", &["AbC"]),
        ("text collate \"C\"", &["a\nb"]),
        ("date", &["2026-06-04", "0044-03-15 BC", "infinity"]),
        ("numeric", &["1.50", "NaN", "123456789012345678901234567890.5"]),
        ("bigint", &["9007199254740993"]),
        ("uuid", &[U1]),
        ("inet", &["10.0.0.1/8"]),
        ("timestamptz", &["2026-06-04 10:00:00.123456+00"]),
        ("boolean", &["true"]),
        (r#""My Types"."State""#, &["New", "Do'ne"]),
        ("int[]", &["{1,2}", "{{1},{2}}"]),
        (r#""My Types".pair"#, &["(1,\"x\"\"y\")"]),
        ("int4range", &["[1,5)"]),
        ("jsonb", &["\"a\"", "{\"a\": [1]}", "1.50"]),
    ];
    for (at, (kind, values)) in keys.iter().enumerate() {
        let table = format!(r#""Kéys ""{at}""#);
        db.run(&format!(
            r#"create table {table}("The ""Id" {kind} primary key, owner uuid, pad text);
               alter table {table} enable row level security;
               create policy p on {table} for select to authenticated using (owner = auth.uid());"#
        ))
        .await;
        for value in *values {
            let literal = value.replace('\'', "''");
            let insert = format!("insert into {table} values ('{literal}', '{U1}', repeat('x', 9000))");
            let event = db.change(&insert).await;
            assert_eq!(event.marker, Some(Marker::PayloadTooLarge));
            assert_eq!(
                db.judge(&event, &[user(U1), user(U2), anon()]).await,
                [WHOLE, HIDDEN, HIDDEN],
                "{kind} {value}"
            );
        }
    }
}

#[tokio::test]
async fn a_reference_is_judged_by_the_row_as_it_is_and_shows_no_old_row() {
    let db = Fixture::start().await;
    db.run(
        "create table t(a int, b text, owner uuid, pad text, primary key (b, a)); alter table t enable row level security; \
         create policy p on t for select to authenticated using (owner = auth.uid());",
    )
    .await;
    let insert = format!("insert into t values (1, 'x', '{U1}', repeat('x', 9000))");
    let event = db.change(&insert).await;
    let update = db.change("update t set a = 2").await;
    // The row of the insert is not there under that key any more.
    assert_eq!(db.sees(&event, user(U1)).await, HIDDEN);
    assert_eq!(db.sees(&update, user(U1)).await, WHOLE);
    let gone = db.change("delete from t").await;
    assert_eq!(gone.marker, Some(Marker::PayloadTooLarge));
    assert_eq!(db.judge(&gone, &[user(U1), user(U2)]).await, [WHOLE, WHOLE]);
    assert_eq!(db.sees(&update, user(U1)).await, HIDDEN);
}

#[tokio::test]
async fn without_a_key_a_reference_reaches_nobody() {
    let db = Fixture::start().await;
    db.run(
        "create table keyless(owner uuid, pad text); alter table keyless enable row level security; \
         create policy p on keyless for select to authenticated using (true); \
         create table long(id text, pad text, primary key (id)); alter table long enable row level security; \
         create policy p on long for select to authenticated using (true); \
         create table open(pad text); select anvilbase_realtime.set_table('public', 'open', realtime_public => true);",
    )
    .await;
    let nobody = no(v1::Reason::NoKey);
    for sql in [
        "insert into keyless values (null, repeat('x', 9000))",
        "update keyless set owner = null",
        "delete from keyless",
        "insert into open values (repeat('x', 9000))",
    ] {
        assert_eq!(db.seen(sql, &[user(U1)]).await, vec![nobody.clone(); 1], "{sql}");
    }
}

#[tokio::test]
async fn a_key_that_the_role_may_not_read_cannot_be_asked_for() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key, title text, pad text); alter table t enable row level security; \
         create policy p on t for select to authenticated using (true); \
         revoke select on t from authenticated; grant select (title) on t to authenticated;",
    )
    .await;
    let event = db
        .change("insert into t values (1, 'x', repeat('x', 9000))")
        .await;
    assert_eq!(db.sees(&event, user(U1)).await, no(v1::Reason::NoPrivilege));
    let small = db.change("insert into t values (2, 'x', '')").await;
    assert_eq!(
        db.sees(&small, user(U1)).await,
        Seen::Row {
            old: false,
            columns: Some(vec!["title".into()])
        }
    );
}
