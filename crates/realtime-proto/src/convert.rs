//! Conversions between messages and meaning.
//!
//! From a message: `TryFrom`, with an error that names the field. To a message: `From`.

mod column;

use realtime_core::change::{ChangeEvent, KeyColumn, Marker, Operation, Position, Row};
use realtime_core::claims::{Claims, Role, Who};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::table::{CannotEmit, RelationKind, TableFacts};
use realtime_core::verdict::{DropReason, Grant, Readable, Verdict};

use crate::v1;

/// A message that does not say what it must. Names the field, carries no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message: field {0} is missing or has no meaning")]
pub struct Malformed(pub &'static str);

impl From<Position> for v1::Position {
    fn from(position: Position) -> Self {
        Self {
            epoch: position.epoch,
            seq: position.seq,
        }
    }
}

impl From<v1::Position> for Position {
    fn from(position: v1::Position) -> Self {
        Self {
            epoch: position.epoch,
            seq: position.seq,
        }
    }
}

impl From<&ChangeEvent> for v1::ChangeEvent {
    fn from(event: &ChangeEvent) -> Self {
        let operation = match event.operation {
            Operation::Insert => v1::Operation::Insert,
            Operation::Update => v1::Operation::Update,
            Operation::Delete => v1::Operation::Delete,
        };
        let marker = event.marker.map(|marker| match marker {
            Marker::PayloadTooLarge => v1::Marker::PayloadTooLarge.into(),
        });
        Self {
            id: event.id.to_string(),
            schema: event.table.schema.to_string(),
            table: event.table.table.to_string(),
            operation: operation.into(),
            commit_timestamp: event.commit_timestamp.to_string(),
            new_json: event.new.as_ref().map(|row| row.text().to_owned()),
            old_json: event.old.as_ref().map(|row| row.text().to_owned()),
            primary_key: event.primary_key.as_deref().map(|columns| v1::PrimaryKey {
                columns: columns
                    .iter()
                    .map(|column| v1::KeyColumn {
                        name: column.name.to_string(),
                        type_name: column.type_name.to_string(),
                    })
                    .collect(),
            }),
            errors: marker.into_iter().collect(),
            relid: event.relid,
            position: Some(event.position.into()),
        }
    }
}

impl TryFrom<v1::ChangeEvent> for ChangeEvent {
    type Error = Malformed;

    fn try_from(message: v1::ChangeEvent) -> Result<Self, Self::Error> {
        let operation = match message.operation() {
            v1::Operation::Insert => Operation::Insert,
            v1::Operation::Update => Operation::Update,
            v1::Operation::Delete => Operation::Delete,
            v1::Operation::Unspecified => return Err(Malformed("operation")),
        };
        // By number: the generated accessor leaves out marks it does not know, and a reference
        // event would pass for a whole row.
        let marker = match message.errors.as_slice() {
            [] => None,
            [mark] if *mark == v1::Marker::PayloadTooLarge as i32 => Some(Marker::PayloadTooLarge),
            _ => return Err(Malformed("errors")),
        };
        let agrees = match operation {
            Operation::Insert => message.new_json.is_some() && message.old_json.is_none(),
            Operation::Update => message.new_json.is_some() && message.old_json.is_some(),
            Operation::Delete => message.new_json.is_none() && message.old_json.is_some(),
        };
        if !agrees {
            return Err(Malformed("new_json, old_json"));
        }
        if message.primary_key.is_none() && (operation == Operation::Delete || marker.is_some()) {
            return Err(Malformed("primary_key"));
        }
        if message.relid == 0 {
            return Err(Malformed("relid"));
        }
        let key = message.primary_key.map(|key| {
            key.columns
                .into_iter()
                .map(|column| KeyColumn {
                    name: column.name.into(),
                    type_name: column.type_name.into(),
                })
                .collect()
        });
        Ok(Self {
            id: message.id.into(),
            relid: message.relid,
            table: TableRef::new(message.schema, message.table),
            operation,
            commit_timestamp: message.commit_timestamp.into(),
            new: message.new_json.map(Row::new),
            old: message.old_json.map(Row::new),
            primary_key: key,
            marker,
            position: message.position.ok_or(Malformed("position"))?.into(),
        })
    }
}

impl From<&Claims> for v1::Subject {
    fn from(claims: &Claims) -> Self {
        Self {
            role: claims.role().as_str().to_owned(),
            claims_json: claims.json().to_owned(),
        }
    }
}

impl From<v1::Subject> for Claims {
    fn from(subject: v1::Subject) -> Self {
        Claims::new(Role::new(subject.role), subject.claims_json)
    }
}

/// A drop with its reason; `sqlstate` goes with a policy error.
pub fn drop_verdict(reason: DropReason, sqlstate: Option<&str>) -> v1::Verdict {
    let reason = match reason {
        DropReason::NotVisible => v1::Reason::NotVisible,
        DropReason::RlsDisabled => v1::Reason::RlsDisabled,
        DropReason::NoPrivilege => v1::Reason::NoPrivilege,
        DropReason::NoKey => v1::Reason::NoKey,
        DropReason::DeletesWithheld => v1::Reason::DeletesWithheld,
        DropReason::PolicyError => v1::Reason::PolicyError,
        DropReason::ImageUnreadable => v1::Reason::ImageUnreadable,
        DropReason::PoolSaturated => v1::Reason::PoolSaturated,
        DropReason::Deadline => v1::Reason::Deadline,
        DropReason::DatabaseUnavailable | DropReason::AuthzUnavailable => v1::Reason::DatabaseUnavailable,
    };
    v1::Verdict {
        decision: v1::Decision::Drop.into(),
        reason: reason.into(),
        sqlstate: sqlstate.unwrap_or_default().to_owned(),
        ..Default::default()
    }
}

/// A grant. `whole_deletes` does not travel: only service_role has it, and never asks.
pub fn deliver_verdict(grant: &Grant) -> v1::Verdict {
    let (all_columns, readable_columns) = match &grant.readable {
        Readable::All => (true, Vec::new()),
        Readable::Only(columns) => (false, columns.iter().map(|name| name.to_string()).collect()),
    };
    v1::Verdict {
        decision: v1::Decision::Deliver.into(),
        old_visible: grant.old_visible,
        all_columns,
        readable_columns,
        ..Default::default()
    }
}

impl TryFrom<v1::Verdict> for Verdict {
    type Error = Malformed;

    fn try_from(message: v1::Verdict) -> Result<Self, Self::Error> {
        match message.decision() {
            v1::Decision::Deliver => {
                let readable = if message.all_columns {
                    Readable::All
                } else {
                    Readable::Only(message.readable_columns.into_iter().map(Into::into).collect())
                };
                Ok(Self::Deliver(Grant {
                    old_visible: message.old_visible,
                    whole_deletes: false,
                    readable,
                }))
            }
            v1::Decision::Drop => Ok(Self::Drop(match message.reason() {
                v1::Reason::NotVisible => DropReason::NotVisible,
                v1::Reason::RlsDisabled => DropReason::RlsDisabled,
                v1::Reason::NoPrivilege => DropReason::NoPrivilege,
                v1::Reason::NoKey => DropReason::NoKey,
                v1::Reason::DeletesWithheld => DropReason::DeletesWithheld,
                v1::Reason::PolicyError => DropReason::PolicyError,
                v1::Reason::ImageUnreadable => DropReason::ImageUnreadable,
                v1::Reason::PoolSaturated => DropReason::PoolSaturated,
                v1::Reason::Deadline => DropReason::Deadline,
                v1::Reason::DatabaseUnavailable => DropReason::DatabaseUnavailable,
                v1::Reason::Unspecified => return Err(Malformed("reason")),
            })),
            v1::Decision::Unspecified => Err(Malformed("decision")),
        }
    }
}

impl From<&TableFacts> for v1::DescribeTableResponse {
    fn from(facts: &TableFacts) -> Self {
        let cannot_emit = match facts.cannot_emit {
            None => v1::CannotEmit::Unspecified,
            Some(CannotEmit::NoSuchTable) => v1::CannotEmit::NoSuchTable,
            Some(CannotEmit::NotABaseTable(_)) => v1::CannotEmit::NotABaseTable,
            Some(CannotEmit::Partition) => v1::CannotEmit::Partition,
            Some(CannotEmit::OptedOut) => v1::CannotEmit::OptedOut,
            Some(CannotEmit::RlsDisabled) => v1::CannotEmit::RlsDisabled,
            Some(CannotEmit::NoPrivilege) => v1::CannotEmit::NoPrivilege,
        };
        Self {
            schema: facts.table.schema.to_string(),
            table: facts.table.table.to_string(),
            relid: facts.relid,
            columns: facts.columns.iter().map(Into::into).collect(),
            cannot_emit: cannot_emit.into(),
            delete_events: facts.delete_events,
            relation_kind: relation_kind(facts.cannot_emit).into(),
        }
    }
}

fn relation_kind(reason: Option<CannotEmit>) -> v1::RelationKind {
    match reason {
        Some(CannotEmit::NotABaseTable(kind)) => match kind {
            RelationKind::View => v1::RelationKind::View,
            RelationKind::MaterializedView => v1::RelationKind::MaterializedView,
            RelationKind::ForeignTable => v1::RelationKind::ForeignTable,
            RelationKind::Sequence => v1::RelationKind::Sequence,
            RelationKind::Index => v1::RelationKind::Index,
            RelationKind::Other => v1::RelationKind::Unspecified,
        },
        _ => v1::RelationKind::Unspecified,
    }
}

impl TryFrom<v1::DescribeTableResponse> for TableFacts {
    type Error = Malformed;

    fn try_from(message: v1::DescribeTableResponse) -> Result<Self, Self::Error> {
        let cannot_emit = match message.cannot_emit() {
            v1::CannotEmit::Unspecified => None,
            v1::CannotEmit::NoSuchTable => Some(CannotEmit::NoSuchTable),
            v1::CannotEmit::NotABaseTable => Some(CannotEmit::NotABaseTable(match message.relation_kind() {
                v1::RelationKind::Unspecified => RelationKind::Other,
                v1::RelationKind::View => RelationKind::View,
                v1::RelationKind::MaterializedView => RelationKind::MaterializedView,
                v1::RelationKind::ForeignTable => RelationKind::ForeignTable,
                v1::RelationKind::Sequence => RelationKind::Sequence,
                v1::RelationKind::Index => RelationKind::Index,
            })),
            v1::CannotEmit::Partition => Some(CannotEmit::Partition),
            v1::CannotEmit::OptedOut => Some(CannotEmit::OptedOut),
            v1::CannotEmit::RlsDisabled => Some(CannotEmit::RlsDisabled),
            v1::CannotEmit::NoPrivilege => Some(CannotEmit::NoPrivilege),
        };
        Ok(Self {
            table: TableRef::new(message.schema, message.table),
            relid: message.relid,
            columns: message
                .columns
                .into_iter()
                .map(TryInto::try_into)
                .collect::<Result<_, _>>()?,
            cannot_emit,
            delete_events: message.delete_events,
        })
    }
}

impl v1::DisconnectRequest {
    /// The order to end what somebody has open in a project.
    pub fn of(project: &ProjectId, who: &Who) -> Self {
        use v1::disconnect_request::Who as Said;
        Self {
            project: project.to_string(),
            who: Some(match who {
                Who::Subject(subject) => Said::Subject(subject.to_string()),
                Who::Session(session) => Said::SessionId(session.to_string()),
            }),
        }
    }
}

impl TryFrom<v1::DisconnectRequest> for (ProjectId, Who) {
    type Error = Malformed;

    fn try_from(message: v1::DisconnectRequest) -> Result<Self, Self::Error> {
        use v1::disconnect_request::Who as Said;
        let project = ProjectId::parse(&message.project).map_err(|_| Malformed("project"))?;
        // Nobody is meant by nothing: tokens without the claim are not of one user.
        let who = match message.who.ok_or(Malformed("who"))? {
            Said::Subject(subject) if !subject.is_empty() => Who::Subject(subject.into()),
            Said::SessionId(session) if !session.is_empty() => Who::Session(session.into()),
            _ => return Err(Malformed("who")),
        };
        Ok((project, who))
    }
}

#[cfg(test)]
mod tests;
