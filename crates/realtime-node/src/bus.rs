//! The bus between our processes: publish and subscribe, request and reply, queue groups.
//!
//! Two implementations behind one test suite: NATS, and one inside the process for
//! `anvilbase dev` and for tests. At most once, in order per publisher and subject tree; what a
//! subscription could not take is told to it in place, as [`Delivery::Lost`] (invariant 6).

mod local;
mod nats;

use std::time::Duration;

use bytes::Bytes;

use crate::tasks::Tasks;
pub use local::LocalBus;
pub use nats::{NatsBus, NatsOptions};
pub(crate) use nats::{is_encrypted, is_on_this_machine};

/// A bus. Cloning shares it.
#[derive(Clone, Debug)]
pub enum Bus {
    /// Within this process.
    Local(LocalBus),
    /// A NATS server or cluster.
    Nats(NatsBus),
}

/// One message.
#[derive(Clone, Debug)]
pub struct BusMessage {
    /// The subject it was published on.
    pub subject: String,
    /// Its body.
    pub body: Bytes,
    /// Where a reply is awaited.
    pub reply: Option<String>,
}

/// What a subscription yields.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A message.
    Message(BusMessage),
    /// Messages were lost at this place: at least so many, 0 if unknown.
    Lost(u64),
}

/// A subscription; dropping it ends it.
#[derive(Debug)]
pub enum Subscription {
    /// On a [`LocalBus`].
    Local(local::LocalSubscription),
    /// On a [`NatsBus`].
    Nats(nats::NatsSubscription),
}

/// Why the bus did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// Nobody serves the subject.
    #[error("bus: nobody serves the subject")]
    NoResponders,
    /// No answer in time.
    #[error("bus: no answer within {0:?}")]
    Timeout(Duration),
    /// The bus is closed, or the server cannot be reached.
    #[error("bus: unavailable: {0}")]
    Unavailable(String),
}

/// Deadline of a [`Bus::flush`].
pub const FLUSH_DEADLINE: Duration = Duration::from_secs(5);

impl Bus {
    /// A bus within this process.
    pub fn local() -> Self {
        Self::Local(LocalBus::new())
    }

    /// Connects to NATS; tries for 10 s.
    ///
    /// # Errors
    /// No server answers, or the credentials are refused.
    pub async fn connect_nats(options: NatsOptions, tasks: &Tasks) -> Result<Self, BusError> {
        Ok(Self::Nats(NatsBus::connect(options, tasks).await?))
    }

    /// Publishes a message. Does not wait for anybody to receive it.
    pub async fn publish(&self, subject: &str, body: Bytes) -> Result<(), BusError> {
        match self {
            Self::Local(bus) => bus.publish(subject, body, None),
            Self::Nats(bus) => bus.publish(subject, body).await,
        }
    }

    /// Subscribes; `*` stands for one token, a last `>` for one or more. At most `capacity`
    /// messages wait unread (on NATS: the connection's own limit); what comes on top is lost
    /// and announced.
    pub async fn subscribe(&self, subject: &str, capacity: usize) -> Result<Subscription, BusError> {
        match self {
            Self::Local(bus) => Ok(Subscription::Local(bus.subscribe(subject, None, capacity))),
            Self::Nats(bus) => Ok(Subscription::Nats(bus.subscribe(subject).await?)),
        }
    }

    /// Subscribes as one of a group: each message goes to one of its members.
    pub async fn queue_subscribe(
        &self,
        subject: &str,
        group: &str,
        capacity: usize,
    ) -> Result<Subscription, BusError> {
        match self {
            Self::Local(bus) => Ok(Subscription::Local(bus.subscribe(subject, Some(group), capacity))),
            Self::Nats(bus) => Ok(Subscription::Nats(bus.queue_subscribe(subject, group).await?)),
        }
    }

    /// Asks, and waits for one answer.
    ///
    /// # Errors
    /// [`BusError::NoResponders`] at once where nobody serves the subject;
    /// [`BusError::Timeout`] where nobody answered in time.
    pub async fn request(&self, subject: &str, body: Bytes, deadline: Duration) -> Result<Bytes, BusError> {
        match self {
            Self::Local(bus) => bus.request(subject, body, deadline).await,
            Self::Nats(bus) => bus.request(subject, body, deadline).await,
        }
    }

    /// Answers a request; a message that awaits no reply is left alone.
    pub async fn respond(&self, message: &BusMessage, body: Bytes) -> Result<(), BusError> {
        match &message.reply {
            Some(reply) => self.publish(reply, body).await,
            None => Ok(()),
        }
    }

    /// A round trip: when it returns, this connection's earlier subscriptions are in force and
    /// its earlier messages have reached the server.
    pub async fn flush(&self) -> Result<(), BusError> {
        match self {
            Self::Local(_) => Ok(()),
            Self::Nats(bus) => bus.flush().await,
        }
    }
}

impl Subscription {
    /// The next message or loss; `None` once the bus is closed.
    pub async fn next(&mut self) -> Option<Delivery> {
        match self {
            Self::Local(subscription) => subscription.next().await,
            Self::Nats(subscription) => subscription.next().await,
        }
    }

    /// Ends the subscription, and leaves its group.
    pub async fn unsubscribe(self) {
        match self {
            Self::Local(_) => {}
            Self::Nats(mut subscription) => subscription.unsubscribe().await,
        }
    }
}

/// Whether a subject matches a pattern of tokens, `*` and a last `>`.
fn matches(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for part in pattern.split('.') {
        match (part, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (part, Some(token)) if part == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a", false),
            ("a", "a.b", false),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("*.b", "a.b", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern} {subject}");
        }
    }
}
