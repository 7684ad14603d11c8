//! The bus's subjects, and the one encoding by which names become their tokens.
//!
//! Must stay injective: two different tables never share a subject, and no name can add a token
//! or a wildcard (invariant 11).

use std::fmt::Write as _;

use crate::id::{ProjectId, TableRef};

/// What every subject of ours begins with.
pub const ROOT: &str = "anvilbase.rt";

/// Gateways ask here for a project to be attached; listeners with room answer as a queue group.
pub const ATTACH: &str = "anvilbase.rt._cluster.attach";

/// The queue group of [`ATTACH`].
pub const ATTACH_QUEUE: &str = "listeners";

/// Each listener says here, about twice a second, how many projects it holds.
pub const LISTENERS: &str = "anvilbase.rt._cluster.listeners";

/// Everything that every project's gateways say of their interest.
pub const INTEREST_ALL: &str = "anvilbase.rt._cluster.interest.*";

/// Where gateways are told to end what a user has open.
pub const SESSION: &str = "anvilbase.rt._cluster.session";

/// What a message on a project's subtree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `cdc.<schema>.<table>`: a change event.
    Change,
    /// `ctl`: the feed's status.
    Control,
    /// Anything else below the project.
    Other,
}

/// A change event's subject.
pub fn change(project: &ProjectId, table: &TableRef) -> String {
    let mut subject = format!("{ROOT}.{project}.cdc.");
    push_token(&mut subject, &table.schema);
    subject.push('.');
    push_token(&mut subject, &table.table);
    subject
}

/// The subject of a project's feed status.
pub fn control(project: &ProjectId) -> String {
    format!("{ROOT}.{project}.ctl")
}

/// Everything of one project.
pub fn project_all(project: &ProjectId) -> String {
    format!("{ROOT}.{project}.>")
}

/// Where gateways say that they have sessions of a project.
pub fn interest(project: &ProjectId) -> String {
    format!("{ROOT}._cluster.interest.{project}")
}

/// What a subject below a project's own subtree carries.
pub fn kind(project: &ProjectId, subject: &str) -> Kind {
    let below = subject
        .strip_prefix(ROOT)
        .and_then(|rest| rest.strip_prefix('.'))
        .and_then(|rest| rest.strip_prefix(project.as_str()))
        .and_then(|rest| rest.strip_prefix('.'));
    match below {
        Some("ctl") => Kind::Control,
        Some(rest) if rest.starts_with("cdc.") => Kind::Change,
        _ => Kind::Other,
    }
}

/// The project of an interest subject.
pub fn interest_project(subject: &str) -> Option<ProjectId> {
    let id = subject.strip_prefix(ROOT)?.strip_prefix("._cluster.interest.")?;
    ProjectId::parse(id).ok()
}

/// Appends a name as one token: bytes outside `[A-Za-z0-9_-]` become `%XX`, and the empty name
/// becomes `%`, which no other name does.
pub fn push_token(subject: &mut String, name: &str) {
    if name.is_empty() {
        subject.push('%');
    }
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            subject.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(subject, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests;
