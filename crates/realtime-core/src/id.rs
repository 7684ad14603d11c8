//! Identifiers, each parsed once where it enters the process.
//!
//! Must never interpret a name: schema and table names are opaque UTF-8 (invariant 11).

use std::fmt;
use std::sync::Arc;

/// Longest project id, in bytes. Fits a DNS label.
pub const PROJECT_ID_BYTES_MAX: usize = 63;

/// One project: a PostgreSQL database with a token secret.
///
/// Shape `[a-z0-9][a-z0-9-]{0,62}`, so it is safe as a file name, a DNS label and a subject
/// token, and can never begin with the `_` of the cluster's own subjects.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProjectId(Arc<str>);

/// A text that is not a project id. Does not carry the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("project id: must be 1 to 63 characters of a-z, 0-9 and -, not beginning with -")]
pub struct InvalidProjectId;

/// A table by schema and name, as the catalog spells them: case-sensitive, never folded.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableRef {
    /// The schema's name.
    pub schema: Arc<str>,
    /// The table's name.
    pub table: Arc<str>,
}

/// The number that a gateway gives to a binding's parameters: never 0 (clients test it for
/// truth), below 2^53 (clients hold it in a double).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BindingId(u64);

impl ProjectId {
    /// Parses a project id; see the type for its shape.
    pub fn parse(text: &str) -> Result<Self, InvalidProjectId> {
        let bytes = text.as_bytes();
        let shape = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        if bytes.is_empty()
            || bytes.len() > PROJECT_ID_BYTES_MAX
            || bytes[0] == b'-'
            || !bytes.iter().all(shape)
        {
            return Err(InvalidProjectId);
        }
        Ok(Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for ProjectId {
    type Err = InvalidProjectId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProjectId({})", self.0)
    }
}

impl TableRef {
    /// A table by its schema and name.
    pub fn new(schema: impl Into<Arc<str>>, table: impl Into<Arc<str>>) -> Self {
        Self {
            schema: schema.into(),
            table: table.into(),
        }
    }
}

impl fmt::Debug for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{:?}", self.schema, self.table)
    }
}

impl BindingId {
    /// The id for the n-th distinct set of parameters, counted from 0.
    ///
    /// Returns `None` once the ids below 2^53 are used up.
    pub fn from_ordinal(ordinal: u64) -> Option<Self> {
        let id = ordinal.checked_add(1)?;
        (id < 1 << 53).then_some(Self(id))
    }

    /// The number on the wire.
    pub fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
