//! Puts a feed's messages on the bus, each at its place.
//!
//! Must never let a message vanish without a gap: what the bus refused is announced before the next message.

use prost::Message as _;
use realtime_core::change::{ChangeEvent, Position};
use realtime_core::code::GapReason;
use realtime_core::envelope::TableMark;
use realtime_core::id::ProjectId;
use realtime_core::subject;
use realtime_node::bus::Bus;
use realtime_proto::v1;
use realtime_proto::v1::feed_status::{Down, Gap, Kind, TableChanged, Truncated, Up};

use crate::metrics::ListenerMetrics;

/// Publishes for one project; numbers its messages.
#[derive(Debug)]
pub struct Publisher {
    bus: Bus,
    project: ProjectId,
    owner: String,
    control: String,
    metrics: ListenerMetrics,
    /// Of the last message that has a place of its own.
    position: Position,
    /// Messages that the bus refused since it last took one.
    refused: u64,
}

impl Publisher {
    /// A publisher that has no epoch yet: it can only say `Down`.
    pub fn new(bus: Bus, project: ProjectId, owner: String, metrics: ListenerMetrics) -> Self {
        let control = subject::control(&project);
        Self {
            bus,
            project,
            owner,
            control,
            metrics,
            position: Position::default(),
            refused: 0,
        }
    }

    /// The last place used.
    pub fn position(&self) -> Position {
        self.position
    }

    /// A new session's messages follow.
    pub fn begin_epoch(&mut self, epoch: u64) {
        self.position = Position { epoch, seq: 0 };
        self.refused = 0;
    }

    /// The feed is live, or still is.
    pub async fn up(&mut self) {
        self.settle().await;
        self.status(Kind::Up(Up {}), self.position).await;
    }

    /// The feed ended, or could not begin.
    pub async fn down(&mut self, reason: v1::DownReason) {
        self.status(
            Kind::Down(Down {
                reason: reason.into(),
            }),
            self.position,
        )
        .await;
    }

    /// A row changed.
    pub async fn change(&mut self, mut event: ChangeEvent) {
        self.settle().await;
        event.position = self.next();
        let body = v1::ChangeEvent::from(&event).encode_to_vec();
        if self
            .send(&subject::change(&self.project, &event.table), body)
            .await
        {
            self.metrics.event(&self.project);
        }
    }

    /// At least `dropped` events are missing here; of one table, or of any.
    pub async fn gap(&mut self, reason: GapReason, dropped: u64, table: Option<TableMark>) {
        self.settle().await;
        self.announce(reason, dropped, table).await;
    }

    /// Facts about one table, or about all, changed.
    pub async fn table_changed(&mut self, mark: Option<TableMark>) {
        self.settle().await;
        let (relid, schema, table) = parts(mark);
        let position = self.next();
        self.status(
            Kind::TableChanged(TableChanged { relid, schema, table }),
            position,
        )
        .await;
    }

    /// A table was emptied.
    pub async fn truncated(&mut self, mark: TableMark) {
        self.settle().await;
        let (relid, schema, table) = parts(Some(mark));
        let position = self.next();
        self.status(Kind::Truncated(Truncated { relid, schema, table }), position)
            .await;
    }

    /// Waits until the bus has what was published.
    pub async fn flush(&self) {
        if let Err(error) = self.bus.flush().await {
            tracing::warn!(project = %self.project, %error, "the bus did not confirm a feed's last messages");
        }
    }

    /// Announces what the bus refused.
    async fn settle(&mut self) {
        let refused = std::mem::take(&mut self.refused);
        if refused > 0 {
            self.announce(GapReason::PublishBacklog, refused, None).await;
        }
    }

    async fn announce(&mut self, reason: GapReason, dropped: u64, table: Option<TableMark>) {
        let (relid, schema, table) = parts(table);
        let position = self.next();
        let gap = Gap {
            dropped,
            reason: reason.as_str().to_owned(),
            schema,
            table,
            relid,
        };
        self.metrics.gap(reason);
        self.status(Kind::Gap(gap), position).await;
    }

    fn next(&mut self) -> Position {
        self.position.seq += 1;
        self.position
    }

    async fn status(&mut self, kind: Kind, position: Position) {
        let status = v1::FeedStatus {
            owner: self.owner.clone(),
            position: Some(position.into()),
            kind: Some(kind),
        };
        let control = self.control.clone();
        self.send(&control, status.encode_to_vec()).await;
    }

    async fn send(&mut self, subject: &str, body: Vec<u8>) -> bool {
        match self.bus.publish(subject, body.into()).await {
            Ok(()) => true,
            Err(error) => {
                if self.refused == 0 {
                    tracing::warn!(project = %self.project, %error, "the bus refused a feed's message");
                }
                self.refused += 1;
                false
            }
        }
    }
}

/// Relation 0 with empty names stands for every table.
fn parts(mark: Option<TableMark>) -> (u32, String, String) {
    match mark {
        Some(mark) => (
            mark.relid,
            mark.table.schema.to_string(),
            mark.table.table.to_string(),
        ),
        None => (0, String::new(), String::new()),
    }
}
