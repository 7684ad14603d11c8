//! Answers gateways that want a project's feed, and hears which projects they still want.
//!
//! Must never answer while full: a listener without room leaves the queue group, so that *deferred* is the bus's own
//! "no responders". One that holds clearly more than another leaves it too, until that has changed.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use realtime_core::id::ProjectId;
use realtime_core::subject;
use realtime_node::backoff::jittered;
use realtime_node::bus::{Bus, BusError, BusMessage, Delivery, Subscription};
use realtime_node::catalog::{Catalog, Listen};
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use realtime_proto::v1::attach_reply::Outcome;
use tokio::sync::Semaphore;

use crate::config::ListenerConfig;
use crate::feed::FirstAttempt;
use crate::metrics::ListenerMetrics;
use crate::roster::Roster;
use crate::slots::{Slots, Taking};

/// How long an answer waits for the first attempt; a later outcome is heard on `ctl`.
const FIRST_ATTEMPT_WAIT: Duration = Duration::from_secs(1);

/// Requests being answered at once; more wait in the subscription.
const ANSWERS_MAX: usize = 64;

/// Messages that a subscription of ours may hold.
const SUBSCRIPTION_CAPACITY: usize = 1024;

/// How long to wait before subscribing again after the bus refused.
const RESUBSCRIBE_AFTER: Duration = Duration::from_secs(1);

/// What answering takes.
#[derive(Clone)]
pub struct Attach {
    /// Where requests come from.
    pub bus: Bus,
    /// Which projects there are.
    pub catalog: Catalog,
    /// Who holds them.
    pub slots: Slots,
    /// What other replicas hold.
    pub roster: Roster,
    /// What is counted.
    pub metrics: ListenerMetrics,
    /// The listener's settings.
    pub config: Arc<ListenerConfig>,
    /// The group that all of it runs in.
    pub tasks: Tasks,
}

impl Attach {
    /// Starts answering, hearing interest, and holding what is pinned. When it returns, requests are being taken.
    ///
    /// # Errors
    /// The bus refuses the subscriptions.
    pub async fn start(self) -> Result<(), BusError> {
        let requests = self.join_group().await?;
        let interest = self
            .bus
            .subscribe(subject::INTEREST_ALL, SUBSCRIPTION_CAPACITY)
            .await?;
        self.bus.flush().await?;
        let tasks = self.tasks.clone();
        tasks.spawn("attach", self.clone().answer_all(requests));
        tasks.spawn("interest", self.clone().hear_interest(interest));
        tasks.spawn("pinned projects", self.hold_pinned());
        Ok(())
    }

    async fn join_group(&self) -> Result<Subscription, BusError> {
        self.bus
            .queue_subscribe(subject::ATTACH, subject::ATTACH_QUEUE, SUBSCRIPTION_CAPACITY)
            .await
    }

    async fn answer_all(self, requests: Subscription) {
        let answers = Arc::new(Semaphore::new(ANSWERS_MAX));
        let (mut counts, mut turns) = (self.slots.counts(), self.roster.changes());
        let mut membership = Some(requests);
        loop {
            let Some(requests) = &mut membership else {
                membership = tokio::select! {
                    joined = self.rejoin() => Some(joined),
                    () = self.tasks.cancelled() => return,
                };
                continue;
            };
            tokio::select! {
                delivery = requests.next() => match delivery {
                    Some(Delivery::Message(message)) => self.answer_apart(message, &answers).await,
                    Some(Delivery::Lost(lost)) => tracing::warn!(lost, "attach requests were lost; gateways ask again"),
                    None => membership = None,
                },
                // The senders live as long as the slots and the roster do.
                _ = counts.changed() => {}
                _ = turns.changed() => {}
                () = self.tasks.cancelled() => break,
            }
            if !self.takes_more()
                && let Some(requests) = membership.take()
            {
                if !self.slots.has_room() {
                    tracing::warn!(
                        max = self.config.max_listeners,
                        "all listeners are in use: further projects are deferred"
                    );
                }
                requests.unsubscribe().await;
            }
        }
        if let Some(requests) = membership {
            requests.unsubscribe().await;
        }
    }

    /// Whether this replica is to be asked for more projects.
    fn takes_more(&self) -> bool {
        self.slots.has_room() && self.roster.is_turn(self.slots.count())
    }

    /// Waits for room, and for this replica's turn, then joins the group again.
    async fn rejoin(&self) -> Subscription {
        let (mut counts, mut turns) = (self.slots.counts(), self.roster.changes());
        loop {
            while !self.takes_more() {
                tokio::select! {
                    // The senders live as long as the slots and the roster do.
                    _ = counts.changed() => {}
                    _ = turns.changed() => {}
                }
            }
            match self.join_group().await {
                Ok(requests) => return requests,
                Err(error) => tracing::warn!(%error, "cannot take attach requests"),
            }
            tokio::time::sleep(jittered(RESUBSCRIBE_AFTER)).await;
        }
    }

    async fn answer_apart(&self, message: BusMessage, answers: &Arc<Semaphore>) {
        // Closed by nobody.
        let Ok(permit) = Arc::clone(answers).acquire_owned().await else {
            return;
        };
        let attach = self.clone();
        self.tasks.spawn("attach answer", async move {
            let _permit = permit;
            attach.answer(message).await;
        });
    }

    async fn answer(&self, message: BusMessage) {
        let request = v1::AttachRequest::decode(message.body.clone());
        let project = request
            .ok()
            .and_then(|request| ProjectId::parse(&request.project).ok());
        let project = project.and_then(|id| self.catalog.get(&id));
        let outcome = match project.map(|project| self.slots.take(&project)) {
            None | Some(Taking::NoLogin) => Outcome::UnknownProject,
            // Somebody else may have room: the gateway asks again.
            Some(Taking::Full) => return,
            Some(Taking::Held) => Outcome::Accepted,
            Some(Taking::Reserved(first)) => match tokio::time::timeout(FIRST_ATTEMPT_WAIT, first).await {
                Ok(Ok(FirstAttempt::HeldElsewhere)) => Outcome::HeldElsewhere,
                _ => Outcome::Accepted,
            },
        };
        self.metrics.attached.inc();
        let reply = v1::AttachReply {
            outcome: outcome.into(),
            listener: self.config.replica_id.clone(),
        }
        .encode_to_vec();
        if let Err(error) = self.bus.respond(&message, reply.into()).await {
            tracing::warn!(%error, "an attach request could not be answered");
        }
    }

    async fn hear_interest(self, mut interest: Subscription) {
        loop {
            let delivery = tokio::select! {
                delivery = interest.next() => delivery,
                () = self.tasks.cancelled() => return,
            };
            match delivery {
                Some(Delivery::Message(message)) => {
                    if let Some(project) = subject::interest_project(&message.subject) {
                        self.slots.touch(&project);
                    }
                }
                // Gateways say it again within the linger.
                Some(Delivery::Lost(_)) => {}
                None => match self
                    .bus
                    .subscribe(subject::INTEREST_ALL, SUBSCRIPTION_CAPACITY)
                    .await
                {
                    Ok(again) => interest = again,
                    Err(_) => tokio::time::sleep(jittered(RESUBSCRIBE_AFTER)).await,
                },
            }
        }
    }

    /// Follows the catalog, and takes pinned projects that nobody here holds: another replica's may have ended.
    async fn hold_pinned(self) {
        let mut changed = self.catalog.changed();
        let mut known = true;
        loop {
            let projects = self.catalog.projects();
            self.slots.reconcile(&projects);
            for project in projects.iter().filter(|project| project.listen == Listen::Always) {
                self.slots.take(project);
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(self.config.pinned_every)) => {}
                change = changed.changed(), if known => known = change.is_ok(),
                () = self.tasks.cancelled() => return,
            }
        }
    }
}
