//! Policies: on random tables, policies, rows and claims, what authz says of an event must be what
//! PostgreSQL shows the same role, with the same claims, of the same row.
//!
//! The row is written, its event is taken from the feed's own trigger, and the role is asked for the
//! row in a transaction of its own. Of an UPDATE the role is asked before for the old row and after for
//! the new one.
//!
//! Each run draws new cases and prints its seed: `ANVILBASE_ORACLE_SEED` repeats it.

mod random;
mod world;

use anyhow::{Result, ensure};
use realtime_core::change::{ChangeEvent, Operation};
use realtime_tests::random::Random;

use random::Table;
use world::{Answer, SUBJECTS, World};

const TABLES: usize = 24;
const INSERTS: usize = 8;
const UPDATES: usize = 8;

#[derive(Debug, Default)]
struct Tally {
    visible: usize,
    hidden: usize,
    errors: usize,
    old_visible: usize,
    old_withheld: usize,
    other_order: usize,
}

#[tokio::test]
async fn policies_judge_as_postgresql_does() -> Result<()> {
    let random = Random::new()?;
    let mut rng = random.rng();
    let tables = TABLES * random.scale;
    let mut world = World::start().await?;
    let mut tally = Tally::default();
    for number in 0..tables {
        let table = Table::random(&mut rng, number);
        world.run(&table.ddl()).await?;
        for id in 0..INSERTS {
            let event = world.change(&table.insert(&mut rng, id)).await?;
            let answers = world.ask(&table, id).await?;
            compare(&world, &table, &event, &answers, None, &mut tally).await?;
        }
        for _ in 0..UPDATES {
            let id = rng.usize(0..INSERTS);
            let before = world.ask(&table, id).await?;
            let event = world.change(&table.update(&mut rng, id)).await?;
            let after = world.ask(&table, id).await?;
            compare(&world, &table, &event, &after, Some(&before), &mut tally).await?;
        }
    }
    println!("{tally:?}");
    let cases = tables * (INSERTS + 2 * UPDATES) * SUBJECTS.len();
    println!("{cases} questions");
    // Else the random policies say nothing.
    for (what, count) in [
        ("visible", tally.visible),
        ("hidden", tally.hidden),
        ("errors", tally.errors),
        ("old_visible", tally.old_visible),
    ] {
        ensure!(count * 200 > cases, "only {count} of {cases} were {what}");
    }
    ensure!(
        tally.other_order * 10 < cases,
        "too many differences of order: {tally:?}"
    );
    ensure!(
        tally.old_withheld * 3 < tally.old_visible,
        "too many old rows withheld: {tally:?}"
    );
    Ok(())
}

async fn compare(
    world: &World,
    table: &Table,
    event: &ChangeEvent,
    new: &[Answer],
    old: Option<&[Answer]>,
    tally: &mut Tally,
) -> Result<()> {
    let verdicts = world.judge(event).await?;
    for (at, (verdict, expected)) in verdicts.iter().zip(new).enumerate() {
        let told = || {
            format!(
                "{}\nsubject {}\nevent {:?}\nexpected {expected:?}, got {verdict:?}",
                table.ddl(),
                SUBJECTS[at],
                images(event)
            )
        };
        if verdict.new != *expected {
            // PostgreSQL promises no order among a condition's parts, and its planner may try one that
            // is never reached: one that raises may do so or not. What is seen and what is not, they
            // must agree on.
            let raised = [&verdict.new, expected]
                .into_iter()
                .any(|answer| matches!(answer, Answer::Error(_)));
            ensure!(raised && table.has_parts(), "new row: {}", told());
            tally.other_order += 1;
            continue;
        }
        match expected {
            Answer::Visible => tally.visible += 1,
            Answer::Hidden => tally.hidden += 1,
            Answer::Error(_) => tally.errors += 1,
        }
        let Some(before) = old.map(|old| &old[at]) else {
            continue;
        };
        if *expected != Answer::Visible {
            continue;
        }
        let shown = *before == Answer::Visible;
        // Of a row that is gone nobody can ask whether its null was a JSON null: then it is not shown.
        if shown && !verdict.old && event.operation == Operation::Update && table.may_withhold(event) {
            tally.old_withheld += 1;
            continue;
        }
        ensure!(verdict.old == shown, "old row, {before:?}: {}", told());
        tally.old_visible += usize::from(shown);
    }
    Ok(())
}

/// Made-up data: may be shown, and is what one needs to understand a difference.
fn images(event: &ChangeEvent) -> (Option<&str>, Option<&str>) {
    (
        event.new.as_ref().map(|row| row.text()),
        event.old.as_ref().map(|row| row.text()),
    )
}
