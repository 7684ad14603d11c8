//! Policies judged on the event's own images.

use realtime_proto::v1;
use serde_json::json;

use crate::fixture::*;

const NOTES: &str = "create table notes(id bigint primary key, owner uuid, room int, title text, done bool, \
     amount numeric(20,4), at timestamptz, tags text[], meta jsonb); \
     alter table notes enable row level security; \
     create policy own on notes for select to authenticated using (owner = auth.uid());";

#[tokio::test]
async fn new_and_old_are_judged_apart() {
    let db = Fixture::start().await;
    db.run(NOTES).await;
    let both = [user(U1), user(U2), anon()];
    let inserted = db
        .seen(
            &format!("insert into notes(id, owner, title) values (1, '{U1}', 'draft')"),
            &both,
        )
        .await;
    assert_eq!(inserted, [WHOLE, HIDDEN, HIDDEN]);
    // Over the boundary: the one who loses the row gets nothing, the one who gains it no old row.
    let moved = db
        .seen(&format!("update notes set owner = '{U2}', title = 'x'"), &both)
        .await;
    assert_eq!(moved, [HIDDEN, WHOLE, HIDDEN]);
    let kept = db.seen("update notes set title = 'y'", &both).await;
    assert_eq!(kept, [HIDDEN, WHOLE_OLD, HIDDEN]);
    let deleted = db.seen("delete from notes", &both).await;
    // Only the key is shown of a deleted row, by whoever cuts it; nobody can be asked any more.
    assert_eq!(deleted, [WHOLE, WHOLE, WHOLE]);
}

#[tokio::test]
async fn the_row_as_it_was_is_judged_not_the_row_as_it_is() {
    let db = Fixture::start().await;
    db.run(NOTES).await;
    let draft = db
        .change(&format!(
            "insert into notes(id, owner, title) values (1, '{U1}', 'draft')"
        ))
        .await;
    db.run(&format!("update notes set owner = '{U2}'")).await;
    // The later owner must not be shown the former one's draft, and the former one is shown it.
    assert_eq!(db.judge(&draft, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
    db.run("delete from notes").await;
    assert_eq!(db.judge(&draft, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
}

#[tokio::test]
async fn json_null_is_not_sql_null() {
    let db = Fixture::start().await;
    db.run(
        "create table n(id int primary key, meta jsonb, other json); alter table n enable row level security; \
         create policy p on n for select to authenticated using (meta is null); \
         create table keyless(meta jsonb); alter table keyless enable row level security; \
         create policy p on keyless for select to authenticated using (meta is null);",
    )
    .await;
    // Both print `null`; only the second is null.
    let json_null = db.change("insert into n values (1, 'null', 'null')").await;
    assert_eq!(json_null.new.as_ref().unwrap().get("meta").unwrap(), Some("null"));
    assert_eq!(db.sees(&json_null, user(U1)).await, HIDDEN);
    let sql_null = db.change("insert into n values (2, null, null)").await;
    assert_eq!(db.sees(&sql_null, user(U1)).await, WHOLE);
    // Without a key there is nobody to ask: hidden, both of them.
    for value in ["'null'", "null"] {
        let event = db.change(&format!("insert into keyless values ({value})")).await;
        assert_eq!(db.sees(&event, user(U1)).await, HIDDEN, "{value}");
    }
    // The row before is asked for in vain: it is hidden as long as it may have been hidden.
    let update = db.change("update n set meta = null where id = 1").await;
    assert_eq!(db.sees(&update, user(U1)).await, WHOLE);
}

#[tokio::test]
async fn a_json_null_that_no_policy_minds_takes_nothing_away() {
    let db = Fixture::start().await;
    db.run(
        "create table keyless(owner uuid, meta jsonb, more jsonb); alter table keyless enable row level security; \
         create policy p on keyless for select to authenticated \
           using (owner = auth.uid() or meta ->> 'public' = 'yes' or jsonb_array_length(more) > 3);",
    )
    .await;
    // Read both ways, the policy says the same; and where one way raises an error, it is not held against the row.
    let event = db
        .change(&format!("insert into keyless values ('{U1}', null, '[]')"))
        .await;
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
    let event = db.change("update keyless set more = '[1]'").await;
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE_OLD, HIDDEN]);
}

#[tokio::test]
async fn one_way_that_raises_does_not_silence_the_other() {
    let db = Fixture::start().await;
    db.run(
        "create table n(id int primary key, owner uuid, more jsonb); alter table n enable row level security; \
         create policy p on n for select to authenticated \
           using (case when owner = auth.uid() then coalesce(jsonb_array_length(more), 0) = 0 end);",
    )
    .await;
    // 22023 for a JSON null, which it is not.
    let event = db
        .change(&format!("insert into n values (1, '{U1}', null)"))
        .await;
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
}

#[tokio::test]
async fn a_cast_to_json_does_not_stand_for_the_value() {
    let db = Fixture::start().await;
    db.run(
        "create type mood as enum ('public', 'secret'); \
         create function mood_json(mood) returns json language sql immutable as $$ select '\"public\"'::json $$; \
         create cast (mood as json) with function mood_json(mood); \
         create table m(id int primary key, mood mood, owner uuid); alter table m enable row level security; \
         create policy p on m for select to authenticated using (mood = 'public'); \
         create table o(id int primary key, mood mood, owner uuid); alter table o enable row level security; \
         create policy p on o for select to authenticated using (owner = auth.uid());",
    )
    .await;
    let secret = db.change("insert into m values (1, 'secret', null)").await;
    assert_eq!(
        secret.new.as_ref().unwrap().get("mood").unwrap(),
        Some("\"public\"")
    );
    assert_eq!(db.sees(&secret, user(U1)).await, HIDDEN);
    assert_eq!(
        db.seen("insert into m values (2, 'public', null)", &[user(U1)])
            .await,
        [WHOLE]
    );
    // Of the row before, nothing but its false image is left.
    assert_eq!(
        db.seen("update m set mood = 'public' where id = 1", &[user(U1)])
            .await,
        [WHOLE]
    );
    // A policy that does not look at it is judged as ever.
    let insert = format!("insert into o values (1, 'secret', '{U1}')");
    assert_eq!(db.seen(&insert, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
}

#[tokio::test]
async fn an_image_that_cannot_become_a_row_is_a_loss() {
    let db = Fixture::start().await;
    db.run(
        r#"create table j(id int primary key, j json, owner uuid); alter table j enable row level security;
           create policy p on j for select to authenticated using (j ->> 'a' = 'x');
           create table k(id int primary key, j json, owner uuid); alter table k enable row level security;
           create policy p on k for select to authenticated using (owner = auth.uid());
           create table w(id int primary key, j json, owner uuid); alter table w enable row level security;
           create policy p on w for select to authenticated using (w.* is not null and owner = auth.uid());"#,
    )
    .await;
    let unreadable = no(v1::Reason::ImageUnreadable);
    let broken = r#"'{"a":"\u0000"}'"#;
    let event = db
        .change(&format!("insert into j values (1, {broken}, '{U1}')"))
        .await;
    assert_eq!(
        db.judge(&event, &[user(U1), user(U2)]).await,
        [unreadable.clone(), unreadable.clone()]
    );
    let event = db
        .change(&format!("insert into w values (1, {broken}, '{U1}')"))
        .await;
    assert_eq!(db.sees(&event, user(U1)).await, unreadable);
    // Where no policy looks at the column, it is in nobody's way.
    let event = db
        .change(&format!("insert into k values (1, {broken}, '{U1}')"))
        .await;
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
}

#[tokio::test]
async fn policies_may_look_at_rows_as_a_whole() {
    let db = Fixture::start().await;
    db.run(
        r#"create table "Dócs"(id int primary key, owner uuid, "Dócs" text);
           create function mine(d "Dócs") returns boolean language sql stable as $$ select d.owner = auth.uid() $$;
           alter table "Dócs" enable row level security;
           create policy p on "Dócs" for select to authenticated using (mine("Dócs".*) and "Dócs" <> 'hidden');"#,
    )
    .await;
    let insert = |id, word| format!(r#"insert into "Dócs" values ({id}, '{U1}', '{word}')"#);
    assert_eq!(
        db.seen(&insert(1, "shown"), &[user(U1), user(U2)]).await,
        [WHOLE, HIDDEN]
    );
    assert_eq!(db.seen(&insert(2, "hidden"), &[user(U1)]).await, [HIDDEN]);
}

#[tokio::test]
async fn policies_may_ask_other_tables_and_helpers() {
    let db = Fixture::start().await;
    db.run(
        "create table members(u uuid, room int); alter table members enable row level security; \
         create policy own on members for select to authenticated using (u = auth.uid()); \
         create table msgs(id int primary key, room int, org text); alter table msgs enable row level security; \
         create policy a on msgs for select to authenticated \
           using (exists (select from members m where m.room = msgs.room)); \
         create policy b on msgs for select to authenticated \
           using (org = (select auth.jwt() -> 'app_metadata' ->> 'org')); \
         create schema private; create table private.vips(u uuid); \
         create function private.is_vip() returns boolean language sql stable security definer \
           set search_path = '' as $$ select exists (select from private.vips v where v.u = auth.uid()) $$; \
         create table vip(id int primary key); alter table vip enable row level security; \
         create policy p on vip for select to authenticated using (private.is_vip());",
    )
    .await;
    db.run(&format!(
        "insert into members values ('{U1}', 7), ('{U2}', 8); insert into private.vips values ('{U2}')"
    ))
    .await;
    let both = [user(U1), user(U2)];
    assert_eq!(
        db.seen("insert into msgs values (1, 7)", &both).await,
        [WHOLE, HIDDEN]
    );
    let event = db.change("insert into msgs values (2, 8)").await;
    assert_eq!(db.judge(&event, &both).await, [HIDDEN, WHOLE]);
    db.run(&format!("delete from members where u = '{U2}'")).await;
    assert_eq!(db.judge(&event, &both).await, [HIDDEN, HIDDEN]);
    let acme = subject(json!({"role": "authenticated", "sub": U1, "app_metadata": {"org": "acme"}}));
    assert_eq!(
        db.seen("insert into msgs values (3, 9, 'acme')", &[acme, user(U1)])
            .await,
        [WHOLE, HIDDEN]
    );
    // The role has no USAGE on the helper's schema, as it needs none in a policy.
    assert_eq!(
        db.seen("insert into vip values (1)", &both).await,
        [HIDDEN, WHOLE]
    );
}

/// Where it can be told by nobody, it is told to nobody: PostgreSQL looks names up again, as the role,
/// where a statement also reads a table under row security.
#[tokio::test]
async fn a_helper_out_of_the_roles_reach_beside_another_protected_table_fails_closed() {
    let db = Fixture::start().await;
    db.run(
        "create table members(u uuid, room int); alter table members enable row level security; \
         create policy own on members for select to authenticated using (u = auth.uid()); \
         create schema private; create function private.yes() returns boolean language sql stable as 'select true'; \
         create table t(id int primary key, room int); alter table t enable row level security; \
         create policy p on t for select to authenticated \
           using (private.yes() and exists (select from members m where m.room = t.room));",
    )
    .await;
    db.run(&format!("insert into members values ('{U1}', 7)")).await;
    let event = db.change("insert into t values (1, 7)").await;
    assert_eq!(
        db.judge(&event, &[user(U1), user(U2)]).await,
        vec![policy_error("42501"); 2]
    );
    // The remedy: the role may name the helper, whether or not it may call it by itself.
    db.run("grant usage on schema private to authenticated").await;
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
}

#[tokio::test]
async fn an_error_about_the_row_before_does_not_hide_the_row_after() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key, owner uuid, n int); alter table t enable row level security; \
         create policy p on t for select to authenticated \
           using (case when n = 0 then (1 / n) > 0 else owner = auth.uid() end);",
    )
    .await;
    db.run(&format!("insert into t values (1, '{U1}', 0)")).await;
    let both = [user(U1), user(U2)];
    assert_eq!(db.seen("update t set n = 1", &both).await, [WHOLE, HIDDEN]);
    assert_eq!(db.seen("update t set n = 2", &both).await, [WHOLE_OLD, HIDDEN]);
    assert_eq!(
        db.seen("update t set n = 0", &both).await,
        vec![policy_error("22012"); 2]
    );
}

#[tokio::test]
async fn values_of_many_types_come_back_as_they_were() {
    let db = Fixture::start().await;
    db.run(
        r#"create schema "My Types";
           create type "My Types"."OrderState" as enum ('New', 'Do"ne');
           create type "My Types".pair as (a int, "B" text);
           create domain positive as int not null check (value > 0);"#,
    )
    .await;
    let columns = [
        ("b", "bool", "true"),
        ("i", "bigint", "9007199254740993"),
        ("n", "numeric", "1e-20"),
        ("nan", "numeric", "'NaN'"),
        ("f", "float8", "0.1::float8 + 0.2"),
        ("f4", "float4", "'1.1'"),
        ("inf", "float8", "'-Infinity'"),
        ("m", "money", "'-1234.56'"),
        ("t", "text", r#"E'a"b\\c\nd\te\u00fc'"#),
        ("c", "char(5)", "'ab'"),
        ("v", "varchar(3)", "'x y'"),
        ("by", "bytea", r"'\x00ff'"),
        ("d", "date", "'0044-03-15 BC'"),
        ("ts", "timestamp", "'2026-06-04 10:00:00.123456'"),
        ("tz", "timestamptz", "'infinity'"),
        ("iv", "interval", "'-1 day -02:03:04.5'"),
        ("u", "uuid", "'00000000-0000-4000-8000-00000000000a'"),
        ("ip", "inet", "'10.0.0.1/8'"),
        ("e", r#""My Types"."OrderState""#, r#"'Do"ne'"#),
        (
            "ea",
            r#""My Types"."OrderState"[]"#,
            r#"array['New', 'Do"ne']::"My Types"."OrderState"[]"#,
        ),
        ("p", r#""My Types".pair"#, r#"row(1, 'x"y')"#),
        (
            "pa",
            r#""My Types".pair[]"#,
            r#"array[row(1, 'x'), row(null, null)]::"My Types".pair[]"#,
        ),
        ("dom", "positive", "5"),
        ("a2", "int[]", "'{{1,2},{3,null}}'"),
        ("ta", "text[]", r#"array['null', null, '', '{}']"#),
        ("r", "int4range", "'[1,5)'"),
        ("tr", "tstzrange", "'[2026-01-01, infinity)'"),
        ("jb", "jsonb", r#"'{"a": [1, null, "x"]}'"#),
        ("bits", "bit(3)", "'101'"),
        ("x", "xml", "'<a>b</a>'"),
        ("pt", "point", "'(1,2)'"),
    ];
    let has_xml = db.pg.can("select '<a/>'::xml").await;
    for (at, (name, kind, value)) in columns.iter().enumerate() {
        if *kind == "xml" && !has_xml {
            continue;
        }
        let table = format!(r#""Tä""ble {at}""#);
        // Compared as text where the type knows no equality.
        let condition = match *name {
            "pt" | "x" => format!(r#""{name}"::text = ({value})::{kind}::text"#),
            _ => format!(r#""{name}" = ({value})::{kind}"#),
        };
        db.run(&format!(
            r#"create table {table}("Id" int primary key, "{name}" {kind}, dom2 positive);
               alter table {table} enable row level security;
               create policy p on {table} for select to authenticated using ({condition});"#
        ))
        .await;
        let seen = db
            .seen(
                &format!("insert into {table} values (1, {value}, 1)"),
                &[user(U1), anon()],
            )
            .await;
        assert_eq!(seen, [WHOLE, HIDDEN], "{name} {kind} {value}");
    }
}

#[tokio::test]
async fn restrictive_policies_narrow_what_permissive_ones_admit() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key, a int); alter table t enable row level security; \
         create policy lid on t as restrictive for select to authenticated using (a < 10);",
    )
    .await;
    // Restrictive ones alone admit nothing.
    assert_eq!(
        db.seen("insert into t values (1, 1)", &[user(U1)]).await,
        [HIDDEN]
    );
    db.run("create policy odd on t for all to authenticated using (a % 2 = 1); create policy five on t using (a = 5 or a = 50)").await;
    db.run("create policy writers on t for insert to anon with check (true)")
        .await;
    let db = &db;
    let after = realtime_core::change::Position { epoch: 1, seq: 1 };
    for (a, expected) in [
        (1, [WHOLE, HIDDEN]),
        (2, [HIDDEN, HIDDEN]),
        (11, [HIDDEN, HIDDEN]),
        (5, [WHOLE, WHOLE]),
        (50, [HIDDEN, WHOLE]),
    ] {
        let event = db
            .change(&format!("insert into t values ({}, {a})", a + 100))
            .await;
        assert_eq!(
            db.judge_after(&event, &[user(U1), anon()], after).await,
            expected,
            "{a}"
        );
    }
}

#[tokio::test]
async fn a_policy_over_system_columns_asks_the_row_itself() {
    let db = Fixture::start().await;
    db.run(
        "create table s(id int primary key, a int); alter table s enable row level security; \
         create policy p on s for select to authenticated using (a = 1 and tableoid = 's'::regclass); \
         create table keyless(a int); alter table keyless enable row level security; \
         create policy p on keyless for select to authenticated using (xmin is not null);",
    )
    .await;
    assert_eq!(db.seen("insert into s values (1, 1)", &[user(U1)]).await, [WHOLE]);
    assert_eq!(
        db.seen("insert into s values (2, 2)", &[user(U1)]).await,
        [HIDDEN]
    );
    assert_eq!(
        db.seen("insert into keyless values (2)", &[user(U1)]).await,
        [no(v1::Reason::NoKey)]
    );
}

#[tokio::test]
async fn a_name_in_the_search_path_does_not_take_a_built_in_ones_place() {
    let db = Fixture::start().await;
    db.run(
        "create table h(id int primary key, a int); alter table h enable row level security; \
         create policy p on h for select to authenticated using (array_position(array[1, 2], a) is not null); \
         create function public.array_position(int[], int) returns int language sql immutable as 'select 1';",
    )
    .await;
    assert_eq!(
        db.seen("insert into h values (1, 3)", &[user(U1)]).await,
        [HIDDEN]
    );
    assert_eq!(db.seen("insert into h values (2, 2)", &[user(U1)]).await, [WHOLE]);
}
