//! Three ways to judge many subjects at once, each wrong in this very PostgreSQL, and ours right
//! on the same policies.

use realtime_proto::v1;
use tokio_postgres::Client;

use crate::fixture::*;

const USERS: usize = 20;

fn sub(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn claims() -> Vec<String> {
    (0..USERS)
        .map(|n| format!(r#"{{"role":"authenticated","sub":"{}"}}"#, sub(n)))
        .collect()
}

fn subjects() -> Vec<v1::Subject> {
    (0..USERS).map(|n| user(&sub(n))).collect()
}

async fn prober(db: &Fixture) -> Client {
    db.pg.connect_login(PROBER, "prober", DATABASE).await
}

/// Only the owner sees the row.
fn expected(owner: usize) -> Vec<Seen> {
    (0..USERS)
        .map(|n| if n == owner { WHOLE } else { HIDDEN })
        .collect()
}

#[tokio::test]
async fn one_statement_over_many_claims_gives_everybody_the_first_ones_verdict() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key, owner uuid); alter table t enable row level security; \
         create policy p on t for select to authenticated using (owner = (select auth.uid()));",
    )
    .await;
    let event = db
        .change(&format!("insert into t values (1, '{}')", sub(0)))
        .await;
    let prober = prober(&db).await;
    prober
        .batch_execute("begin; set local role authenticated")
        .await
        .unwrap();
    let rows = prober
        .query(
            "select set_config('request.jwt.claims', c.claims, true) is not null and exists (select from t where t.id = 1) \
             from unnest($1::text[]) as c(claims)",
            &[&claims()],
        )
        .await
        .unwrap();
    let visible = rows.iter().filter(|row| row.get(0)).count();
    assert_eq!(
        visible, USERS,
        "the form is as wrong as it was: everybody sees the first one's row"
    );
    assert_eq!(db.judge(&event, &subjects()).await, expected(0));
}

#[tokio::test]
async fn switching_roles_while_a_cursor_is_read_goes_wrong_after_ten_rows() {
    let db = Fixture::start().await;
    db.run(
        "create table t(id int primary key, role name); alter table t enable row level security; \
         create policy p on t for select to authenticated, anon using (role = current_user); \
         create table who(n int, role name); \
         insert into who select n, case when n % 2 = 0 then 'authenticated' else 'anon' end from generate_series(1, 20) n; \
         create policy a on who using (true); grant select on who to anvilbase_realtime_prober;",
    )
    .await;
    let event = db.change("insert into t values (1, 'anon')").await;
    let prober = prober(&db).await;
    // A policy-protected source of the loop's rows: from the second fetch on the cursor runs as another role.
    prober
        .batch_execute(
            "begin; create function pg_temp.judge() returns setof boolean language plpgsql as $$ \
             declare w record; begin \
               for w in select n, role, current_user as seen_as from public.who loop \
                 perform set_config('role', w.role, true); return next w.seen_as = session_user; \
               end loop; end $$",
        )
        .await
        .unwrap();
    let rows = prober.query("select * from pg_temp.judge()", &[]).await.unwrap();
    let wrong = rows.iter().position(|row| !row.get::<_, bool>(0));
    assert_eq!(
        wrong,
        Some(10),
        "the form is as wrong as it was: the cursor's later rows run as another role"
    );
    let mixed: Vec<v1::Subject> = (0..USERS)
        .map(|n| if n % 2 == 0 { anon() } else { user(&sub(n)) })
        .collect();
    let expected: Vec<Seen> = (0..USERS)
        .map(|n| if n % 2 == 0 { WHOLE } else { HIDDEN })
        .collect();
    assert_eq!(db.judge(&event, &mixed).await, expected);
}

#[tokio::test]
async fn a_loop_that_is_not_rolled_back_keeps_what_a_helper_memoised() {
    let db = Fixture::start().await;
    db.run(
        "create function me() returns uuid language plpgsql stable as $$ begin \
           if coalesce(current_setting('app.me', true), '') = '' then \
             perform set_config('app.me', auth.uid()::text, true); \
           end if; \
           return current_setting('app.me')::uuid; end $$; \
         create table t(id int primary key, owner uuid); alter table t enable row level security; \
         create policy p on t for select to authenticated using (owner = me());",
    )
    .await;
    let event = db
        .change(&format!("insert into t values (1, '{}')", sub(0)))
        .await;
    let prober = prober(&db).await;
    prober
        .batch_execute(
            "create function pg_temp.judge(claims text[]) returns setof boolean language plpgsql as $$ \
             declare c text; v boolean; begin \
               foreach c in array claims loop \
                 perform set_config('request.jwt.claims', c, true); \
                 select exists (select from public.t where id = 1) into v; return next v; \
               end loop; end $$; \
             begin; set local role authenticated",
        )
        .await
        .unwrap();
    let rows = prober
        .query("select * from pg_temp.judge($1)", &[&claims()])
        .await
        .unwrap();
    let visible = rows.iter().filter(|row| row.get(0)).count();
    assert_eq!(
        visible, USERS,
        "the form is as wrong as it was: everybody is the first one"
    );
    assert_eq!(db.judge(&event, &subjects()).await, expected(0));
    // Nor does the memory last from one check to the next, on the same connection.
    let event = db
        .change(&format!("insert into t values (2, '{}')", sub(5)))
        .await;
    assert_eq!(db.judge(&event, &subjects()).await, expected(5));
}
