//! The text of one notification from the database's trigger, and what it says.
//!
//! Must never trust the text: whoever learns the channel's name can send one. A text that is
//! not an envelope is an error that carries no part of it.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::change::{ChangeEvent, KeyColumn, Marker, Operation, Position, Row};
use crate::id::TableRef;

/// The version of the envelope's form that this code reads.
pub const ENVELOPE_VERSION: u32 = 1;

/// Most bytes that the trigger puts into one notification. PostgreSQL's own limit is 7,999.
pub const ENVELOPE_BYTES_MAX: usize = 7_900;

/// What one notification says.
#[derive(Debug, Clone)]
pub enum Message {
    /// A row changed. The position is still [`Position::default`]: the feed assigns it.
    Change(ChangeEvent),
    /// A table was emptied by TRUNCATE.
    Truncated(TableMark),
    /// Facts about one table, or with `None` about all, changed: shape, policies, privileges, settings.
    TableChanged(Option<TableMark>),
    /// The trigger could not describe a row of this table: an event is lost.
    Lost(TableMark),
    /// The listener's own round trip, with its nonce.
    Heartbeat(Box<str>),
}

/// A table, by oid and by its name at the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMark {
    /// The relation's oid.
    pub relid: u32,
    /// Its name.
    pub table: TableRef,
}

/// Why a notification is not an envelope. Carries no part of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not the JSON object that the trigger writes.
    #[error("envelope: malformed")]
    Malformed,
    /// Written by another version of the trigger.
    #[error("envelope: version is not {ENVELOPE_VERSION}")]
    Version,
    /// The operation does not go with the images that came.
    #[error("envelope: operation and rows do not agree")]
    Inconsistent,
}

#[derive(Deserialize)]
struct Raw<'a> {
    v: u32,
    n: Box<str>,
    #[serde(default)]
    r: u32,
    #[serde(default)]
    s: Box<str>,
    #[serde(default)]
    t: Box<str>,
    o: Box<str>,
    #[serde(default)]
    c: Box<str>,
    #[serde(borrow, default)]
    new: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old: Option<&'a RawValue>,
    #[serde(default)]
    pk: Option<Vec<Box<str>>>,
    #[serde(default)]
    pt: Option<Vec<Box<str>>>,
    #[serde(default)]
    e: Option<Vec<Box<str>>>,
}

/// Reads one notification's text.
pub fn decode(text: &str) -> Result<Message, EnvelopeError> {
    let raw: Raw<'_> = serde_json::from_str(text).map_err(|_| EnvelopeError::Malformed)?;
    if raw.v != ENVELOPE_VERSION {
        return Err(EnvelopeError::Version);
    }
    match &*raw.o {
        "I" => change(raw, Operation::Insert).map(Message::Change),
        "U" => change(raw, Operation::Update).map(Message::Change),
        "D" => change(raw, Operation::Delete).map(Message::Change),
        "T" => Ok(Message::Truncated(mark(&raw))),
        "X" if raw.r == 0 => Ok(Message::TableChanged(None)),
        "X" => Ok(Message::TableChanged(Some(mark(&raw)))),
        "L" => Ok(Message::Lost(mark(&raw))),
        "H" => Ok(Message::Heartbeat(raw.n)),
        _ => Err(EnvelopeError::Malformed),
    }
}

/// The listener's own round trip: an envelope that only carries its nonce.
pub fn heartbeat(nonce: u128) -> String {
    format!(r#"{{"v":{ENVELOPE_VERSION},"n":"{nonce:032x}","o":"H"}}"#)
}

fn mark(raw: &Raw<'_>) -> TableMark {
    TableMark {
        relid: raw.r,
        table: TableRef::new(&*raw.s, &*raw.t),
    }
}

fn change(raw: Raw<'_>, operation: Operation) -> Result<ChangeEvent, EnvelopeError> {
    let new = raw.new.map(row).transpose()?;
    let old = raw.old.map(row).transpose()?;
    let agrees = match operation {
        Operation::Insert => new.is_some() && old.is_none(),
        Operation::Update => new.is_some() && old.is_some(),
        Operation::Delete => new.is_none() && old.is_some(),
    };
    let marker = match raw.e.as_deref() {
        None | Some([]) => None,
        Some([one]) if &**one == Marker::PayloadTooLarge.as_str() => Some(Marker::PayloadTooLarge),
        Some(_) => return Err(EnvelopeError::Malformed),
    };
    let primary_key = key(raw.pk, raw.pt)?;
    let key_is_due = operation == Operation::Delete || marker.is_some();
    if !agrees || raw.r == 0 || raw.c.is_empty() || (key_is_due && primary_key.is_none()) {
        return Err(EnvelopeError::Inconsistent);
    }
    Ok(ChangeEvent {
        id: raw.n,
        relid: raw.r,
        table: TableRef::new(&*raw.s, &*raw.t),
        operation,
        commit_timestamp: raw.c,
        new,
        old,
        primary_key,
        marker,
        position: Position::default(),
    })
}

fn row(raw: &RawValue) -> Result<Row, EnvelopeError> {
    if raw.get().starts_with('{') {
        Ok(Row::new(raw.get()))
    } else {
        Err(EnvelopeError::Malformed)
    }
}

fn key(
    names: Option<Vec<Box<str>>>,
    types: Option<Vec<Box<str>>>,
) -> Result<Option<Box<[KeyColumn]>>, EnvelopeError> {
    let Some(names) = names else { return Ok(None) };
    let types = types.unwrap_or_default();
    if names.len() != types.len() {
        return Err(EnvelopeError::Inconsistent);
    }
    let columns = names
        .into_iter()
        .zip(types)
        .map(|(name, type_name)| KeyColumn { name, type_name });
    Ok(Some(columns.collect()))
}

#[cfg(test)]
mod tests;
