//! Facts about tables change, and verdicts with them: by the feed's position, and by age where no
//! event can tell.

use realtime_authz::LimitArgs;
use realtime_core::change::Position;
use realtime_proto::v1;

use crate::fixture::*;

const T: &str = "create table t(id int primary key, owner uuid, secret text); \
     alter table t enable row level security; \
     create policy p on t for select to authenticated using (owner = auth.uid());";

fn at(seq: u64) -> Position {
    Position { epoch: 1, seq }
}

#[tokio::test]
async fn facts_read_before_a_change_are_not_used_after_it() {
    let db = Fixture::start().await;
    db.run(T).await;
    let event = db.change(&format!("insert into t values (1, '{U1}', 'x')")).await;
    let both = [user(U1), user(U2)];
    assert_eq!(db.judge_after(&event, &both, at(1)).await, [WHOLE, HIDDEN]);
    let columns = |names: &[&str]| Seen::Row {
        old: false,
        columns: Some(names.iter().map(|name| (*name).to_owned()).collect()),
    };
    let steps = [
        ("alter policy p on t using (owner <> auth.uid())", [HIDDEN, WHOLE]),
        (
            "create policy all_in on t for select to authenticated using (true)",
            [WHOLE, WHOLE],
        ),
        ("drop policy all_in on t", [HIDDEN, WHOLE]),
        (
            "revoke select on t from authenticated",
            [no(v1::Reason::NoPrivilege), no(v1::Reason::NoPrivilege)],
        ),
        (
            "grant select (id, owner) on t to authenticated",
            [HIDDEN, columns(&["id", "owner"])],
        ),
        ("grant select on t to authenticated", [HIDDEN, WHOLE]),
        (
            "alter table t disable row level security",
            [no(v1::Reason::RlsDisabled), no(v1::Reason::RlsDisabled)],
        ),
        (
            "select anvilbase_realtime.set_table('public', 't', realtime_public => true)",
            [WHOLE, WHOLE],
        ),
        ("alter table t enable row level security", [HIDDEN, WHOLE]),
    ];
    for (step, (change, expected)) in steps.into_iter().enumerate() {
        let (before, after) = (at(step as u64 + 1), at(step as u64 + 2));
        db.run(change).await;
        // Whoever has not heard of the change, whose notice may come behind a row of the same transaction, is not told
        // more either: at most it gets nothing by what was known before.
        let unaware = db.judge_after(&event, &both, before).await;
        let nothing = unaware.iter().all(|seen| matches!(seen, Seen::No(..)));
        assert!(unaware == expected || nothing, "before: {change}: {unaware:?}");
        assert_eq!(
            db.judge_after(&event, &both, after).await,
            expected,
            "after: {change}"
        );
        // And later callers who have seen less are not taken back.
        assert_eq!(
            db.judge_after(&event, &both, at(0)).await,
            expected,
            "again: {change}"
        );
    }
}

#[tokio::test]
async fn a_column_that_was_dropped_or_renamed_is_not_shown_as_readable() {
    let db = Fixture::start().await;
    db.run(T).await;
    db.run("revoke select on t from authenticated; grant select (id, owner) on t to authenticated")
        .await;
    let event = db.change(&format!("insert into t values (1, '{U1}', 'x')")).await;
    let shown = Seen::Row {
        old: false,
        columns: Some(vec!["id".into(), "owner".into()]),
    };
    assert_eq!(db.sees(&event, user(U1)).await, shown);
    // Now the role may read every column that there is, and still not the one that was.
    db.run("alter table t drop column secret").await;
    assert_eq!(db.judge_after(&event, &[user(U1)], at(1)).await, [shown]);
}

#[tokio::test]
async fn a_column_that_the_policy_reads_and_the_image_lacks_makes_it_unreadable() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key, hidden_by uuid); alter table t enable row level security; \
         create policy p on t for select to authenticated using (hidden_by is null);",
    )
    .await;
    let event = db.change(&format!("insert into t values (1, '{U1}')")).await;
    assert_eq!(db.sees(&event, user(U1)).await, HIDDEN);
    // Under its new name the column would come out null, and the row visible.
    db.run("alter table t rename column hidden_by to blocked_by")
        .await;
    assert_eq!(
        db.judge_after(&event, &[user(U1)], at(1)).await,
        [no(v1::Reason::ImageUnreadable)]
    );
    // Also where nobody has said yet that the table has changed.
    db.run("alter table t rename column blocked_by to x").await;
    assert_eq!(
        db.judge_after(&event, &[user(U1)], at(1)).await,
        [no(v1::Reason::ImageUnreadable)]
    );
}

#[tokio::test]
async fn a_statement_that_no_longer_fits_is_made_anew() {
    let db = Fixture::start().await;
    db.run(T).await;
    let event = db.change(&format!("insert into t values (1, '{U1}', 'x')")).await;
    assert_eq!(db.sees(&event, user(U1)).await, WHOLE);
    // Not announced yet, as for a check that overtakes the announcement.
    db.run("alter table t rename to renamed; alter table renamed add column more int")
        .await;
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
    db.run("alter table renamed alter column secret type int using 1, alter column id type bigint")
        .await;
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
}

#[tokio::test]
async fn a_table_that_is_gone_or_made_anew_is_a_loss() {
    let db = Fixture::start().await;
    db.run(T).await;
    let event = db.change(&format!("insert into t values (1, '{U1}', 'x')")).await;
    assert_eq!(db.sees(&event, user(U1)).await, WHOLE);
    db.run("drop table t").await;
    db.run(T).await;
    assert_eq!(
        db.judge_after(&event, &[user(U1)], at(1)).await,
        [no(v1::Reason::ImageUnreadable)]
    );
    let event = db.change(&format!("insert into t values (1, '{U1}', 'x')")).await;
    assert_eq!(db.judge(&event, &[user(U1), user(U2)]).await, [WHOLE, HIDDEN]);
}

#[tokio::test]
async fn what_no_event_tells_is_read_again_after_a_while() {
    let db = Fixture::start_with(LimitArgs {
        facts_age_seconds: 1,
        ..limits()
    })
    .await;
    db.run(
        "create role editor; create table t(id int primary key); alter table t enable row level security; \
         create policy p on t for select to editor using (true);",
    )
    .await;
    let event = db.change("insert into t values (1)").await;
    assert_eq!(db.sees(&event, user(U1)).await, HIDDEN);
    db.run("alter role authenticated inherit; grant editor to authenticated")
        .await;
    realtime_testkit::wait::until("the membership is seen", || async {
        (db.sees(&event, user(U1)).await == WHOLE).then_some(())
    })
    .await;
}

/// In the writer's own transaction, so that no notice comes before the row: what a policy names is another function, and
/// then another table, under the same name.
#[tokio::test]
async fn a_policys_names_mean_what_they_meant_when_it_was_made() {
    let db = Fixture::start().await;
    db.run(&format!(
        "create function mine(owner uuid) returns boolean language sql stable as 'select owner = auth.uid()'; \
         create function theirs(owner uuid) returns boolean language sql stable as 'select true'; \
         create table members(who uuid); grant select on members to authenticated; \
         create table everybody(who uuid); grant select on everybody to authenticated; \
         insert into members values ('{U1}'); insert into everybody values ('{U1}'), ('{U2}'); \
         create policy p on members for select using (true); create policy p on everybody for select using (true); \
         create table t(id int primary key, owner uuid); alter table t enable row level security; \
         create policy p on t for select to authenticated using (mine(owner)); \
         create table u(id int primary key); alter table u enable row level security; \
         create policy p on u for select to authenticated using (exists (select from members m where m.who = auth.uid()))"
    ))
    .await;
    let both = [user(U1), user(U2)];
    let first = db.change(&format!("insert into t values (1, '{U1}')")).await;
    assert_eq!(db.judge(&first, &both).await, [WHOLE, HIDDEN]);
    let swapped = db
        .change(&format!(
            "begin; insert into t values (2, '{U1}'); alter function mine rename to old; \
             alter function theirs rename to mine; commit"
        ))
        .await;
    assert_eq!(db.judge(&swapped, &both).await, [WHOLE, HIDDEN]);
    let first = db.change("insert into u values (1)").await;
    assert_eq!(db.judge(&first, &both).await, [WHOLE, HIDDEN]);
    let swapped = db
        .change(
            "begin; insert into u values (2); alter table members rename to old; \
             alter table everybody rename to members; commit",
        )
        .await;
    assert_eq!(db.judge(&swapped, &both).await, [WHOLE, HIDDEN]);
}

#[tokio::test]
async fn callers_at_once_read_facts_once() {
    let db = Fixture::start().await;
    db.run(T).await;
    let event = db.change(&format!("insert into t values (1, '{U1}', 'x')")).await;
    let checks = (0..50).map(|_| db.sees(&event, user(U1)));
    for seen in futures_util::future::join_all(checks).await {
        assert_eq!(seen, WHOLE);
    }
    let text = db.metrics.encode_process().unwrap();
    assert!(
        text.contains("anvilbase_realtime_authz_facts_loads_total 1\n"),
        "{text}"
    );
}
