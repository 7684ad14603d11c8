//! The answer to "may this subscriber see this change", and how much of it.
//!
//! Must never be made up: a verdict comes from authz, or from the one rule that needs no
//! database (service_role). Whatever is missing, late or failed is a drop (invariant 2).

use std::sync::Arc;

use crate::claims::Role;

/// May the change be delivered, and which parts of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Deliver what the grant names.
    Deliver(Grant),
    /// Deliver nothing.
    Drop(DropReason),
}

/// How much of a change a subscriber may see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    /// UPDATE: the prior row was visible too.
    pub old_visible: bool,
    /// A DELETE shows its whole old row, not only the key. service_role alone.
    pub whole_deletes: bool,
    /// The columns that the role may SELECT.
    pub readable: Readable,
}

/// The columns that a role may read. An empty list means none: "all" is a case of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Readable {
    /// Every column.
    All,
    /// Just these.
    Only(Arc<[Box<str>]>),
}

/// Why a change is not delivered to a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The policies hide the row.
    NotVisible,
    /// Row security is inactive for the role, and the table is not `realtime_public`.
    RlsDisabled,
    /// The role lacks SELECT on the table.
    NoPrivilege,
    /// A reference event of a table without a key cannot be checked.
    NoKey,
    /// The table withholds its deletes.
    DeletesWithheld,
    /// A policy raised an error for these claims.
    PolicyError,
    /// The row's text could not be turned back into a row.
    ImageUnreadable,
    /// No connection became free in time.
    PoolSaturated,
    /// The answer came too late.
    Deadline,
    /// The database could not be reached or failed.
    DatabaseUnavailable,
    /// authz could not be reached.
    AuthzUnavailable,
}

impl DropReason {
    /// Whether the change might have been visible, had the system worked: such a drop is a loss
    /// and must be announced by a gap notice. A policy error is the subscriber's own and is told to it alone.
    pub fn is_loss(self) -> bool {
        match self {
            Self::ImageUnreadable
            | Self::PoolSaturated
            | Self::Deadline
            | Self::DatabaseUnavailable
            | Self::AuthzUnavailable => true,
            Self::NotVisible
            | Self::RlsDisabled
            | Self::NoPrivilege
            | Self::NoKey
            | Self::DeletesWithheld
            | Self::PolicyError => false,
        }
    }

    /// A stable name for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotVisible => "not_visible",
            Self::RlsDisabled => "rls_disabled",
            Self::NoPrivilege => "no_privilege",
            Self::NoKey => "no_key",
            Self::DeletesWithheld => "deletes_withheld",
            Self::PolicyError => "policy_error",
            Self::ImageUnreadable => "image_unreadable",
            Self::PoolSaturated => "pool_saturated",
            Self::Deadline => "deadline",
            Self::DatabaseUnavailable => "database_unavailable",
            Self::AuthzUnavailable => "authz_unavailable",
        }
    }
}

impl Readable {
    /// Whether a column may be read.
    pub fn allows(&self, column: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(columns) => columns.iter().any(|name| &**name == column),
        }
    }
}

impl Verdict {
    /// The verdict for service_role, the only one that needs no question: it bypasses row
    /// security in the database too. `None` for every other role.
    pub fn for_service(role: &Role) -> Option<Self> {
        role.is_service().then_some(Self::Deliver(Grant {
            old_visible: true,
            whole_deletes: true,
            readable: Readable::All,
        }))
    }
}
