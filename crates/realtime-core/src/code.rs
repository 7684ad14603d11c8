//! The closed list of every reason that a client or an operator may be given.
//!
//! Must never be extended by free text: clients and dashboards match on these names, and some
//! SDKs decide by the name before the colon whether to try again.

/// Why a request was refused, as clients know it: `"<name>: <sentence>"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The topic has no name after `realtime:`.
    TopicNameRequired,
    /// The token is expired, not yet valid, or lacks a claim that it must have.
    InvalidJwtToken,
    /// The token is not a JWT.
    MalformedJwt,
    /// The token was not signed by this project.
    JwtSignatureError,
    /// The key is none of this project's, or is missing.
    InvalidApiKey,
    /// The keys that tokens are checked by cannot be had just now.
    KeysUnavailable,
    /// The token's role is not one that the project lets tokens name.
    Unauthorized,
    /// A binding is not valid.
    InvalidBinding,
    /// The feed did not come up in time for a join that waits for it.
    SubscribeTimeout,
    /// Too many channels on the socket.
    TooManyChannels,
    /// Too many sockets.
    TooManyConnections,
    /// Too many joins in a second.
    TooManyJoins,
    /// No such project.
    TenantNotFound,
    /// The gateway is shutting down.
    Restarting,
    /// Table facts could not be read just now.
    UnableToConnectToProject,
}

/// A code in a `system` frame of status `ok`: something that the subscriber should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hint {
    /// Events may have been missed; see [`GapReason`].
    Gap,
    /// All listeners are full: nothing arrives until one has room.
    Deferred,
    /// There is no such table yet.
    NoSuchTable,
    /// Not a base table.
    NotABaseTable,
    /// A partition: subscribe to its root.
    Partition,
    /// The table was taken off the feed.
    OptedOut,
    /// Row security is off, and the table is not `realtime_public`.
    RlsDisabled,
    /// The role lacks SELECT.
    NoPrivilege,
    /// A DELETE cannot be delivered under this filter.
    DeleteFilter,
    /// A policy raised an error for this subscriber's claims.
    PolicyError,
    /// A filter no longer fits the table: its column is gone or has changed its type.
    FilterOutdated,
}

/// What made a hole in the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GapReason {
    /// The listener's session was lost and opened anew.
    ListenerReconnect,
    /// The project's feed moved to another listener, or messages of the feed are missing.
    FeedInterrupted,
    /// The listener could not hand events to the bus fast enough.
    PublishBacklog,
    /// The gateway could not take events from the bus fast enough, or the bus reconnected.
    BusOverflow,
    /// Too many events waited for a verdict.
    GateBacklog,
    /// No database connection became free for a verdict.
    PoolSaturated,
    /// A verdict came too late.
    Deadline,
    /// authz, or the database behind it, could not be reached.
    AuthzUnavailable,
    /// A row could not be checked or shown.
    RowUnreadable,
    /// The subscriber read too slowly.
    SlowReader,
    /// The database's trigger could not describe a row.
    TriggerFailed,
    /// The subscriber's token changed while events were being checked.
    TokenChanged,
    /// Table facts could not be read in time after a change of the table.
    FactsUnavailable,
}

impl Code {
    /// The name that clients see before the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TopicNameRequired => "TopicNameRequired",
            Self::InvalidJwtToken => "InvalidJWTToken",
            Self::MalformedJwt => "MalformedJWT",
            Self::JwtSignatureError => "JwtSignatureError",
            Self::InvalidApiKey => "InvalidApiKey",
            Self::KeysUnavailable => "KeysUnavailable",
            Self::Unauthorized => "Unauthorized",
            Self::InvalidBinding => "RealtimeDisabledForConfiguration",
            Self::SubscribeTimeout => "PostgresChangesSubscribeTimeout",
            Self::TooManyChannels => "ChannelRateLimitReached",
            Self::TooManyConnections => "ConnectionRateLimitReached",
            Self::TooManyJoins => "ClientJoinRateLimitReached",
            Self::TenantNotFound => "TenantNotFound",
            Self::Restarting => "RealtimeRestarting",
            Self::UnableToConnectToProject => "UnableToConnectToProject",
        }
    }

    /// The status of an HTTP answer that refuses for this reason.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidJwtToken | Self::MalformedJwt | Self::JwtSignatureError | Self::InvalidApiKey => 401,
            Self::Unauthorized => 403,
            Self::TenantNotFound => 404,
            Self::TopicNameRequired | Self::InvalidBinding => 400,
            Self::TooManyChannels | Self::TooManyConnections | Self::TooManyJoins => 429,
            Self::Restarting
            | Self::UnableToConnectToProject
            | Self::SubscribeTimeout
            | Self::KeysUnavailable => 503,
        }
    }
}

impl Hint {
    /// The value of `code` in the frame.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Deferred => "deferred",
            Self::NoSuchTable => "no_such_table",
            Self::NotABaseTable => "not_a_base_table",
            Self::Partition => "partition",
            Self::OptedOut => "opted_out",
            Self::RlsDisabled => "rls_disabled",
            Self::NoPrivilege => "no_privilege",
            Self::DeleteFilter => "delete_filter",
            Self::PolicyError => "policy_error",
            Self::FilterOutdated => "filter_outdated",
        }
    }
}

impl GapReason {
    /// The value of `reason` in the frame, and of the label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ListenerReconnect => "listener_reconnect",
            Self::FeedInterrupted => "feed_interrupted",
            Self::PublishBacklog => "publish_backlog",
            Self::BusOverflow => "bus_overflow",
            Self::GateBacklog => "gate_backlog",
            Self::PoolSaturated => "pool_saturated",
            Self::Deadline => "deadline",
            Self::AuthzUnavailable => "authz_unavailable",
            Self::RowUnreadable => "row_unreadable",
            Self::SlowReader => "slow_reader",
            Self::TriggerFailed => "trigger_failed",
            Self::TokenChanged => "token_changed",
            Self::FactsUnavailable => "facts_unavailable",
        }
    }

    /// The reason of a name, for messages between our processes.
    pub fn parse(name: &str) -> Option<Self> {
        const ALL: [GapReason; 13] = [
            GapReason::ListenerReconnect,
            GapReason::FeedInterrupted,
            GapReason::PublishBacklog,
            GapReason::BusOverflow,
            GapReason::GateBacklog,
            GapReason::PoolSaturated,
            GapReason::Deadline,
            GapReason::AuthzUnavailable,
            GapReason::RowUnreadable,
            GapReason::SlowReader,
            GapReason::TriggerFailed,
            GapReason::TokenChanged,
            GapReason::FactsUnavailable,
        ];
        ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}
