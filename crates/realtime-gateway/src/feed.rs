//! From a project's feed on the bus to the outboxes of the sessions that it concerns.
//!
//! Must never deliver without a verdict, out of order, or after a loss that it has not
//! announced (invariants 2 and 6).

pub mod actor;
pub mod attach;
pub mod encode;
pub mod gate;
pub mod lanes;
pub mod owners;
pub mod patterns;
pub mod prepare;
pub mod registry;
pub mod subscribers;
pub mod tables;
pub mod track;

use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use realtime_core::change::Position;
use realtime_core::claims::Claims;
use realtime_core::code::{Code, Hint};
use realtime_core::filter::{BoundFilter, FilterError, FilterExpr};
use realtime_core::view::Selection;
use realtime_core::wire::phoenix::BindingParams;
use tokio::sync::OwnedSemaphorePermit;

use crate::ids::ChannelIds;
use crate::session::SessionId;
use crate::session::channel::{ChannelKey, ChannelTag};
use crate::session::mail::Mail;
use crate::session::outbox::Outbox;

/// A channel's bindings, looked up for one role.
#[derive(Debug)]
pub struct Prepared {
    /// Their numbers, in the same order.
    pub ids: ChannelIds,
    /// The bindings, in the client's order.
    pub bindings: Vec<PreparedBinding>,
    /// The last change of tables that the look-up took into account.
    pub facts: Position,
    /// What of the socket's patterns its filters take, held for as long as they are; `None`: nothing.
    pub patterns: Option<OwnedSemaphorePermit>,
    /// Its hold on what its filters' tables may have of different patterns; `None`: nothing.
    pub table_patterns: Option<patterns::Hold>,
}

/// One binding, looked up.
#[derive(Debug, Clone)]
pub struct PreparedBinding {
    /// The binding as the client wrote it.
    pub params: BindingParams,
    /// Its filter.
    pub filter: PreparedFilter,
    /// The columns that it shows, where it does not show all.
    pub selection: Option<Selection>,
    /// Why nothing, or not all, will arrive as things stand.
    pub hint: Option<Hint>,
    /// Its sentence, where it has one of its own.
    pub hint_text: Option<Box<str>>,
}

/// A binding's filter.
#[derive(Debug, Clone)]
pub enum PreparedFilter {
    /// There is none.
    None,
    /// Bound to the table as it is.
    Bound(FilterExpr, BoundFilter),
    /// Cannot be bound before the table changes: until then nothing matches.
    Unbound(FilterExpr),
}

/// Why a channel's bindings cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// A filter is not valid.
    #[error("{}: binding {binding}: {error}", Code::InvalidBinding.as_str())]
    Filter {
        /// The binding's index.
        binding: usize,
        /// The rule that it breaks.
        error: FilterError,
    },
    /// A column that is selected does not exist, or may not be read: which of the two is not told.
    #[error("{}: binding {binding}: select: invalid column {column:?}", Code::InvalidBinding.as_str())]
    Select {
        /// The binding's index.
        binding: usize,
        /// The column.
        column: Box<str>,
    },
    /// The filters' patterns take too much together.
    #[error(
        "{}: binding {binding}: the patterns of all filters of a {of} take more than {bytes_max} bytes together",
        Code::InvalidBinding.as_str()
    )]
    Patterns {
        /// The index of the binding that is one too many.
        binding: usize,
        /// What is limited: `channel` or `socket`.
        of: &'static str,
        /// The limit.
        bytes_max: u32,
    },
    /// The filters of all subscribers have too many patterns.
    #[error(
        "{}: binding {binding}: the filters of all subscribers of a table have more than {patterns_max} different patterns together",
        Code::InvalidBinding.as_str()
    )]
    TablePatterns {
        /// The index of the binding that is one too many.
        binding: usize,
        /// The limit.
        patterns_max: u32,
    },
    /// Facts could not be read.
    #[error("{}: Realtime was unable to connect to the project database", Code::UnableToConnectToProject.as_str())]
    Unavailable,
    /// The feed did not come up in time for a join that waits.
    #[error("{}: Timed out after {waited_ms}ms waiting for the postgres_changes subscription", Code::SubscribeTimeout.as_str())]
    Timeout {
        /// How long the join waited.
        waited_ms: u64,
    },
    /// The gateway has used up its numbers for bindings.
    #[error("{}: Realtime is restarting, please standby", Code::Restarting.as_str())]
    NoIds,
}

/// A channel that is to get changes.
#[derive(Debug)]
pub struct Subscription {
    /// Its session.
    pub session: SessionId,
    /// How its frames are addressed.
    pub tag: Arc<ChannelTag>,
    /// Where they go.
    pub outbox: Arc<Outbox>,
    /// Where it is told that it is live.
    pub mail: Arc<Mail>,
    /// Who it runs as.
    pub claims: Claims,
    /// Which of its identities that is.
    pub generation: u64,
    /// Its bindings.
    pub prepared: Prepared,
}

/// A channel of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriberId {
    /// The session.
    pub session: SessionId,
    /// The channel within it.
    pub channel: ChannelKey,
}

/// What a session tells a feed. Taken in order.
#[derive(Debug)]
pub enum Command {
    /// Deliver to a channel; replaces what it had.
    Subscribe(Box<Subscription>),
    /// Go on under another identity of the same role: what is being judged for the old one is
    /// not delivered.
    Identify {
        /// The channel.
        subscriber: SubscriberId,
        /// Who it runs as now.
        claims: Claims,
        /// Which of its identities that is.
        generation: u64,
    },
    /// Deliver nothing to a channel until its next `Subscribe`.
    Suspend(SubscriberId),
    /// A channel is over.
    Unsubscribe(SubscriberId),
}

impl Prepared {
    /// The `response` of the join's reply.
    pub fn response(&self) -> String {
        let replies = self.bindings.iter().zip(self.ids.as_slice());
        let replies: Vec<String> = replies.map(|(binding, id)| binding.params.reply(*id)).collect();
        format!(r#"{{"postgres_changes":[{}]}}"#, replies.join(","))
    }

    /// The frames that say why nothing will arrive for a binding.
    pub fn hints(&self, tag: &ChannelTag) -> Vec<Utf8Bytes> {
        let hinted = self
            .bindings
            .iter()
            .enumerate()
            .filter_map(|(index, b)| Some((index, b.hint?, b.hint_text.as_deref())));
        hinted
            .map(|(index, hint, text)| {
                tag.hint(hint, Some(index), text.unwrap_or_else(|| hint_text(hint)), &[])
            })
            .collect()
    }
}

impl PreparedFilter {
    /// As it was written; `None`: there is none.
    fn expression(&self) -> Option<&FilterExpr> {
        match self {
            Self::None => None,
            Self::Bound(filter, _) | Self::Unbound(filter) => Some(filter),
        }
    }

    /// What its patterns are charged with; before they are bound, the least.
    fn pattern_bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bound(_, bound) => bound.pattern_bytes(),
            Self::Unbound(filter) => filter.pattern_bytes_min(),
        }
    }
}

impl PrepareError {
    /// Whether trying again may succeed.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Filter { .. } | Self::Select { .. } | Self::Patterns { .. } => false,
            // Others come and go.
            Self::TablePatterns { .. } | Self::Unavailable | Self::Timeout { .. } | Self::NoIds => true,
        }
    }
}

/// The sentence of a hint.
pub fn hint_text(hint: Hint) -> &'static str {
    match hint {
        Hint::Gap => "Some changes may have been missed: read again what you depend on",
        Hint::Deferred => "The project waits for capacity: no changes arrive until a listener has room",
        Hint::NoSuchTable => "There is no such table yet: changes arrive once it exists",
        Hint::NotABaseTable => "This is not a base table: no changes arrive",
        Hint::Partition => "This is a partition: its changes arrive under the partitioned table's name",
        Hint::OptedOut => "The table is not on the change feed: no changes arrive",
        Hint::RlsDisabled => "Row security is off and the table is not realtime_public: no changes arrive",
        Hint::NoPrivilege => "The role may not SELECT from the table: no changes arrive",
        Hint::DeleteFilter => "A DELETE carries key columns only: with this filter none arrives",
        Hint::DeletesWithheld => "Deletes of this table are withheld from this role: none arrives",
        Hint::Truncated => "The table, or a part of it, was emptied: read again what you depend on",
        Hint::PolicyError => {
            "A row security policy raised an error for this token: the change was not delivered"
        }
        Hint::FilterOutdated => "The filter no longer fits the table: nothing matches until it does",
    }
}
