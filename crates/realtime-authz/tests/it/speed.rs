//! How many verdicts one connection gives in a second, beside what plain SQL gives in the same run.
//! Printed, not judged: machines differ.

use std::time::Instant;

use realtime_authz::LimitArgs;

use crate::fixture::*;

#[tokio::test]
async fn a_hundred_subjects_on_one_connection() {
    let db = Fixture::start_with(LimitArgs {
        query_pool_size: 1,
        ..limits()
    })
    .await;
    db.run(
        "create table t(id int primary key, owner uuid, title text, meta jsonb); alter table t enable row level security; \
         create policy p on t for select to authenticated using (owner = (select auth.uid()));",
    )
    .await;
    let subjects: Vec<_> = (0..100)
        .map(|n| user(&format!("00000000-0000-4000-8000-{n:012}")))
        .collect();
    let event = db
        .change("insert into t values (1, '00000000-0000-4000-8000-000000000042', 'x', '{}')")
        .await;
    let rounds = 50;
    let mut seen = db.judge(&event, &subjects).await;
    let started = Instant::now();
    for _ in 0..rounds {
        seen = db.judge(&event, &subjects).await;
    }
    let rate = f64::from(rounds) * 100.0 / started.elapsed().as_secs_f64();
    let peer = one_after_another(&db, &subjects).await;
    println!(
        "verdicts per second on one connection, 100 subjects a check: {rate:.0}; plain transactions: {peer:.0}"
    );
    assert_eq!(seen.iter().filter(|verdict| **verdict == WHOLE).count(), 1);
    assert_eq!(seen[42], WHOLE);
}

/// The same question as REST would ask it: a look-up by key, each step a round trip of its own.
async fn one_after_another(db: &Fixture, subjects: &[realtime_proto::v1::Subject]) -> f64 {
    let client = db.pg.connect_login(PROBER, "prober", DATABASE).await;
    let subject = "select set_config('role', $1, true), set_config('request.jwt.claims', $2, true)";
    let subject = client.prepare(subject).await.unwrap();
    client
        .batch_execute("begin; set local role authenticated")
        .await
        .unwrap();
    let look_up = client
        .prepare("select exists (select from t where id = 1)")
        .await
        .unwrap();
    client.batch_execute("rollback").await.unwrap();
    let rounds = 10;
    let started = Instant::now();
    for _ in 0..rounds {
        let mut visible = 0;
        for one in subjects {
            client.batch_execute("begin").await.unwrap();
            client
                .execute(&subject, &[&one.role, &one.claims_json])
                .await
                .unwrap();
            visible += usize::from(client.query_one(&look_up, &[]).await.unwrap().get::<_, bool>(0));
            client.batch_execute("rollback").await.unwrap();
        }
        assert_eq!(visible, 1);
    }
    f64::from(rounds) * subjects.len() as f64 / started.elapsed().as_secs_f64()
}
