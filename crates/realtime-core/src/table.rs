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
    /// `text`, `varchar`, `name` and the like, under a collation where equal means equal bytes.
    Text(Collation),
    /// `char(n)`: like text, trailing blanks ignored.
    PaddedText(Collation),
    /// Text under a nondeterministic collation, where different texts may be equal: whether it is null can be
    /// told, and nothing else.
    FoldedText,
    /// `uuid`.
    Uuid,
    /// `date`.
    Date,
    /// `time`.
    Time,
    /// `timetz`.
    TimeTz,
    /// `timestamp`.
    Timestamp,
    /// `timestamptz`.
    TimestampTz,
    /// `interval`.
    Interval,
    /// `inet`, `cidr`.
    Network,
    /// `bytea`.
    Bytea,
    /// An enum, by the order of its labels.
    Enum(Box<[Box<str>]>),
    /// `jsonb`: equality only.
    Jsonb,
    /// An array whose elements compare so: equality only.
    Array(Box<Element>),
    /// Values have no comparison here: whether one is null can be told, and nothing else.
    Opaque,
    /// Not even that: SQL's null and something else print alike (`json`, composites, casts of a user's own).
    Veiled,
}

/// The elements of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// `pg_type.typname`; of a domain, its base type's.
    pub type_name: Box<str>,
    /// How they compare. Never [`Comparison::Array`], [`Comparison::Jsonb`] or one without a comparison.
    pub compare: Comparison,
}

/// What filters need to know of a column's collation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collation {
    /// It orders by bytes (`C`, `POSIX`, PostgreSQL's builtin ones), so that `gt` and its kin can be judged here.
    pub ordered_by_bytes: bool,
    /// What it takes for letters.
    pub letters: Letters,
}

/// What a collation takes for letters, and how it changes their case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letters {
    /// Not known here.
    Unknown,
    /// `a` to `z` alone (`C`, `POSIX`).
    Ascii,
    /// Letters of many scripts. Those from `a` to `z` are paired as in ASCII; of the others just two have an ASCII
    /// letter for their lower case.
    Wide {
        /// `lower('İ')`, U+0130.
        dotted_i: Box<str>,
        /// `lower('K')`, U+212A.
        kelvin: Box<str>,
    },
}

impl Collation {
    /// `C`.
    pub const C: Self = Self {
        ordered_by_bytes: true,
        letters: Letters::Ascii,
    };

    /// One of which nothing is known.
    pub const UNKNOWN: Self = Self {
        ordered_by_bytes: false,
        letters: Letters::Unknown,
    };
}

/// Why a table cannot emit to a role just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CannotEmit {
    /// There is no such table yet.
    NoSuchTable,
    /// It is something else than a table whose rows this database holds.
    NotABaseTable(RelationKind),
    /// It is a partition: its root's name is the one that emits.
    Partition,
    /// Its trigger is missing or was switched off.
    OptedOut,
    /// Row security is inactive for this role, and the table is not `realtime_public`.
    RlsDisabled,
    /// The role lacks SELECT, or USAGE on the schema.
    NoPrivilege,
}

/// What a relation is that is not a base table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RelationKind {
    /// A view.
    View,
    /// A materialized view.
    MaterializedView,
    /// A foreign table.
    ForeignTable,
    /// A sequence.
    Sequence,
    /// An index, of a partitioned table too.
    Index,
    /// A composite type, or what a newer PostgreSQL knows.
    Other,
}

impl RelationKind {
    /// As it reads in a sentence.
    pub fn noun(self) -> &'static str {
        match self {
            Self::View => "a view",
            Self::MaterializedView => "a materialized view",
            Self::ForeignTable => "a foreign table",
            Self::Sequence => "a sequence",
            Self::Index => "an index",
            Self::Other => "no table",
        }
    }
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
