//! The bus within one process.
//!
//! Must behave as NATS does in everything that our services rely on: the test suite in
//! `tests/it/bus.rs` runs on both.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};

use super::{BusError, BusMessage, Delivery, matches};

/// A bus within this process. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct LocalBus(Arc<Mutex<Router>>);

#[derive(Debug, Default)]
struct Router {
    next_id: u64,
    members: HashMap<u64, Member>,
    /// For each group, whose turn it is.
    turns: HashMap<String, usize>,
}

#[derive(Debug)]
struct Member {
    pattern: String,
    group: Option<String>,
    queue: mpsc::Sender<Delivery>,
    lost: Arc<AtomicU64>,
}

/// A subscription on a [`LocalBus`].
#[derive(Debug)]
pub struct LocalSubscription {
    bus: LocalBus,
    id: u64,
    queue: mpsc::Receiver<Delivery>,
    lost: Arc<AtomicU64>,
}

impl LocalBus {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn publish(&self, subject: &str, body: Bytes, reply: Option<String>) -> Result<(), BusError> {
        self.0.lock().route(&BusMessage {
            subject: subject.to_owned(),
            body,
            reply,
        });
        Ok(())
    }

    pub(super) fn subscribe(&self, subject: &str, group: Option<&str>, capacity: usize) -> LocalSubscription {
        // Room for one more: the note of a loss goes before the message that follows it.
        let (sender, queue) = mpsc::channel(capacity.max(1) + 1);
        let lost = Arc::new(AtomicU64::new(0));
        let mut router = self.0.lock();
        router.next_id += 1;
        let id = router.next_id;
        let group = group.map(str::to_owned);
        let member = Member {
            pattern: subject.to_owned(),
            group,
            queue: sender,
            lost: Arc::clone(&lost),
        };
        router.members.insert(id, member);
        LocalSubscription {
            bus: self.clone(),
            id,
            queue,
            lost,
        }
    }

    pub(super) async fn request(
        &self,
        subject: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, BusError> {
        let inbox = {
            let mut router = self.0.lock();
            router.next_id += 1;
            format!("_INBOX.{}", router.next_id)
        };
        let mut answers = self.subscribe(&inbox, None, 1);
        let request = BusMessage {
            subject: subject.to_owned(),
            body,
            reply: Some(inbox),
        };
        if self.0.lock().route(&request) == 0 {
            return Err(BusError::NoResponders);
        }
        match tokio::time::timeout(deadline, answers.next()).await {
            Ok(Some(Delivery::Message(answer))) => Ok(answer.body),
            Ok(_) => Err(BusError::Unavailable("closed".to_owned())),
            Err(_) => Err(BusError::Timeout(deadline)),
        }
    }
}

impl Router {
    /// Gives the message to every subscription, and to one member of each group. Returns to how many.
    fn route(&mut self, message: &BusMessage) -> usize {
        let mut reached = 0;
        let mut groups: HashMap<&str, Vec<u64>> = HashMap::new();
        for (id, member) in &self.members {
            if !matches(&member.pattern, &message.subject) {
                continue;
            }
            match &member.group {
                None => {
                    member.give(message);
                    reached += 1;
                }
                Some(group) => groups.entry(group).or_default().push(*id),
            }
        }
        for (group, mut ids) in groups {
            ids.sort_unstable();
            let turn = self.turns.entry(group.to_owned()).or_default();
            *turn = turn.wrapping_add(1);
            if let Some(member) = self.members.get(&ids[*turn % ids.len()]) {
                member.give(message);
                reached += 1;
            }
        }
        reached
    }
}

impl Member {
    fn give(&self, message: &BusMessage) {
        let lost = self.lost.swap(0, Ordering::AcqRel);
        // One place is kept for the note, so a full queue is one with a single place left.
        let full = self.queue.capacity() <= 1;
        if full || (lost > 0 && self.queue.capacity() <= 2) {
            self.lost.fetch_add(lost + 1, Ordering::AcqRel);
            return;
        }
        if lost > 0 && self.queue.try_send(Delivery::Lost(lost)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::AcqRel);
            return;
        }
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Delivery::Message(message.clone())) {
            self.lost.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl LocalSubscription {
    pub(super) async fn next(&mut self) -> Option<Delivery> {
        match self.queue.try_recv() {
            Ok(delivery) => return Some(delivery),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        // Everything from before the loss has been read: this is its place.
        match self.lost.swap(0, Ordering::AcqRel) {
            0 => self.queue.recv().await,
            lost => Some(Delivery::Lost(lost)),
        }
    }
}

impl Drop for LocalSubscription {
    fn drop(&mut self) {
        self.bus.0.lock().members.remove(&self.id);
    }
}
