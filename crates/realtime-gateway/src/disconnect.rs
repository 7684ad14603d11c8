//! Ending what a user has open, on every gateway, at an operator's word.
//!
//! Must never end anything of another user or another project. An order says nothing about
//! tokens: whoever still has one that counts may come back with it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use realtime_core::claims::Who;
use realtime_core::id::ProjectId;
use realtime_core::subject;
use realtime_node::backoff::{Backoff, SESSION_STEPS};
use realtime_node::bus::{Bus, BusError, Delivery, Subscription};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use rustc_hash::FxHashMap;
use tokio::sync::broadcast;
use tokio::time::sleep;

/// Orders of one project that a session may be behind by; one that is further behind cannot know whether it was meant,
/// and ends.
const ORDERS_MAX: usize = 64;

/// Orders that the bus may hold for this gateway.
const UNHEARD_MAX: usize = 256;

/// The orders. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Disconnects {
    bus: Bus,
    /// Apart for each project that has sessions: orders of one wake, and can end for falling behind, no session of
    /// another.
    orders: Arc<Mutex<FxHashMap<ProjectId, broadcast::Sender<Arc<Who>>>>>,
}

impl Disconnects {
    /// Orders that come over this bus.
    pub fn new(bus: Bus) -> Self {
        Self {
            bus,
            orders: Arc::default(),
        }
    }

    /// A project's orders from now on, for one of its sessions.
    pub fn orders(&self, project: &ProjectId) -> broadcast::Receiver<Arc<Who>> {
        let mut orders = self.orders.lock();
        let of_project = orders.entry(project.clone());
        of_project
            .or_insert_with(|| broadcast::Sender::new(ORDERS_MAX))
            .subscribe()
    }

    fn tell(&self, project: &ProjectId, who: Who) {
        let mut orders = self.orders.lock();
        let told = orders.get(project).map(|sessions| sessions.send(Arc::new(who)));
        // Nobody to hear it is as good as nobody who is meant.
        if let Some(Err(_)) = told {
            orders.remove(project);
        }
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
            match self.bus.subscribe(subject::SESSION, UNHEARD_MAX).await {
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
                    // Every gateway hears it; the one that gave it has said so.
                    tracing::debug!(%project, "an operator disconnects a user");
                    self.tell(&project, who);
                }
                None => tracing::warn!("an order to disconnect was not understood"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_one_project_are_no_other_projects_business() {
        let disconnects = Disconnects::new(Bus::local());
        let (a, b) = (ProjectId::parse("a").unwrap(), ProjectId::parse("b").unwrap());
        let (mut of_a, mut of_b) = (disconnects.orders(&a), disconnects.orders(&b));
        for n in 0..=2 * ORDERS_MAX {
            disconnects.tell(&a, Who::Subject(n.to_string().into()));
        }
        assert!(matches!(
            of_a.try_recv(),
            Err(broadcast::error::TryRecvError::Lagged(_))
        ));
        assert!(matches!(
            of_b.try_recv(),
            Err(broadcast::error::TryRecvError::Empty)
        ));
        disconnects.tell(&b, Who::Subject("u1".into()));
        assert!(*of_b.try_recv().unwrap() == Who::Subject("u1".into()));
        // What nobody hears is not kept, and whoever comes later hears again.
        drop(of_b);
        disconnects.tell(&b, Who::Subject("u2".into()));
        assert_eq!(disconnects.orders.lock().len(), 1);
        let mut of_b = disconnects.orders(&b);
        disconnects.tell(&b, Who::Subject("u3".into()));
        assert!(*of_b.try_recv().unwrap() == Who::Subject("u3".into()));
    }
}
