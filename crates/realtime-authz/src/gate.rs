//! The order in which a change is let through or dropped, as a pure function: facts and an
//! event in, either a verdict or the question that only the database can answer out.
//!
//! Must never deliver for want of knowledge: what no rule lets through is dropped.

use std::sync::Arc;

use realtime_core::change::{ChangeEvent, Operation, Row, RowError};
use realtime_core::verdict::{DropReason, Grant, Readable, Verdict};

use crate::tables::Table;

/// What is left to do for the subjects of one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the verdict is the same for every subject of the role.
    Settled(Verdict),
    /// The policies are to be judged on the event's own images.
    Images,
    /// The row is to be looked for by its key, under row security.
    Key,
}

/// What a subject turned out to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// The row after the change.
    pub new: bool,
    /// UPDATE: the row before it.
    pub old: bool,
}

/// The decision order up to the policies. `table` holds the facts for the subjects' role, which
/// is never service_role.
pub fn first_step(table: &Table, event: &ChangeEvent) -> Step {
    let drop = |reason| Step::Settled(Verdict::Drop(reason));
    if !table.access.rls_active && !table.settings.realtime_public {
        return drop(DropReason::RlsDisabled);
    }
    if !table.may_select() {
        return drop(DropReason::NoPrivilege);
    }
    if event.operation == Operation::Delete && !table.settings.delete_events {
        return drop(DropReason::DeletesWithheld);
    }
    if event.is_reference() && !carries_key(event) {
        return drop(DropReason::NoKey);
    }
    // What a policy reads, and what a role may read, are columns; an image has only names. (A key's columns are in
    // the key's order.)
    let printed = [&event.new, &event.old].into_iter().flatten();
    if !event.is_reference()
        && !printed
            .map(|image| table.could_have_printed(image))
            .all(|is| is == Ok(true))
    {
        return drop(DropReason::ImageUnreadable);
    }
    // A deleted row can no longer be judged; only its key is shown.
    if event.operation == Operation::Delete || !table.access.rls_active {
        return Step::Settled(settle(
            table,
            event,
            Sight {
                new: true,
                old: !event.is_reference(),
            },
        ));
    }
    if table.policy.condition.is_none() {
        return drop(DropReason::NotVisible);
    }
    if event.is_reference() {
        return Step::Key;
    }
    if table.policy.reads.system {
        // No image carries what the policy looks at: only the row itself can be asked.
        return if table.key.is_empty() {
            drop(DropReason::NoKey)
        } else {
            Step::Key
        };
    }
    Step::Images
}

/// The verdict once it is known what the subject sees.
pub fn settle(table: &Table, event: &ChangeEvent, sight: Sight) -> Verdict {
    if !sight.new {
        return Verdict::Drop(DropReason::NotVisible);
    }
    match readable(table, event) {
        Ok(readable) => Verdict::Deliver(Grant {
            old_visible: sight.old && event.operation == Operation::Update,
            whole_deletes: false,
            readable,
        }),
        Err(_) => Verdict::Drop(DropReason::ImageUnreadable),
    }
}

/// The columns that the role may read. "All" only where the images hold no column that the
/// table no longer has under that name: nobody can tell whether the role might read that one.
fn readable(table: &Table, event: &ChangeEvent) -> Result<Readable, RowError> {
    let everything = table.columns.iter().all(|column| column.facts.readable);
    if everything
        && only_known_columns(table, event.new.as_ref())?
        && only_known_columns(table, event.old.as_ref())?
    {
        return Ok(Readable::All);
    }
    let readable = table.columns.iter().filter(|column| column.facts.readable);
    Ok(Readable::Only(Arc::from_iter(
        readable.map(|column| column.facts.name.clone()),
    )))
}

fn only_known_columns(table: &Table, image: Option<&Row>) -> Result<bool, RowError> {
    let Some(image) = image else { return Ok(true) };
    Ok(image
        .columns()?
        .all(|column| table.column(&column.name).is_some()))
}

/// Whether a reference event says which row it refers to.
fn carries_key(event: &ChangeEvent) -> bool {
    let Some(key) = event.primary_key.as_deref().filter(|key| !key.is_empty()) else {
        return false;
    };
    let Some(row) = event.subject_row() else {
        return false;
    };
    key.iter()
        .all(|column| matches!(row.get(&column.name), Ok(Some(_))))
}

#[cfg(test)]
mod tests;
