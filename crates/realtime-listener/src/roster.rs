//! Which listeners there are and how much each holds: every replica says so, and hears the others.
//!
//! For evenness: who holds clearly more than another leaves the queue group until that has changed.
//! Gateways hear it too, and look for another owner as soon as one has fallen silent. Must never
//! keep everybody out of the group: whoever holds least is always in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message as _;
use realtime_core::subject;
use realtime_node::backoff::jittered;
use realtime_node::bus::{Bus, BusError, Delivery};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::ListenerConfig;
use crate::slots::Slots;

/// How often a replica says what it holds; also at once when that changes.
pub const ANNOUNCE_EVERY: Duration = Duration::from_millis(500);

/// A replica that has not been heard for so long is not counted on.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// So many projects more than another's are no reason to leave the group.
const SLACK: u32 = 1;

/// Announcements that may wait to be read.
const SUBSCRIPTION_CAPACITY: usize = 1_024;

/// Most replicas that are kept in mind; beyond them evenness is given up, and nothing else.
const REPLICAS_MAX: usize = 1_000;

/// How long to wait before subscribing again after the bus refused.
const RESUBSCRIBE_AFTER: Duration = Duration::from_secs(1);

/// The other replicas. Cloning shares it.
#[derive(Clone)]
pub struct Roster(Arc<Inner>);

struct Inner {
    others: Mutex<HashMap<String, Other>>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Other {
    held: u32,
    has_room: bool,
    heard: Instant,
}

impl Roster {
    /// Starts to announce what `slots` hold, and to hear the others.
    ///
    /// # Errors
    /// The bus refuses the subscription.
    pub async fn start(
        bus: &Bus,
        slots: &Slots,
        config: &Arc<ListenerConfig>,
        tasks: &Tasks,
    ) -> Result<Self, BusError> {
        let roster = Self(Arc::new(Inner {
            others: Mutex::default(),
            changes: watch::Sender::new(0),
        }));
        let heard = bus.subscribe(subject::LISTENERS, SUBSCRIPTION_CAPACITY).await?;
        let (own, stopping) = (config.replica_id.clone(), tasks.clone());
        let (hearing, hearing_bus) = (roster.clone(), bus.clone());
        tasks.spawn("listener roster", async move {
            tokio::select! {
                () = hearing.hear(hearing_bus, heard, &own) => {}
                () = stopping.cancelled() => {}
            }
        });
        let (bus, slots, config, stopping) = (bus.clone(), slots.clone(), Arc::clone(config), tasks.clone());
        tasks.spawn("listener announcements", async move {
            tokio::select! {
                () = announce(&bus, &slots, &config) => {}
                () = stopping.cancelled() => {}
            }
        });
        Ok(roster)
    }

    /// Whether a replica that holds so many should take more: nobody with room holds clearly fewer.
    pub fn is_turn(&self, held: usize) -> bool {
        let others = self.0.others.lock();
        let least = others
            .values()
            .filter(|other| other.has_room && other.heard.elapsed() < SILENCE_MAX)
            .map(|other| other.held)
            .min();
        least.is_none_or(|least| held <= (least + SLACK) as usize)
    }

    /// Changes when it may have become another replica's turn.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    async fn hear(self, bus: Bus, mut heard: realtime_node::bus::Subscription, own: &str) {
        loop {
            let silence = tokio::time::sleep(SILENCE_MAX);
            tokio::select! {
                delivery = heard.next() => match delivery {
                    Some(Delivery::Message(message)) => self.note(&message.body, own),
                    Some(Delivery::Lost(_)) => {}
                    None => match bus.subscribe(subject::LISTENERS, SUBSCRIPTION_CAPACITY).await {
                        Ok(again) => heard = again,
                        Err(_) => tokio::time::sleep(jittered(RESUBSCRIBE_AFTER)).await,
                    },
                },
                () = silence => self.forget_silent(),
            }
        }
    }

    fn note(&self, body: &[u8], own: &str) {
        let Ok(status) = v1::ListenerStatus::decode(body) else {
            return;
        };
        self.forget_silent();
        if status.listener == own {
            return;
        }
        let other = Other {
            held: status.held,
            has_room: status.held < status.max_listeners,
            heard: Instant::now(),
        };
        let mut others = self.0.others.lock();
        if others.len() < REPLICAS_MAX || others.contains_key(&status.listener) {
            let before = others.insert(status.listener, other);
            if before.is_none_or(|before| (before.held, before.has_room) != (other.held, other.has_room)) {
                self.0.changes.send_modify(|changes| *changes += 1);
            }
        }
    }

    fn forget_silent(&self) {
        let mut others = self.0.others.lock();
        let before = others.len();
        others.retain(|_, other| other.heard.elapsed() < SILENCE_MAX);
        if others.len() != before {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }
}

async fn announce(bus: &Bus, slots: &Slots, config: &ListenerConfig) {
    let mut counts = slots.counts();
    loop {
        let status = v1::ListenerStatus {
            listener: config.replica_id.clone(),
            held: u32::try_from(*counts.borrow_and_update()).unwrap_or(u32::MAX),
            max_listeners: u32::try_from(config.max_listeners).unwrap_or(u32::MAX),
        };
        if let Err(error) = bus
            .publish(subject::LISTENERS, status.encode_to_vec().into())
            .await
        {
            tracing::debug!(%error, "what this listener holds could not be told");
        }
        // Fails only without a sender, and the slots are that.
        let _ = tokio::time::timeout(ANNOUNCE_EVERY, counts.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster() -> Roster {
        Roster(Arc::new(Inner {
            others: Mutex::default(),
            changes: watch::Sender::new(0),
        }))
    }

    fn says(roster: &Roster, listener: &str, held: u32, max_listeners: u32) {
        let status = v1::ListenerStatus {
            listener: listener.to_owned(),
            held,
            max_listeners,
        };
        roster.note(&status.encode_to_vec(), "own");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_holds_clearly_more_than_another_waits() {
        let roster = roster();
        assert!(roster.is_turn(7), "nobody else is there");
        says(&roster, "own", 0, 10);
        assert!(roster.is_turn(7), "its own words do not count");
        says(&roster, "a", 5, 10);
        assert!(roster.is_turn(6) && !roster.is_turn(7));
        says(&roster, "b", 3, 3);
        assert!(roster.is_turn(6), "the full one takes none, however few it holds");
        tokio::time::advance(SILENCE_MAX).await;
        assert!(roster.is_turn(7), "nobody has been heard for long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_turns_is_told() {
        let roster = roster();
        let mut changes = roster.changes();
        says(&roster, "a", 5, 10);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        says(&roster, "a", 5, 10);
        assert!(!changes.has_changed().unwrap());
        tokio::time::advance(SILENCE_MAX).await;
        roster.forget_silent();
        assert!(changes.has_changed().unwrap());
    }
}
