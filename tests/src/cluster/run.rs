//! A cluster under continuous writes, faults done to it, and the account at the end.

use std::fmt;
use std::time::{Duration, Instant};

use super::faults::{Fault, inject};
use super::journal::{Account, Reader, account};
use super::ledger::{SCHEMA, USERS, Writer};
use super::subscriber::Subscriber;
use super::{Cluster, Options};

/// How long after a fault every subscriber must be getting changes again.
pub const RECOVERY_MAX: Duration = Duration::from_secs(15);

/// Writers, subscribers and the cluster between them.
pub struct Run {
    /// The cluster.
    pub cluster: Cluster,
    writers: Vec<Writer>,
    subscribers: Vec<Subscriber>,
    faults: Vec<(Fault, Duration)>,
}

/// What became of all changes and all subscribers.
#[derive(Debug, Default)]
pub struct Totals {
    /// Changes that were committed.
    pub written: usize,
    /// The accounts of all subscribers together.
    pub account: Account,
    /// Faults, and how long each took to be overcome once its cause was gone.
    pub faults: Vec<(Fault, Duration)>,
}

impl Run {
    /// Starts a cluster, subscribers of every user and of the service role at every gateway, and
    /// writers that write every `pace`.
    pub async fn start(options: Options, writers: usize, pace: Duration) -> Self {
        let cluster = Cluster::start(options).await;
        let sql = cluster.postgres.connect("postgres").await;
        sql.batch_execute(SCHEMA).await.unwrap();
        let ports: Vec<_> = cluster.gateways.iter().map(|gateway| gateway.port).collect();
        let readers = (0..USERS).map(Reader::User).chain([Reader::Service]);
        let mut subscribers: Vec<_> = readers
            .flat_map(|reader| (0..ports.len()).map(move |first| (reader, first)))
            .map(|(reader, first)| Subscriber::start(reader, ports.clone(), first))
            .collect();
        for subscriber in &mut subscribers {
            subscriber.live().await;
        }
        let dsn = cluster.postgres.superuser_dsn("postgres");
        let writers = (0..writers)
            .map(|n| Writer::start(dsn.clone(), n, pace))
            .collect();
        let mut run = Self {
            cluster,
            writers,
            subscribers,
            faults: Vec::new(),
        };
        run.flows(Duration::from_secs(30)).await.expect("changes flow");
        run
    }

    /// Does something to the cluster and waits until every subscriber gets new changes of every writer.
    ///
    /// # Panics
    /// That takes longer than [`RECOVERY_MAX`].
    pub async fn suffer(&mut self, fault: Fault) {
        inject(&mut self.cluster, fault).await;
        match self.flows(RECOVERY_MAX).await {
            Ok(took) => {
                println!("{fault:?}: changes flow again after {took:.2?}");
                self.faults.push((fault, took));
            }
            Err(reader) => {
                for service in self.cluster.services() {
                    println!("--- metrics of {}\n{}", service.name, service.metrics().await);
                }
                panic!("{fault:?}: {reader:?} gets nothing after {RECOVERY_MAX:?}")
            }
        }
    }

    /// Waits until every subscriber has seen changes that are committed from now on.
    async fn flows(&mut self, deadline: Duration) -> Result<Duration, Reader> {
        let since = Instant::now();
        let seqs: Vec<_> = self.writers.iter().map(Writer::latest).collect();
        for subscriber in &mut self.subscribers {
            if !subscriber
                .passes(&seqs, deadline.saturating_sub(since.elapsed()))
                .await
            {
                return Err(subscriber.reader);
            }
        }
        Ok(since.elapsed())
    }

    /// Ends the writers, waits for their last rows, and holds what was seen against what was committed.
    pub async fn finish(mut self) -> Totals {
        let mut before_last = Vec::new();
        let mut changes = Vec::new();
        for writer in self.writers.drain(..) {
            let done = writer.finish().await;
            // Its last rows, one for each user.
            before_last.push(done[done.len() - USERS].seq - 1);
            changes.push(done);
        }
        for subscriber in &mut self.subscribers {
            let complete = subscriber.passes(&before_last, RECOVERY_MAX).await;
            assert!(complete, "{:?} does not get the last rows", subscriber.reader);
        }
        let mut totals = Totals {
            written: changes.iter().map(Vec::len).sum(),
            faults: self.faults,
            ..Totals::default()
        };
        for subscriber in self.subscribers {
            let reader = subscriber.reader;
            let (seen, notices) = subscriber.finish();
            let one = account(&changes, reader, &seen);
            if !one.wrong.is_empty() {
                println!("{reader:?}: notices {notices:?}");
            }
            let sum = &mut totals.account;
            sum.expected += one.expected;
            sum.delivered += one.delivered;
            sum.announced += one.announced;
            sum.holes += one.holes;
            sum.wrong
                .extend(one.wrong.into_iter().map(|what| format!("{reader:?}: {what}")));
        }
        self.cluster.stop().await;
        totals
    }
}

impl Totals {
    /// # Panics
    /// Something was seen that must not be, or is missing without notice; or the faults left nothing to see.
    pub fn assert_accounted(&self) {
        println!("{self}");
        assert!(self.account.wrong.is_empty(), "{}", self.account.wrong.join("\n"));
        assert!(
            self.account.delivered * 4 > self.account.expected,
            "hardly anything was delivered"
        );
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slowest = self
            .faults
            .iter()
            .map(|(_, took)| *took)
            .max()
            .unwrap_or_default();
        write!(
            f,
            "faults {}, slowest recovery {slowest:.2?}; changes written {}, to be seen {}, delivered {}, announced as missing {}, \
             notices {}, unaccounted for {}",
            self.faults.len(),
            self.written,
            self.account.expected,
            self.account.delivered,
            self.account.announced,
            self.account.holes,
            self.account.wrong.len()
        )
    }
}
