//! When each listener was last heard: one that falls silent has died or is cut off, and its feeds
//! are asked for again at once instead of at their own overdue beats.
//!
//! Must never decide a loss by itself: another owner's epoch does, or the beat.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message as _;
use realtime_core::subject;
use realtime_node::backoff::jittered;
use realtime_node::bus::{Bus, Delivery};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use tokio::time::Instant;

/// A listener, which speaks twice a second, is silent when it was not heard for so long.
const SILENCE_MAX: Duration = Duration::from_millis(2_500);

/// One that was silent for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Announcements that may wait to be read.
const SUBSCRIPTION_CAPACITY: usize = 1_024;

/// Most listeners that are kept in mind; feeds of others are asked for at their beats.
const LISTENERS_MAX: usize = 1_000;

/// How long to wait before subscribing again after the bus refused.
const RESUBSCRIBE_AFTER: Duration = Duration::from_secs(1);

/// The listeners. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct Owners(Arc<Mutex<HashMap<Box<str>, Instant>>>);

impl Owners {
    /// Hears them until the process stops.
    pub fn hear(&self, bus: Bus, tasks: &Tasks) {
        let (owners, stopping) = (self.clone(), tasks.clone());
        tasks.spawn("listener roster", async move {
            tokio::select! {
                () = owners.follow(bus) => {}
                () = stopping.cancelled() => {}
            }
        });
    }

    /// When this listener counts as silent if it is not heard again; `None`: it was never heard.
    pub fn silent_at(&self, owner: &str) -> Option<Instant> {
        self.0.lock().get(owner).map(|heard| *heard + SILENCE_MAX)
    }

    async fn follow(&self, bus: Bus) {
        loop {
            match bus.subscribe(subject::LISTENERS, SUBSCRIPTION_CAPACITY).await {
                Ok(mut heard) => {
                    while let Some(delivery) = heard.next().await {
                        if let Delivery::Message(message) = delivery {
                            self.note(&message.body);
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "listeners cannot be heard"),
            }
            tokio::time::sleep(jittered(RESUBSCRIBE_AFTER)).await;
        }
    }

    fn note(&self, body: &[u8]) {
        let Ok(status) = v1::ListenerStatus::decode(body) else {
            return;
        };
        let mut heard = self.0.lock();
        if heard.len() >= LISTENERS_MAX {
            heard.retain(|_, heard| heard.elapsed() < FORGOTTEN_AFTER);
        }
        if heard.len() < LISTENERS_MAX || heard.contains_key(status.listener.as_str()) {
            heard.insert(status.listener.into(), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_listener_is_silent_some_time_after_its_last_word() {
        let owners = Owners::default();
        assert_eq!(owners.silent_at("a"), None);
        let says = || {
            let status = v1::ListenerStatus {
                listener: "a".to_owned(),
                held: 1,
                max_listeners: 2,
            };
            owners.note(&status.encode_to_vec());
        };
        says();
        let first = owners.silent_at("a").unwrap();
        assert_eq!(first, Instant::now() + SILENCE_MAX);
        tokio::time::advance(Duration::from_secs(1)).await;
        says();
        assert!(owners.silent_at("a").unwrap() > first);
        owners.note(b"no status");
        assert_eq!(owners.silent_at("b"), None);
    }
}
