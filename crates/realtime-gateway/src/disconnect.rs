//! Ending what a user has open, on every gateway, at an operator's word.
//!
//! Must never end anything of another user or another project. An order says nothing about
//! tokens: whoever still has one that counts may come back with it.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use realtime_core::claims::Who;
use realtime_core::id::ProjectId;
use realtime_core::subject;
use realtime_node::backoff::{Backoff, SESSION_STEPS};
use realtime_node::bus::{Bus, BusError, Delivery, Subscription};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use tokio::sync::broadcast;
use tokio::time::sleep;

/// Orders that a session may be behind by; one that is further behind cannot know whether it was meant, and ends.
const ORDERS_MAX: usize = 256;

/// An order.
#[derive(Debug)]
pub struct Disconnect {
    /// The project.
    pub project: ProjectId,
    /// Whose sockets and channels.
    pub who: Who,
}

/// The orders. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Disconnects {
    bus: Bus,
    orders: broadcast::Sender<Arc<Disconnect>>,
}

impl Disconnects {
    /// Orders that come over this bus.
    pub fn new(bus: Bus) -> Self {
        Self {
            bus,
            orders: broadcast::Sender::new(ORDERS_MAX),
        }
    }

    /// Orders from now on, for one session.
    pub fn orders(&self) -> broadcast::Receiver<Arc<Disconnect>> {
        self.orders.subscribe()
    }

    /// Gives an order to every gateway that hears the bus now, this one included.
    ///
    /// # Errors
    /// The bus did not take it.
    pub async fn order(&self, project: &ProjectId, who: &Who) -> Result<(), BusError> {
        let body: Bytes = v1::DisconnectRequest::of(project, who).encode_to_vec().into();
        self.bus.publish(subject::SESSION, body).await?;
        self.bus.flush().await
    }

    /// Hears orders until the tasks are told to stop.
    pub async fn hear(self, tasks: Tasks) {
        let mut backoff = Backoff::new(SESSION_STEPS);
        loop {
            match self.bus.subscribe(subject::SESSION, ORDERS_MAX).await {
                Ok(mut subscription) => {
                    backoff.reset();
                    tokio::select! {
                        () = tasks.cancelled() => return,
                        () = self.hear_from(&mut subscription) => {}
                    }
                }
                Err(error) => tracing::warn!(%error, "orders to disconnect cannot be heard"),
            }
            tokio::select! {
                () = tasks.cancelled() => return,
                () = sleep(backoff.next_delay()) => {}
            }
        }
    }

    async fn hear_from(&self, subscription: &mut Subscription) {
        while let Some(delivery) = subscription.next().await {
            let message = match delivery {
                Delivery::Message(message) => message,
                Delivery::Lost(orders) => {
                    tracing::warn!(orders, "orders to disconnect were lost");
                    continue;
                }
            };
            let order = v1::DisconnectRequest::decode(message.body).ok();
            match order.and_then(|order| <(ProjectId, Who)>::try_from(order).ok()) {
                Some((project, who)) => {
                    tracing::info!(%project, "an operator disconnects a user");
                    // Nobody to hear it is as good as nobody who is meant.
                    let _ = self.orders.send(Arc::new(Disconnect { project, who }));
                }
                None => tracing::warn!("an order to disconnect was not understood"),
            }
        }
    }
}
