//! The subscription on the bus that a feed is taken in by.
//!
//! Must never yield a message before the subscription is in force.

use std::time::Duration;

use futures_util::future::BoxFuture;
use realtime_core::id::ProjectId;
use realtime_core::subject;
use realtime_node::bus::{Bus, BusError, Delivery, Subscription as BusSubscription};

use crate::feed::registry::Shared;

/// The subscription on the bus.
pub enum BusState {
    /// It is being made.
    Opening(BoxFuture<'static, Result<BusSubscription, BusError>>),
    /// It is in force.
    Open(BusSubscription),
}

/// What came of the bus.
pub enum BusEvent {
    /// The subscription is in force.
    Opened(BusSubscription),
    /// A message, or a loss.
    Delivery(Delivery),
    /// There is no subscription any more, or none could be had.
    Closed,
}

impl BusState {
    /// Subscribes to everything of a project, and makes sure that it is in force.
    pub fn open(shared: &Shared, project: &ProjectId, after: Duration) -> Self {
        let (bus, subject) = (shared.bus.clone(), subject::project_all(project));
        let capacity = shared.limits.feed_messages_max as usize;
        Self::Opening(Box::pin(async move {
            tokio::time::sleep(after).await;
            open(&bus, &subject, capacity).await
        }))
    }

    /// What comes next.
    pub async fn next(&mut self) -> BusEvent {
        match self {
            Self::Opening(opening) => match opening.await {
                Ok(subscription) => BusEvent::Opened(subscription),
                Err(error) => {
                    tracing::warn!(%error, "a feed cannot be subscribed to, trying again");
                    BusEvent::Closed
                }
            },
            Self::Open(subscription) => match subscription.next().await {
                Some(delivery) => BusEvent::Delivery(delivery),
                None => BusEvent::Closed,
            },
        }
    }
}

async fn open(bus: &Bus, subject: &str, capacity: usize) -> Result<BusSubscription, BusError> {
    let subscription = bus.subscribe(subject, capacity).await?;
    bus.flush().await?;
    Ok(subscription)
}
