//! What one subscriber sees of one change: the event cut down to its verdict.
//!
//! Must never exist without a verdict (invariant 2): [`View::new`] is the only way to one, and
//! the encoders take nothing else.

use std::borrow::Cow;
use std::sync::Arc;

use crate::change::{ChangeEvent, Marker, Operation, Row, RowError};
use crate::id::TableRef;
use crate::verdict::{Grant, Verdict};

/// The part of a change that a verdict lets through. Rows are JSON text, values byte for byte.
#[derive(Debug)]
pub struct View<'e> {
    /// The table.
    pub table: &'e TableRef,
    /// What happened.
    pub operation: Operation,
    /// RFC 3339, UTC, three digits, `Z`.
    pub commit_timestamp: &'e str,
    /// Names of the readable columns with the type's name: `unknown` for an ordinary event (the feed
    /// carries no types), the real one for the key columns of a reference event.
    pub columns: Vec<ViewColumn<'e>>,
    /// The new row; `None` on DELETE.
    pub new: Option<RowText<'e>>,
    /// The old row; `None` on INSERT, and on UPDATE where the prior row was not visible.
    pub old: Option<RowText<'e>>,
    /// The mark of a reference event.
    pub marker: Option<Marker>,
}

/// A column's name and type, as the payload lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewColumn<'e> {
    /// The column's name.
    pub name: Cow<'e, str>,
    /// The type's name, or `unknown`.
    pub type_name: &'e str,
}

/// The columns that a subscriber wants to see, of those that it may. A clone shares the names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selection(Arc<[Box<str>]>);

/// JSON text of a row. Private data: never printed by `Debug`.
pub struct RowText<'e>(Cow<'e, str>);

/// Why there is no view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoView {
    /// The verdict is to drop.
    #[error("view: the verdict is to drop")]
    Dropped,
    /// The row's text is broken: nothing can be cut from it safely.
    #[error("view: {0}")]
    Row(#[from] RowError),
}

impl<'e> View<'e> {
    /// Cuts an event down to what the verdict lets through.
    pub fn new(event: &'e ChangeEvent, verdict: &Verdict) -> Result<Self, NoView> {
        Self::narrowed(event, verdict, None)
    }

    /// As [`View::new`], with no other columns than those selected and the key's.
    pub fn narrowed(
        event: &'e ChangeEvent,
        verdict: &Verdict,
        selection: Option<&Selection>,
    ) -> Result<Self, NoView> {
        let Verdict::Deliver(grant) = verdict else {
            return Err(NoView::Dropped);
        };
        let shape = Shape {
            event,
            grant,
            selection,
        };
        let new = event.new.as_ref().map(|row| shape.cut(row)).transpose()?;
        let mut old = event.old.as_ref().map(|row| shape.cut(row)).transpose()?;
        if event.operation == Operation::Update && !grant.old_visible {
            // The prior row of a reference event cannot be judged. Its key says nothing new where
            // it is the key that `new` shows.
            let known =
                |old: &RowText<'_>| event.is_reference() && new.as_ref().is_some_and(|new| new.0 == old.0);
            old = old.filter(known);
        }
        Ok(Self {
            table: &event.table,
            operation: event.operation,
            commit_timestamp: &event.commit_timestamp,
            columns: shape.columns()?,
            new,
            old,
            marker: event.marker,
        })
    }
}

struct Shape<'e, 'g> {
    event: &'e ChangeEvent,
    grant: &'g Grant,
    selection: Option<&'g Selection>,
}

impl Selection {
    /// A selection of these names; a key's columns are to be among them.
    pub fn new(names: impl IntoIterator<Item = Box<str>>) -> Self {
        let mut names: Vec<Box<str>> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        Self(names.into())
    }

    /// Whether a column is selected.
    pub fn contains(&self, column: &str) -> bool {
        self.0.binary_search_by(|name| (**name).cmp(column)).is_ok()
    }
}

impl<'e> Shape<'e, '_> {
    /// Whether a column may be shown, and is wanted. The selection can only take away.
    fn admits(&self, column: &str) -> bool {
        self.grant.readable.allows(column)
            && (self.event.is_key_column(column)
                || self.selection.is_none_or(|selection| selection.contains(column)))
    }

    /// Whether a column of a row image may be shown.
    fn shows(&self, column: &str) -> bool {
        let key_only = self.event.is_reference()
            || (self.event.operation == Operation::Delete && !self.grant.whole_deletes);
        self.admits(column) && (!key_only || self.event.is_key_column(column))
    }

    fn cut(&self, row: &'e Row) -> Result<RowText<'e>, RowError> {
        let mut whole = true;
        for column in row.columns()? {
            whole &= self.shows(&column.name);
        }
        let text = if whole {
            Cow::Borrowed(row.text())
        } else {
            Cow::Owned(row.project(|name| self.shows(name))?)
        };
        Ok(RowText(text))
    }

    /// `columns` lists every readable column that is wanted, of a reference event the readable key columns.
    fn columns(&self) -> Result<Vec<ViewColumn<'e>>, RowError> {
        if self.event.is_reference() {
            let key = self.event.primary_key.as_deref().unwrap_or_default();
            let readable = key
                .iter()
                .filter(|column| self.grant.readable.allows(&column.name));
            return Ok(readable
                .map(|column| ViewColumn {
                    name: Cow::Borrowed(&*column.name),
                    type_name: &column.type_name,
                })
                .collect());
        }
        let Some(row) = self.event.subject_row() else {
            return Ok(Vec::new());
        };
        let readable = row.columns()?.filter(|column| self.admits(&column.name));
        Ok(readable
            .map(|column| ViewColumn {
                name: column.name,
                type_name: "unknown",
            })
            .collect())
    }
}

impl RowText<'_> {
    /// The row's JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for RowText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowText({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests;
