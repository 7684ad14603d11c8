//! Tables and events for unit tests.

use realtime_core::change::{ChangeEvent, KeyColumn as EventKey, Marker, Operation, Position, Row};
use realtime_core::id::TableRef;
use realtime_core::table::{ColumnFacts, Comparison};

use super::{Access, Column, Fidelity, KeyColumn, Kind, Policy, Reads, Settings, Table};

/// `notes(id, owner, meta)`, keyed by id, under row security, with a policy that reads `owner`.
pub(crate) fn notes() -> Table {
    let column = |attnum, name: &str, fidelity| Column {
        attnum,
        facts: ColumnFacts {
            name: name.into(),
            type_name: "text".into(),
            compare: Comparison::Opaque,
            readable: true,
            key: attnum == 1,
        },
        fidelity,
        domain: false,
    };
    Table {
        relid: 7,
        table: TableRef::new("public", "notes"),
        kind: Kind::Base,
        partitioned: false,
        settings: Settings {
            cdc_enabled: true,
            realtime_public: false,
            delete_events: true,
        },
        attached: true,
        columns: Box::new([
            column(1, "id", Fidelity::Exact),
            column(2, "owner", Fidelity::Exact),
            column(3, "meta", Fidelity::JsonNull),
        ]),
        key: Box::new([KeyColumn {
            column: 0,
            type_sql: Some("integer".into()),
            equals_sql: "OPERATOR(pg_catalog.=)".into(),
        }]),
        access: Access {
            schema_usage: true,
            select: true,
            rls_active: true,
        },
        policy: Policy {
            condition: Some("(owner IS NOT NULL)".into()),
            reads: Reads {
                columns: [2].into(),
                ..Reads::default()
            },
        },
        plans_lie: false,
        stamp: 0,
    }
}

/// An ordinary event of `notes`.
pub(crate) fn event(operation: Operation) -> ChangeEvent {
    let row = || Row::new(r#"{"id":1,"owner":"a","meta":null}"#);
    ChangeEvent {
        id: "n".into(),
        relid: 7,
        table: TableRef::new("public", "notes"),
        operation,
        commit_timestamp: "2026-06-04T10:00:00.000Z".into(),
        new: (operation != Operation::Delete).then(row),
        old: (operation != Operation::Insert).then(row),
        primary_key: (operation == Operation::Delete).then(key),
        marker: None,
        position: Position::default(),
    }
}

/// A reference event of `notes`.
pub(crate) fn reference(operation: Operation) -> ChangeEvent {
    let row = || Row::new(r#"{"id":1}"#);
    let event = event(operation);
    ChangeEvent {
        new: event.new.is_some().then(row),
        old: event.old.is_some().then(row),
        primary_key: Some(key()),
        marker: Some(Marker::PayloadTooLarge),
        ..event
    }
}

fn key() -> Box<[EventKey]> {
    Box::new([EventKey {
        name: "id".into(),
        type_name: "int4".into(),
    }])
}
