//! How many verdicts one connection gives in a second. Printed, not judged: machines differ.

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
    println!("verdicts per second on one connection, 100 subjects a check: {rate:.0}");
    assert_eq!(seen.iter().filter(|verdict| **verdict == WHOLE).count(), 1);
    assert_eq!(seen[42], WHOLE);
}
