//! What one client may ask for, and how much of it.
//!
//! Must stay complete: a limit that is enforced anywhere in the gateway is here, with the
//! variable that sets it, so that its error can name it.

use std::time::Duration;

use clap::Args;
use realtime_core::filter::FilterLimits;

use crate::http::edge::EdgeLimits;

/// The limits of a gateway.
#[derive(Debug, Clone, Args)]
pub struct Limits {
    /// Sockets that this gateway holds at once.
    #[arg(long, env = "ANVILBASE_REALTIME_SOCKETS_MAX", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub sockets_max: u32,
    /// Whether a socket that is refused is opened and closed at once, with code and reason, instead of being answered by a status: browsers show their programs neither status nor body.
    #[arg(long, env = "ANVILBASE_REALTIME_REFUSE_BY_CLOSE", default_value_t = false, action = clap::ArgAction::Set)]
    pub refuse_by_close: bool,
    /// Channels on one socket.
    #[arg(long, env = "ANVILBASE_REALTIME_SOCKET_CHANNELS_MAX", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub socket_channels_max: u32,
    /// Change bindings of one channel.
    #[arg(long, env = "ANVILBASE_REALTIME_CHANNEL_BINDINGS_MAX", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub channel_bindings_max: u32,
    /// Size of one change binding in bytes, as the client wrote it: it is kept, and echoed.
    #[arg(long, env = "ANVILBASE_REALTIME_BINDING_BYTES_MAX", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(256..))]
    pub binding_bytes_max: u32,
    /// Length of one filter in bytes.
    #[arg(long, env = "ANVILBASE_REALTIME_FILTER_BYTES_MAX", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub filter_bytes_max: u32,
    /// Conditions of one filter.
    #[arg(long, env = "ANVILBASE_REALTIME_FILTER_CONDITIONS_MAX", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub filter_conditions_max: u32,
    /// Items of one list of a filter.
    #[arg(long, env = "ANVILBASE_REALTIME_FILTER_ITEMS_MAX", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub filter_items_max: u32,
    /// Bytes that one regular expression of a filter may take once compiled.
    #[arg(long, env = "ANVILBASE_REALTIME_PATTERN_BYTES_MAX", default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(4_096..=16_777_216))]
    pub pattern_bytes_max: u32,
    /// Bytes that the patterns of one channel's filters may take together. A regular expression counts as 4,096 bytes at least, a `like` as 1,024.
    #[arg(long, env = "ANVILBASE_REALTIME_CHANNEL_PATTERN_BYTES_MAX", default_value_t = 524_288, value_parser = clap::value_parser!(u32).range(4_096..))]
    pub channel_pattern_bytes_max: u32,
    /// Bytes that the patterns of one socket's filters may take together.
    #[arg(long, env = "ANVILBASE_REALTIME_SOCKET_PATTERN_BYTES_MAX", default_value_t = 2_097_152, value_parser = clap::value_parser!(u32).range(4_096..=536_870_912))]
    pub socket_pattern_bytes_max: u32,
    /// Different patterns that the filters on one table may have, those of all subscribers of this gateway together: each is run on every change of the table.
    #[arg(long, env = "ANVILBASE_REALTIME_TABLE_PATTERNS_MAX", default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub table_patterns_max: u32,
    /// Length of a token in bytes. Its claims go with every question to authz, so that large ones would crowd out others.
    #[arg(long, env = "ANVILBASE_REALTIME_TOKEN_BYTES_MAX", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1_024..=65_536))]
    pub token_bytes_max: u32,
    /// How long a fetched key set (`jwks_url`) is used before it is fetched again, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_JWKS_TTL_SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub jwks_ttl_seconds: u64,
    /// How long a fetched key set counts while it cannot be fetched again, in seconds. After that its keys let nobody in.
    #[arg(long, env = "ANVILBASE_REALTIME_JWKS_STALE_SECONDS_MAX", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub jwks_stale_seconds_max: u64,
    /// How long after a fetch for an unknown key no other unknown key starts one, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_JWKS_COOL_DOWN_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub jwks_cool_down_seconds: u64,
    /// How long fetching a key set may take, in milliseconds. Joins that need it wait as long.
    #[arg(long, env = "ANVILBASE_REALTIME_JWKS_DEADLINE_MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=9_000))]
    pub jwks_deadline_ms: u64,
    /// Size of a fetched key set in bytes.
    #[arg(long, env = "ANVILBASE_REALTIME_JWKS_BYTES_MAX", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1_024..))]
    pub jwks_bytes_max: u32,
    /// Keys of one key set, fetched or from a file. A token is tried on four public ones at most, first on those that its `kid` names: name keys.
    #[arg(long, env = "ANVILBASE_REALTIME_JWKS_KEYS_MAX", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub jwks_keys_max: u32,
    /// Length of a topic in bytes, `realtime:` included.
    #[arg(long, env = "ANVILBASE_REALTIME_TOPIC_BYTES_MAX", default_value_t = 255, value_parser = clap::value_parser!(u32).range(16..))]
    pub topic_bytes_max: u32,
    /// Size of one message from a client, in bytes.
    #[arg(long, env = "ANVILBASE_REALTIME_INBOUND_BYTES_MAX", default_value_t = 5_000_000, value_parser = clap::value_parser!(u32).range(1_024..))]
    pub inbound_bytes_max: u32,
    /// Joins on one socket within a second, and beside them new tokens for its channels.
    #[arg(long, env = "ANVILBASE_REALTIME_SOCKET_JOINS_PER_SECOND_MAX", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub socket_joins_per_second_max: u32,
    /// Change frames that wait for one socket; beyond that the reader is slow and misses changes, with a notice.
    #[arg(long, env = "ANVILBASE_REALTIME_OUTBOX_FRAMES_MAX", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(2..))]
    pub outbox_frames_max: u32,
    /// Bytes of change frames that wait for one socket.
    #[arg(long, env = "ANVILBASE_REALTIME_OUTBOX_BYTES_MAX", default_value_t = 4 << 20, value_parser = clap::value_parser!(u32).range(65_536..))]
    pub outbox_bytes_max: u32,
    /// How long a socket may refuse to take bytes before it is closed with 1013, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_WRITE_DEADLINE_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub write_deadline_seconds: u64,
    /// Connections that this gateway holds at once while they are not sockets yet; further ones wait to be accepted.
    #[arg(long, env = "ANVILBASE_REALTIME_CONNECTIONS_PENDING_MAX", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections_pending_max: u32,
    /// How long a connection may take to ask for its socket, in seconds. What then answers it, and the answer's writing, have the deadlines of those.
    #[arg(long, env = "ANVILBASE_REALTIME_REQUEST_HEAD_SECONDS_MAX", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub request_head_seconds_max: u64,
    /// How often a socket is pinged, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_PING_SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..))]
    pub ping_seconds: u64,
    /// How long a socket may be silent before it counts as dead, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_SILENCE_SECONDS_MAX", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub silence_seconds_max: u64,
    /// How long a socket may stay without a channel, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_UNJOINED_SECONDS_MAX", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub unjoined_seconds_max: u64,
    /// Changes of one project that wait for a verdict.
    #[arg(long, env = "ANVILBASE_REALTIME_GATE_EVENTS_MAX", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    pub gate_events_max: u32,
    /// How long a change waits for its verdict, in milliseconds.
    #[arg(long, env = "ANVILBASE_REALTIME_GATE_DEADLINE_MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub gate_deadline_ms: u64,
    /// Messages of one project's feed that wait for this gateway.
    #[arg(long, env = "ANVILBASE_REALTIME_FEED_MESSAGES_MAX", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..))]
    pub feed_messages_max: u32,
    /// How long a project's feed is kept after its last channel left, in seconds.
    #[arg(long, env = "ANVILBASE_REALTIME_FEED_LINGER_SECONDS", default_value_t = 30)]
    pub feed_linger_seconds: u64,
    /// Calls of the management API that are worked on at once, of all projects; two of one project.
    #[arg(long, env = "ANVILBASE_REALTIME_MANAGEMENT_CALLS_MAX", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub management_calls_max: u32,
    /// Calls of the management API for one project within a second.
    #[arg(long, env = "ANVILBASE_REALTIME_MANAGEMENT_CALLS_PER_SECOND_MAX", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub management_calls_per_second_max: u32,
    /// Size of the body of such a call, in bytes.
    #[arg(long, env = "ANVILBASE_REALTIME_MANAGEMENT_BODY_BYTES_MAX", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(256..=1_048_576))]
    pub management_body_bytes_max: u32,
    /// Longest time of such a call, in milliseconds.
    #[arg(long, env = "ANVILBASE_REALTIME_MANAGEMENT_DEADLINE_MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub management_deadline_ms: u64,
}

impl Limits {
    /// The limits where no argument and no variable says otherwise.
    pub fn defaults() -> Self {
        use clap::{Command, FromArgMatches as _};
        let matches =
            Self::augment_args(Command::new("limits").no_binary_name(true)).get_matches_from([""; 0]);
        // Every field has a default, so that no arguments are valid arguments.
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The limits of one filter.
    pub(crate) fn filter(&self) -> FilterLimits {
        FilterLimits {
            bytes_max: self.filter_bytes_max as usize,
            conditions_max: self.filter_conditions_max as usize,
            items_max: self.filter_items_max as usize,
            pattern_bytes_max: self.pattern_bytes_max as usize,
        }
    }

    pub(crate) fn write_deadline(&self) -> Duration {
        Duration::from_secs(self.write_deadline_seconds)
    }

    pub(crate) fn edge(&self) -> EdgeLimits {
        let head = Duration::from_secs(self.request_head_seconds_max);
        // What answering may wait for: the database, or a project's key set.
        let jwks = Duration::from_millis(self.jwks_deadline_ms);
        let answering = self.management_deadline().max(jwks);
        EdgeLimits {
            head,
            request: head + answering + self.write_deadline(),
            pending_max: self.connections_pending_max as usize,
        }
    }

    pub(crate) fn ping(&self) -> Duration {
        Duration::from_secs(self.ping_seconds)
    }

    pub(crate) fn silence_max(&self) -> Duration {
        Duration::from_secs(self.silence_seconds_max)
    }

    pub(crate) fn gate_deadline(&self) -> Duration {
        Duration::from_millis(self.gate_deadline_ms)
    }

    pub(crate) fn management_deadline(&self) -> Duration {
        Duration::from_millis(self.management_deadline_ms)
    }

    pub(crate) fn feed_linger(&self) -> Duration {
        Duration::from_secs(self.feed_linger_seconds)
    }
}
