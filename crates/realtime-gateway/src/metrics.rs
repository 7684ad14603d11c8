//! What a gateway counts.
//!
//! Must never take a label that a client can choose (invariant 10): reasons come from closed lists.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use realtime_core::change::ChangeEvent;
use realtime_core::code::GapReason;
use realtime_node::metrics::Metrics;

use crate::feed::lanes::DropReasonLabel;

/// A reason from a closed list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reason {
    reason: &'static str,
}

/// The gateway's metrics. Cloning shares them.
#[derive(Clone)]
pub struct GatewayMetrics(Arc<Inner>);

/// The metrics themselves.
pub struct Inner {
    /// Open sockets.
    pub sessions: Gauge,
    /// Joined channels.
    pub channels: Gauge,
    /// Projects whose feed is followed.
    pub feeds: Gauge,
    /// Of these, projects that wait for a listener with room.
    pub feeds_deferred: Gauge,
    /// Frames from clients.
    pub frames_in: Counter,
    /// Frames from clients that could not be read.
    pub frames_unparsable: Counter,
    /// Frames to clients.
    pub frames_out: Counter,
    /// Changes that came from feeds.
    pub events: Counter,
    /// Messages on feeds that were not understood.
    pub events_malformed: Counter,
    /// Change frames encoded, as against shared.
    pub frames_encoded: Counter,
    /// Change frames put into outboxes.
    pub deliveries: Counter,
    drops: Family<Reason, Counter>,
    gaps: Family<Reason, Counter>,
    /// Sockets that were refused.
    pub refusals: Family<Reason, Counter>,
    /// Sockets that the server ended.
    pub closes: Family<Reason, Counter>,
    key_set_fetches: Family<Reason, Counter>,
    /// Calls of the management API, by what came of them.
    management: Family<Reason, Counter>,
    latency: Histogram,
}

impl GatewayMetrics {
    /// Registers the metrics.
    pub fn new(metrics: &Metrics) -> Self {
        let m = metrics;
        let counter =
            |name: &str, help: &str| m.register(&format!("gateway_{name}"), help, Counter::default());
        let gauge = |name: &str, help: &str| m.register(&format!("gateway_{name}"), help, Gauge::default());
        let family = |name: &str, help: &str| {
            m.register(
                &format!("gateway_{name}"),
                help,
                Family::<Reason, Counter>::default(),
            )
        };
        let latency = Histogram::new(exponential_buckets(0.001, 2.0, 14));
        Self(Arc::new(Inner {
            sessions: gauge("sessions", "Open sockets"),
            channels: gauge("channels", "Joined channels"),
            feeds: gauge("feeds", "Projects whose feed is followed"),
            feeds_deferred: gauge(
                "feeds_deferred",
                "Followed projects that wait for a listener with room",
            ),
            frames_in: counter("frames_in", "Frames from clients"),
            frames_unparsable: counter("frames_unparsable", "Frames from clients that could not be read"),
            frames_out: counter("frames_out", "Frames to clients"),
            events: counter("events", "Changes from feeds"),
            events_malformed: counter("events_malformed", "Messages on feeds that were not understood"),
            frames_encoded: counter("frames_encoded", "Change frames encoded, as against shared"),
            deliveries: counter("deliveries", "Change frames put into outboxes"),
            drops: family("drops", "Deliveries that did not take place, by reason"),
            gaps: family("gaps", "Gap notices, by reason"),
            refusals: family("refusals", "Sockets refused, by reason"),
            closes: family("closes", "Sockets ended by the server, by reason"),
            key_set_fetches: family("key_set_fetches", "Fetches of projects' key sets, by outcome"),
            management: family("management_calls", "Calls of the management API, by outcome"),
            latency: m.register("gateway_latency_seconds", "From commit to outbox", latency),
        }))
    }

    /// Counts deliveries that did not take place.
    pub fn drops(&self, reason: DropReasonLabel, deliveries: usize) {
        self.0
            .drops
            .get_or_create(&Reason {
                reason: reason.as_str(),
            })
            .inc_by(deliveries as u64);
    }

    /// Counts a gap notice.
    pub fn gap(&self, reason: GapReason) {
        self.0
            .gaps
            .get_or_create(&Reason {
                reason: reason.as_str(),
            })
            .inc();
    }

    /// Counts a refused socket.
    pub fn refusal(&self, reason: &'static str) {
        self.0.refusals.get_or_create(&Reason { reason }).inc();
    }

    /// Counts a socket that the server ended.
    pub fn close(&self, reason: &'static str) {
        self.0.closes.get_or_create(&Reason { reason }).inc();
    }

    /// Counts a fetch of a key set.
    pub fn key_set_fetch(&self, good: bool) {
        let reason = if good { "fetched" } else { "failed" };
        self.0.key_set_fetches.get_or_create(&Reason { reason }).inc();
    }

    /// Counts a call of the management API.
    pub fn management(&self, reason: &'static str) {
        self.0.management.get_or_create(&Reason { reason }).inc();
    }

    /// Counts one event's deliveries, and how long it took from its commit.
    pub fn delivered(&self, event: &ChangeEvent, deliveries: usize, encoded: u64) {
        self.0.deliveries.inc_by(deliveries as u64);
        self.0.frames_encoded.inc_by(encoded);
        if let Some(committed_ms) = unix_ms(&event.commit_timestamp) {
            let now_ms = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_millis() as i64;
            self.0
                .latency
                .observe((now_ms - committed_ms).max(0) as f64 / 1_000.0);
        }
    }
}

impl std::ops::Deref for GatewayMetrics {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::fmt::Debug for GatewayMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GatewayMetrics")
    }
}

/// Milliseconds since 1970 of `YYYY-MM-DDTHH:MM:SS.mmmZ`.
fn unix_ms(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != 24 || bytes[23] != b'Z' {
        return None;
    }
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second, ms) = (part(11, 13)?, part(14, 16)?, part(17, 19)?, part(20, 23)?);
    // Days since 1970 in the Gregorian calendar, years counted from March.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
        - 1
        - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + ms)
}

#[cfg(test)]
mod tests {
    use super::unix_ms;

    #[test]
    fn commit_times_are_read() {
        assert_eq!(unix_ms("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(unix_ms("2026-06-04T10:00:00.123Z"), Some(1_780_567_200_123));
        assert_eq!(unix_ms("2024-02-29T23:59:59.999Z"), Some(1_709_251_199_999));
        assert_eq!(unix_ms("2026-06-04T10:00:00Z"), None);
        assert_eq!(unix_ms(""), None);
    }
}
