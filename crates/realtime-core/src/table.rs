//! What a gateway knows of a table for one role: its columns, its key, and whether it can emit.
//!
//! Must never be treated as current for ever: facts carry the position they were read after,
//! and a later `TableChanged` outdates them.

use crate::id::TableRef;

/// A column as a filter needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnFacts {
    /// The column's name.
    pub name: Box<str>,
    /// `pg_type.typname`: `int8`, `_text`, an enum's own name. Of a domain, its base type's.
    pub type_name: Box<str>,
    /// How its values compare.
    pub compare: Comparison,
    /// The role may SELECT it.
    pub readable: bool,
    /// It belongs to the primary key.
    pub key: bool,
}

/// How PostgreSQL compares a type's values, as far as filters follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// `int2`, `int4`, `int8`, `oid`, `numeric`.
    Decimal,
    /// `float4`: compared after rounding to single precision.
    Float4,
    /// `float8`.
    Float8,
    /// `bool`.
    Bool,
    /// `text`, `varchar`, `name` and the like; ordering follows bytes only under such a collation.
    Text {
        /// The column's collation orders by bytes (`C`, `POSIX`), so `gt` and its kin can be judged here.
        ordered_by_bytes: bool,
    },
    /// `char(n)`: like text, trailing blanks ignored.
    PaddedText {
        /// See [`Comparison::Text`].
        ordered_by_bytes: bool,
    },
    /// `uuid`.
    Uuid,
    /// `date`.
    Date,
    /// `time`.
    Time,
    /// `timestamp`.
    Timestamp,
    /// `timestamptz`.
    TimestampTz,
    /// `bytea`.
    Bytea,
    /// An enum, by the order of its labels.
    Enum(Box<[Box<str>]>),
    /// Equality of the printed text only (`json` arrays, composites, ranges and the rest have no
    /// comparison here): every operator is refused.
    Opaque,
}

/// Why a table cannot emit to a role just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CannotEmit {
    /// There is no such table yet.
    NoSuchTable,
    /// It is a view, a materialized or foreign table, a sequence, …
    NotABaseTable,
    /// It is a partition: its root's name is the one that emits.
    Partition,
    /// Its trigger is missing or was switched off.
    OptedOut,
    /// Row security is inactive for this role, and the table is not `realtime_public`.
    RlsDisabled,
    /// The role lacks SELECT, or USAGE on the schema.
    NoPrivilege,
}

/// Facts about a table for one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFacts {
    /// The table.
    pub table: TableRef,
    /// Its oid; 0 where there is none.
    pub relid: u32,
    /// Its columns, in order.
    pub columns: Box<[ColumnFacts]>,
    /// `Some` where nothing would be delivered to the role as things stand.
    pub cannot_emit: Option<CannotEmit>,
    /// Deletes are delivered.
    pub delete_events: bool,
}

impl TableFacts {
    /// A column by its exact name.
    pub fn column(&self, name: &str) -> Option<&ColumnFacts> {
        self.columns.iter().find(|column| &*column.name == name)
    }
}
