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

/// Why a call of the management API was refused: `error.code` of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ApiCode {
    /// No token, or none that the project or its operator made.
    Unauthorized,
    /// The project's token, of a role that may not do this.
    Forbidden,
    /// The API has no such path, or the project is unknown to an operator.
    NotFound,
    /// No base table of that name that the feed could cover.
    TableNotFound,
    /// The path does not take the method.
    MethodNotAllowed,
    /// A parameter or the body breaks a rule.
    InvalidRequest,
    /// The body did not come in time.
    RequestTimeout,
    /// The body is too long.
    BodyTooLarge,
    /// More calls than the project, or the gateway, works on.
    TooManyRequests,
    /// Another transaction holds a lock on the table.
    TableBusy,
    /// The login that provisioned the database may not alter the table.
    TableNotOwned,
    /// The database was not provisioned for this.
    NotProvisioned,
    /// The database, or a service on the way to it, cannot be reached.
    Unavailable,
    /// No answer in time. What was asked for may or may not have been done.
    DeadlineExceeded,
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
    /// Deletes of the table are delivered to service_role alone.
    DeletesWithheld,
    /// The table was emptied.
    Truncated,
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

impl ApiCode {
    /// Every one of them, for whoever describes the API.
    pub const ALL: [Self; 14] = [
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::TableNotFound,
        Self::MethodNotAllowed,
        Self::InvalidRequest,
        Self::RequestTimeout,
        Self::BodyTooLarge,
        Self::TooManyRequests,
        Self::TableBusy,
        Self::TableNotOwned,
        Self::NotProvisioned,
        Self::Unavailable,
        Self::DeadlineExceeded,
    ];

    /// The value of `error.code`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::TableNotFound => "table_not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::InvalidRequest => "invalid_request",
            Self::RequestTimeout => "request_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::TooManyRequests => "too_many_requests",
            Self::TableBusy => "table_busy",
            Self::TableNotOwned => "table_not_owned",
            Self::NotProvisioned => "not_provisioned",
            Self::Unavailable => "unavailable",
            Self::DeadlineExceeded => "deadline_exceeded",
        }
    }

    /// The answer's status.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound | Self::TableNotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::TableBusy | Self::TableNotOwned => 409,
            Self::BodyTooLarge => 413,
            Self::TooManyRequests => 429,
            Self::NotProvisioned | Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        }
    }

    /// Whether the same call may succeed a moment later.
    pub fn is_passing(self) -> bool {
        matches!(
            self,
            Self::RequestTimeout
                | Self::TooManyRequests
                | Self::TableBusy
                | Self::Unavailable
                | Self::DeadlineExceeded
        )
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
            Self::DeletesWithheld => "deletes_withheld",
            Self::Truncated => "truncated",
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
