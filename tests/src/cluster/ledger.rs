//! Writers that know exactly what they have committed, through a server that may be restarted under them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use realtime_node::postgres::{Dsn, PgOptions, connect};
use realtime_node::tasks::Tasks;
use tokio_postgres::Client;

use super::journal::{Change, Kind};

/// How many users own rows.
pub const USERS: usize = 4;

/// Rows of the writer `n` have ids from `n` times this on.
pub const IDS: i64 = 1_000_000_000;

/// The table, whose policy can be made to hang.
pub const SCHEMA: &str = "
    create table ledger (id bigint primary key, seq bigint not null, owner uuid not null, pad text);
    alter table ledger enable row level security;
    create schema private;
    create table private.switch (hang boolean not null);
    insert into private.switch values (false);
    create function private.awake() returns boolean language plpgsql stable security definer set search_path = '' as $$
      begin
        if (select hang from private.switch) then perform pg_catalog.pg_sleep(30); end if;
        return true;
      end $$;
    grant usage on schema private to anon, authenticated;
    create policy own on ledger for select to authenticated using (owner = auth.uid() and private.awake());
";

/// The subject of a user's token, and the owner of its rows.
pub fn user_id(user: usize) -> String {
    format!("00000000-0000-4000-8000-00000000000{user}")
}

/// A writer that runs.
pub struct Writer {
    latest: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Vec<Change>>,
}

impl Writer {
    /// Starts the writer `n`, which writes every `pace`.
    pub fn start(dsn: Dsn, n: usize, pace: Duration) -> Self {
        let (latest, stop) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicBool::new(false)));
        let work = Work {
            dsn,
            n,
            latest: Arc::clone(&latest),
            rows: VecDeque::new(),
            done: Vec::new(),
            rng: fastrand::Rng::with_seed(n as u64),
            sql: None,
        };
        let stopping = Arc::clone(&stop);
        let task = tokio::spawn(async move { work.run(&stopping, pace).await });
        Self { latest, stop, task }
    }

    /// The `seq` of its last committed change.
    pub fn latest(&self) -> i64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Writes a last row for every user, ends, and gives all that it committed.
    pub async fn finish(self) -> Vec<Change> {
        self.stop.store(true, Ordering::Release);
        self.task.await.unwrap()
    }
}

struct Work {
    dsn: Dsn,
    n: usize,
    latest: Arc<AtomicI64>,
    /// Rows that are there, with their owners.
    rows: VecDeque<(i64, usize)>,
    done: Vec<Change>,
    rng: fastrand::Rng,
    sql: Option<Client>,
}

impl Work {
    async fn run(mut self, stop: &AtomicBool, pace: Duration) -> Vec<Change> {
        let mut seq = 0;
        while !stop.load(Ordering::Acquire) {
            seq += 1;
            let change = self.choose(seq);
            self.commit(change).await;
            tokio::time::sleep(pace).await;
        }
        for owner in 0..USERS {
            seq += 1;
            let last = self.insert(seq, owner);
            self.commit(last).await;
        }
        self.done
    }

    fn insert(&self, seq: i64, owner: usize) -> Change {
        Change {
            writer: self.n,
            kind: Kind::Insert,
            id: IDS * self.n as i64 + seq,
            seq,
            owner,
        }
    }

    fn choose(&mut self, seq: i64) -> Change {
        match self.rng.u8(0..10) {
            0..3 if self.rows.len() > 20 => {
                let (id, owner) = self.rows[self.rng.usize(0..self.rows.len())];
                Change {
                    kind: Kind::Update,
                    id,
                    ..self.insert(seq, owner)
                }
            }
            3 if self.rows.len() > 20 => {
                let (id, owner) = self.rows[0];
                Change {
                    kind: Kind::Delete,
                    id,
                    ..self.insert(seq, owner)
                }
            }
            _ => {
                let owner = self.rng.usize(0..USERS);
                self.insert(seq, owner)
            }
        }
    }

    /// Commits a change, or finds out that it was not committed, however often the server goes away.
    async fn commit(&mut self, change: Change) {
        let statement = match change.kind {
            Kind::Insert => format!(
                "insert into ledger values ({}, {}, '{}', repeat('x', {}))",
                change.id,
                change.seq,
                user_id(change.owner),
                self.rng.usize(0..400)
            ),
            Kind::Update => format!("update ledger set seq = {} where id = {}", change.seq, change.id),
            Kind::Delete => format!("delete from ledger where id = {}", change.id),
        };
        let mut committed = match &self.sql {
            Some(sql) => sql.batch_execute(&statement).await.is_ok().then_some(true),
            None => Some(false),
        };
        while committed.is_none() {
            self.reconnect().await;
            committed = self.was_committed(&change).await;
        }
        if self.sql.is_none() {
            self.reconnect().await;
        }
        if committed != Some(true) {
            return;
        }
        match change.kind {
            Kind::Insert => self.rows.push_back((change.id, change.owner)),
            Kind::Update => {}
            Kind::Delete => self.rows.retain(|(id, _)| *id != change.id),
        }
        self.done.push(change);
        self.latest.store(change.seq, Ordering::Release);
    }

    async fn reconnect(&mut self) {
        loop {
            if let Ok((client, connection)) = connect(&self.dsn, &PgOptions::new("ledger writer")).await {
                Tasks::new().spawn("ledger writer", connection.drive());
                self.sql = Some(client);
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether a change whose answer was lost is there; `None` where the server went away again.
    async fn was_committed(&self, change: &Change) -> Option<bool> {
        let sql = self.sql.as_ref()?;
        let found = sql
            .query_opt("select seq from ledger where id = $1", &[&change.id])
            .await
            .ok()?;
        let seq = found.map(|row| row.get::<_, i64>(0));
        Some(match change.kind {
            Kind::Insert => seq.is_some(),
            Kind::Update => seq == Some(change.seq),
            Kind::Delete => seq.is_none(),
        })
    }
}
