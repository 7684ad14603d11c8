//! One committed change of one row, with the row's own text.
//!
//! Must never parse a value into a float or print it again (invariant 3): rows are moved as
//! text and cut by column, so int8 and numeric survive byte for byte.

mod row;

pub use row::{Column, Row, RowError};

use crate::id::TableRef;

/// What happened to the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new row.
    Insert,
    /// A changed row.
    Update,
    /// A removed row.
    Delete,
}

/// A mark on an event that is not a whole row change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Marker {
    /// The row did not fit a notification: `new` and `old` hold the key columns only.
    PayloadTooLarge,
}

/// Where in a project's feed an event stands: a later listener session has a greater epoch, and
/// within an epoch the sequence rises by one per message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The listener session.
    pub epoch: u64,
    /// The message within that session, from 1.
    pub seq: u64,
}

/// A key column, with the name of its type as the catalog gives it (`int8`, `_text`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// The column's name.
    pub name: Box<str>,
    /// `pg_type.typname` of its type.
    pub type_name: Box<str>,
}

/// One committed row change, as the database's trigger described it.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// Unique per event: the trigger's nonce.
    pub id: Box<str>,
    /// The relation's oid; of a partitioned table, the root's.
    pub relid: u32,
    /// The table as it was named when the row changed.
    pub table: TableRef,
    /// What happened.
    pub operation: Operation,
    /// RFC 3339, UTC, three digits, `Z`.
    pub commit_timestamp: Box<str>,
    /// The row after the change; `None` on DELETE.
    pub new: Option<Row>,
    /// The row before the change; `None` on INSERT.
    pub old: Option<Row>,
    /// The table's key, in key order. Known for every DELETE and every marked event (an empty
    /// list: the table has no key); `None` otherwise.
    pub primary_key: Option<Box<[KeyColumn]>>,
    /// Set when the event is a reference to a row and not the row.
    pub marker: Option<Marker>,
    /// Its place in the project's feed.
    pub position: Position,
}

impl Operation {
    /// The name on the wire, upper case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

impl Marker {
    /// The text that clients see in `errors`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PayloadTooLarge => "payload_too_large",
        }
    }
}

impl ChangeEvent {
    /// The image that filters look at: the new row, or of a DELETE the old one.
    pub fn subject_row(&self) -> Option<&Row> {
        match self.operation {
            Operation::Delete => self.old.as_ref(),
            Operation::Insert | Operation::Update => self.new.as_ref(),
        }
    }

    /// Whether the event only refers to its row by key.
    pub fn is_reference(&self) -> bool {
        self.marker.is_some()
    }

    /// Whether a column belongs to the key that the event carries. False when it carries none.
    pub fn is_key_column(&self, name: &str) -> bool {
        self.primary_key
            .as_deref()
            .unwrap_or_default()
            .iter()
            .any(|column| &*column.name == name)
    }
}
