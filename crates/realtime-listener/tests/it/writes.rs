//! The user's write never fails because of the feed, and announces itself exactly once: random writers do the same to
//! tables of the feed and to twins without it.
//!
//! A failure names the seed; `ANVILBASE_TEST_WRITES_SEED` runs it again, `ANVILBASE_TEST_WRITES_SESSIONS` says how long.

mod expect;
mod sessions;
mod statements;
mod values;

use bytes::Bytes;
use futures_util::SinkExt as _;
use realtime_node::args::from_environment;
use tokio_postgres::{Client, SimpleQueryMessage};

use self::expect::Keys;
use self::sessions::{GRANTS, ROLES, Session};
use self::statements::Batch;
use crate::support::{Fixture, Tap};

const KINDS: &str = include_str!("writes/kinds.sql");
const TABLES: &str = include_str!("writes/tables.sql");
/// Batches of one session.
const BATCHES: usize = 12;

/// How much is tried.
#[derive(Debug, clap::Args)]
struct WritesArgs {
    /// Sessions of each encoding.
    #[arg(long, env = "ANVILBASE_TEST_WRITES_SESSIONS", default_value_t = 40)]
    sessions: usize,
    /// The seed of a run that failed.
    #[arg(long, env = "ANVILBASE_TEST_WRITES_SEED")]
    seed: Option<u64>,
}

/// Where all chance comes from.
pub struct Dice {
    rng: fastrand::Rng,
    /// The session's encoding has no other characters.
    ascii_only: bool,
    /// The database's encoding has no more than Latin characters.
    latin_only: bool,
}

/// What came of a batch: rows and counts as text, or the SQLSTATE.
type Outcome = Result<Vec<String>, String>;

#[tokio::test]
async fn random_writes_to_a_utf8_database_have_the_outcomes_they_would_have_without_the_feed() {
    try_in("UTF8", false).await;
}

#[tokio::test]
async fn random_writes_to_a_latin1_database_have_the_outcomes_they_would_have_without_the_feed() {
    try_in("LATIN1", true).await;
}

#[tokio::test]
async fn random_writes_to_a_euc_jp_database_have_the_outcomes_they_would_have_without_the_feed() {
    try_in("EUC_JP", true).await;
}

async fn try_in(encoding: &str, latin_only: bool) {
    let args: WritesArgs = from_environment().unwrap();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("ANVILBASE_TEST_WRITES_SEED={seed}");
    let fixture = Fixture::start_in(encoding).await;
    prepare(&fixture).await;
    let keys = Keys::read(&fixture).await;
    let mut tap = fixture.tap().await;
    let (mut batches, mut succeeded, mut events) = (0, 0, 0);
    for number in 0..args.sessions {
        // A seed of its own each, so that a failing session can be run first.
        let mut dice = Dice {
            rng: fastrand::Rng::with_seed(seed.wrapping_add(number as u64)),
            ascii_only: false,
            latin_only,
        };
        let session = Session::open(&fixture.pg, &mut dice).await;
        let about = format!("seed {seed}, session {number}: {}", session.is);
        for _ in 0..BATCHES {
            let batch = dice.batch();
            let announced =
                same_outcome(&fixture, &mut tap, &keys, &session, &mut dice, &batch, &about).await;
            batches += 1;
            succeeded += usize::from(announced.is_some());
            events += announced.unwrap_or_default();
        }
        same_rows(&fixture, &about).await;
    }
    println!("{encoding}: {batches} batches, {succeeded} of them succeeded, {events} events");
    assert!(
        succeeded * 3 > batches && events > batches,
        "too little was tried"
    );
}

/// The tables in both schemas, with the feed's triggers in one, and the witness on all.
async fn prepare(fixture: &Fixture) {
    fixture.run(ROLES).await;
    fixture.run(KINDS).await;
    for schema in ["public", "twin"] {
        fixture.run("set role keeper").await;
        fixture.run(&TABLES.replace("@@", schema)).await;
        if fixture.pg.major() >= 18 {
            let virtual_column = "alter table @@.every add column vg int8 generated always as (id * 2) virtual; \
                 create table @@.uuids (id uuid primary key default uuidv7(), n int not null)";
            fixture.run(&virtual_column.replace("@@", schema)).await;
        }
        fixture.run("reset role").await;
    }
    fixture.run(GRANTS).await;
    fixture
        .run(
            "do $$ declare t record; begin \
               for t in select c.oid::regclass as name, c.relispartition as leaf from pg_class c \
                 where c.relnamespace in ('public'::regnamespace, 'twin'::regnamespace) and c.relkind in ('r', 'p') \
                   and c.relname <> 'sentinel' loop \
                 if not t.leaf then execute pg_catalog.format('create trigger \"!b\" after insert or update or delete on %s \
                   for each row execute function witness.note()', t.name); end if; \
                 execute pg_catalog.format('create trigger \"!c\" after truncate on %s for each statement \
                   execute function witness.note()', t.name); \
               end loop; end $$",
        )
        .await;
    let attached = "select pg_catalog.count(*)::text from anvilbase_realtime.unattached";
    assert_eq!(fixture.text(attached).await, "0");
    let strays = "select pg_catalog.count(*)::text from anvilbase_realtime.triggers g join pg_catalog.pg_class c \
                  on c.oid = g.relation where c.relnamespace = 'twin'::regnamespace";
    assert_eq!(fixture.text(strays).await, "0");
}

/// Runs a batch in both schemas and gives the number of events, or nothing where it failed, as it must in both then.
async fn same_outcome(
    fixture: &Fixture,
    tap: &mut Tap,
    keys: &Keys,
    session: &Session,
    dice: &mut Dice,
    batch: &Batch,
    about: &str,
) -> Option<usize> {
    let twin_first = dice.chance(2);
    let order = if twin_first {
        ["twin", "public"]
    } else {
        ["public", "twin"]
    };
    let first = run(&session.client, &batch.on(order[0])).await;
    let second = run(&session.client, &batch.on(order[1])).await;
    let (ours, twins) = if twin_first {
        (second, first)
    } else {
        (first, second)
    };
    assert_eq!(ours, twins, "{about}\n{batch:?}");
    let events = expect::announced(fixture, tap, keys, &format!("{about}\n{batch:?}")).await;
    ours.is_ok().then_some(events)
}

async fn run(client: &Client, batch: &Batch) -> Outcome {
    let outcome = match batch {
        Batch::Sql(sql) => client.simple_query(sql).await.map(|messages| {
            let shown = messages.iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    let cells: Vec<_> = (0..row.len())
                        .map(|i| row.try_get(i).unwrap_or(Some("?")).unwrap_or("null"))
                        .collect();
                    Some(cells.join("|"))
                }
                SimpleQueryMessage::CommandComplete(count) => Some(format!("#{count}")),
                _ => None,
            });
            shown.collect()
        }),
        Batch::Copy(sql, data) => copy(client, sql, data)
            .await
            .map(|count| vec![format!("#{count}")]),
    };
    let outcome = outcome.map_err(|error| match error.code() {
        Some(code) => code.code().to_owned(),
        None => panic!("the session ended: {error:?}\n{batch:?}"),
    });
    // Neither an open transaction nor a prepared statement is left to the next.
    client.simple_query("rollback; deallocate all").await.unwrap();
    outcome
}

async fn copy(client: &Client, sql: &str, data: &str) -> Result<u64, tokio_postgres::Error> {
    let mut sink = Box::pin(client.copy_in(sql).await?);
    sink.send(Bytes::copy_from_slice(data.as_bytes())).await?;
    sink.as_mut().finish().await
}

/// Every table of ours holds what its twin holds.
async fn same_rows(fixture: &Fixture, about: &str) {
    let tables = fixture
        .admin
        .query(
            "select c.relname::text from pg_catalog.pg_class c where c.relnamespace = 'twin'::regnamespace \
             and c.relkind in ('r', 'p') and not c.relispartition order by 1",
            &[],
        )
        .await
        .unwrap();
    for table in tables {
        let table = realtime_node::postgres::quote_identifier(table.get(0));
        let digest = |schema: &str| {
            format!(
                "select pg_catalog.count(*) || ' ' || pg_catalog.md5(coalesce(pg_catalog.string_agg(t::text, '\n' \
                 order by t::text collate \"C\"), '')) from {schema}.{table} t"
            )
        };
        let (ours, twins) = (
            fixture.text(&digest("public")).await,
            fixture.text(&digest("twin")).await,
        );
        assert_eq!(ours, twins, "{table}: {about}");
    }
}

impl Dice {
    /// One of 0 to `limit` - 1.
    fn below(&mut self, limit: usize) -> usize {
        self.rng.usize(0..limit)
    }

    /// True once in `times`.
    fn chance(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
