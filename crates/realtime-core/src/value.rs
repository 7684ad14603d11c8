//! Typed comparison as PostgreSQL compares: a constant of a filter, bound once to its column's
//! type, against the JSON text of that column in a row.
//!
//! Must never guess: a constant that PostgreSQL's own input function would refuse is refused, and
//! so is one that it would read in a way that depends on settings. Must never put a value into
//! an error, and never take a decimal through a float.
//!
//! Both sides become a *key*: bytes whose order is PostgreSQL's order of the values, so that
//! equal values have equal keys (`1` and `1.00`, a uuid in either case, one instant at two
//! offsets), and one `memcmp`, one hash or one sorted map does the rest.
//!
//! # What is refused although PostgreSQL takes it
//!
//! - whole numbers and numerics: hexadecimal, octal, binary and `_` spellings (PostgreSQL 16),
//!   blanks inside a number, a negative `oid`, one with leading zeros;
//! - floats: hexadecimal spellings, `nan(…)`;
//! - `name` longer than 63 bytes and `"char"` longer than one (PostgreSQL cuts them silently);
//! - dates and times: everything but `YYYY-MM-DD`, `HH:MM[:SS[.f…]]`, both joined by one blank or
//!   `T`, an offset `Z`, `±HH`, `±HHMM`, `±HH:MM` or `±HH:MM:SS` directly behind the time, ` BC` or
//!   ` AD` at the end, and `infinity`; so no month names, no `now`, no time zone names, no second
//!   60, no date with a time for `date`, no offset for `time`;
//! - `interval`: everything but whole numbers of units from `years` to `seconds` (seconds with up to six digits
//!   behind the point) in that order, each once and of at most six digits, with `HH:MM[:SS[.f…]]` at the end in place of
//!   the last three, or the same as ISO 8601 `P1Y2M3W4DT5H6M7.5S`; so no `ago`, no `century`, no `infinity`;
//! - `inet` and `cidr`: everything but all four octets without leading zeros, or an IPv6 address (with all four octets at its
//!   end or none), each with `/bits` or without;
//! - `bytea`: the escape format, and blanks between hexadecimal digits;
//! - `jsonb`: more than 100 levels; and where it would have to match, the JSON value `null`, which prints as SQL's null does;
//! - arrays: bounds (`[0:1]={…}`), empty arrays within arrays, more than six dimensions.
//!
//! # Where a printed value is less than the value
//!
//! - a `jsonb` column that holds the JSON value `null` prints as SQL's null: it counts as null, which matches nothing;
//! - an array's lower bounds are not printed: they are taken to be 1.
//!
//! # Where PostgreSQL's reading depends on settings
//!
//! The session is taken to be what the feed itself pins: `timezone = UTC`, `datestyle = ISO`. So a
//! `timestamptz` or `timetz` without an offset is UTC; and, as in PostgreSQL, the offset of a constant for a
//! `timestamp` is ignored. Type modifiers are not applied to constants (`numeric(10,2)`, `char(5)`).

mod array;
mod datetime;
mod decimal;
mod float;
mod interval;
mod json;
mod network;
mod text;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::table::{ColumnFacts, Comparison};

/// Bytes whose order is PostgreSQL's order of the values of one [`ValueKind`]. Private data.
pub type Key = Box<[u8]>;

/// How the JSON text of a column's value becomes a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// `int2`, `int4`, `int8`, `oid`, `numeric`.
    Decimal,
    /// `float4`.
    Float4,
    /// `float8`.
    Float8,
    /// `bool`.
    Bool,
    /// Text compared by bytes.
    Text,
    /// `char(n)`: trailing blanks ignored.
    PaddedText,
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
    /// An enum, its labels in order.
    Enum(Arc<[Box<str>]>),
    /// `timetz`.
    TimeTz,
    /// `interval`.
    Interval,
    /// `inet`, `cidr`.
    Network,
    /// `jsonb`.
    Jsonb,
    /// An array, by the type's name and the kind of its elements. Keys tell equality, not order.
    Array(Arc<(Box<str>, ValueKind)>),
    /// Any type: every value but `null` has the same key, the empty one.
    Presence,
}

/// A constant bound to a column's type. Its value is private: `Debug` shows the type only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Constant {
    kind: ValueKind,
    key: Key,
}

/// Why a text is not a constant of the column's type. Carries no part of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Values of the type are not compared here.
    #[error("values of this type cannot be compared")]
    NotComparable,
    /// Not in a form that is read.
    #[error("the value must be {expected}")]
    Malformed {
        /// What would be read.
        expected: &'static str,
    },
    /// The JSON value `null` where a row would have to equal it.
    #[error("the JSON value null cannot be told from SQL's null")]
    JsonNull,
    /// Well formed, but no value of the type.
    #[error("the value is out of range for {type_name}")]
    OutOfRange {
        /// The type.
        type_name: &'static str,
    },
}

impl ValueKind {
    /// The kind of a comparison; `None` where values are not compared here.
    pub fn of(compare: &Comparison) -> Option<Self> {
        Some(match compare {
            Comparison::Decimal => Self::Decimal,
            Comparison::Float4 => Self::Float4,
            Comparison::Float8 => Self::Float8,
            Comparison::Bool => Self::Bool,
            Comparison::Text(_) => Self::Text,
            Comparison::PaddedText(_) => Self::PaddedText,
            Comparison::Uuid => Self::Uuid,
            Comparison::Date => Self::Date,
            Comparison::Time => Self::Time,
            Comparison::Timestamp => Self::Timestamp,
            Comparison::TimestampTz => Self::TimestampTz,
            Comparison::Bytea => Self::Bytea,
            Comparison::Enum(labels) => Self::Enum(labels.iter().cloned().collect()),
            Comparison::TimeTz => Self::TimeTz,
            Comparison::Interval => Self::Interval,
            Comparison::Network => Self::Network,
            Comparison::Jsonb => Self::Jsonb,
            Comparison::Array(element) => {
                let kind = Self::of(&element.compare).filter(Self::is_scalar)?;
                Self::Array(Arc::new((element.type_name.clone(), kind)))
            }
            Comparison::FoldedText | Comparison::Opaque | Comparison::Veiled => return None,
        })
    }

    /// Whether keys follow the order of the values, and not only tell equal ones.
    pub fn is_ordered(&self) -> bool {
        !matches!(self, Self::Jsonb | Self::Array(_) | Self::Presence)
    }

    /// Whether a value prints as a JSON scalar.
    fn is_scalar(&self) -> bool {
        self.is_ordered()
    }

    /// Reads the JSON text of a row's value and appends its key to `out`. `None`, with `out` in any
    /// state, where there is nothing to compare: `null`, or a text that is no value of the kind (the
    /// column has changed its type).
    pub fn read(&self, row_json: &str, out: &mut Vec<u8>) -> Option<()> {
        if row_json == "null" {
            return None;
        }
        match self {
            Self::Decimal => decimal::encode(text::bare(row_json), out),
            Self::Float4 => float::encode4(text::bare(row_json), out).ok(),
            Self::Float8 => float::encode8(text::bare(row_json), out).ok(),
            Self::Bool => match row_json {
                "true" => push(out, &[1]),
                "false" => push(out, &[0]),
                _ => None,
            },
            Self::Text => push(out, text::unquote(row_json)?.as_bytes()),
            Self::PaddedText => push(out, text::unquote(row_json)?.trim_end_matches(' ').as_bytes()),
            Self::Uuid => push(out, &text::uuid(&text::unquote(row_json)?)?),
            Self::Date => push(out, &ordered(datetime::date(&text::unquote(row_json)?).ok()?)),
            Self::Time => push(out, &ordered(datetime::time(&text::unquote(row_json)?).ok()?)),
            Self::Timestamp => push(
                out,
                &ordered(datetime::timestamp(&text::unquote(row_json)?).ok()?),
            ),
            Self::TimestampTz => push(
                out,
                &ordered(datetime::timestamptz(&text::unquote(row_json)?).ok()?),
            ),
            Self::Bytea => text::bytea(&text::unquote(row_json)?, out),
            Self::Enum(labels) => push(out, &label(labels, &text::unquote(row_json)?)?),
            Self::TimeTz => push(out, &datetime::timetz(&text::unquote(row_json)?).ok()?),
            Self::Interval => push(out, &interval::read(&text::unquote(row_json)?)?),
            Self::Network => network::encode(&text::unquote(row_json)?, out),
            Self::Jsonb => json::encode_row(row_json, out),
            Self::Array(element) => array::read(&element.1, row_json, out),
            Self::Presence => Some(()),
        }
    }
}

impl Constant {
    /// Reads a constant as PostgreSQL's input function of the column's type does; see the module
    /// for what is refused on purpose.
    pub fn bind(column: &ColumnFacts, text: &str) -> Result<Self, ValueError> {
        let kind = ValueKind::of(&column.compare).ok_or(ValueError::NotComparable)?;
        Self::bind_as(kind, &column.type_name, text)
    }

    /// As [`Constant::bind`], for a kind that was made once for several constants.
    pub fn bind_as(kind: ValueKind, type_name: &str, text: &str) -> Result<Self, ValueError> {
        if text.contains('\0') {
            return Err(ValueError::Malformed {
                expected: "text without U+0000",
            });
        }
        let mut key = Vec::new();
        match &kind {
            ValueKind::Decimal => decimal::bind(type_name, text::trim(text), &mut key)?,
            ValueKind::Float4 => float::encode4(text::trim(text), &mut key)?,
            ValueKind::Float8 => float::encode8(text::trim(text), &mut key)?,
            ValueKind::Bool => key.push(u8::from(text::boolean(text::trim(text)).ok_or(
                ValueError::Malformed {
                    expected: "a boolean (true, false, t, f, yes, no, on, off, 1, 0)",
                },
            )?)),
            ValueKind::Text => key.extend(text::catalog_text(type_name, text)?.as_bytes()),
            ValueKind::PaddedText => key.extend(text.trim_end_matches(' ').as_bytes()),
            ValueKind::Uuid => {
                key.extend(text::uuid(text).ok_or(ValueError::Malformed { expected: "a uuid" })?);
            }
            ValueKind::Date => key.extend(ordered(datetime::date(text::trim(text))?)),
            ValueKind::Time => key.extend(ordered(datetime::time(text::trim(text))?)),
            ValueKind::Timestamp => key.extend(ordered(datetime::timestamp(text::trim(text))?)),
            ValueKind::TimestampTz => key.extend(ordered(datetime::timestamptz(text::trim(text))?)),
            ValueKind::Bytea => text::bytea(text, &mut key).ok_or(ValueError::Malformed {
                expected: r"\x and pairs of hexadecimal digits",
            })?,
            ValueKind::Enum(labels) => key.extend(label(labels, text).ok_or(ValueError::Malformed {
                expected: "a label of the enum",
            })?),
            ValueKind::TimeTz => key.extend(datetime::timetz(text::trim(text))?),
            ValueKind::Interval => key.extend(interval::bind(text)?),
            ValueKind::Network => network::bind(type_name, text, &mut key)?,
            ValueKind::Jsonb => json::bind(text, &mut key)?,
            ValueKind::Array(element) => array::bind(element, text, &mut key)?,
            ValueKind::Presence => return Err(ValueError::NotComparable),
        }
        Ok(Self {
            kind,
            key: key.into(),
        })
    }

    /// How a row's value (the left side) stands to this constant. `None` is SQL's unknown: `null`, or
    /// a text that is no value of the type.
    pub fn compare(&self, row_json: &str) -> Option<Ordering> {
        let mut key = Vec::new();
        self.kind.read(row_json, &mut key)?;
        Some((*key).cmp(&*self.key))
    }

    /// How values of its column are read.
    pub fn kind(&self) -> &ValueKind {
        &self.kind
    }

    /// Whether it is the JSON value `null`, which no row can be seen to hold.
    pub fn is_json_null(&self) -> bool {
        self.kind == ValueKind::Jsonb && *self.key == json::NULL
    }

    /// Its key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Gives up its key.
    pub fn into_key(self) -> Key {
        self.key
    }
}

/// A value is private data: only the type is shown.
impl fmt::Debug for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            ValueKind::Enum(_) => "Enum".to_owned(),
            ValueKind::Array(_) => "Array".to_owned(),
            other => format!("{other:?}"),
        };
        write!(f, "Constant({kind})")
    }
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend_from_slice(bytes);
    Some(())
}

/// A signed number as bytes of the same order.
fn ordered(number: i64) -> [u8; 8] {
    (number ^ i64::MIN).to_be_bytes()
}

fn label(labels: &[Box<str>], text: &str) -> Option<[u8; 4]> {
    let position = labels.iter().position(|label| &**label == text)?;
    Some(u32::try_from(position).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests;
