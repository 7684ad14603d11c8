use realtime_core::table::{Collation, ColumnFacts, Comparison, Element, Letters};

use super::*;

fn event() -> ChangeEvent {
    ChangeEvent {
        id: "n".into(),
        relid: 7,
        table: TableRef::new("My Schema", "t.ü"),
        operation: Operation::Delete,
        commit_timestamp: "2026-06-04T10:00:00.123Z".into(),
        new: None,
        old: Some(Row::new(r#"{"id":9223372036854775807}"#)),
        primary_key: Some(
            [KeyColumn {
                name: "id".into(),
                type_name: "int8".into(),
            }]
            .into(),
        ),
        marker: Some(Marker::PayloadTooLarge),
        position: Position { epoch: 3, seq: 4 },
    }
}

#[test]
fn events_survive_the_journey() {
    let back = ChangeEvent::try_from(v1::ChangeEvent::from(&event())).unwrap();
    let before = event();
    assert_eq!(back.id, before.id);
    assert_eq!(back.relid, before.relid);
    assert_eq!(back.table, before.table);
    assert_eq!(back.operation, before.operation);
    assert_eq!(back.commit_timestamp, before.commit_timestamp);
    assert_eq!(back.old.unwrap().text(), before.old.unwrap().text());
    assert!(back.new.is_none());
    assert_eq!(back.primary_key, before.primary_key);
    assert_eq!(back.marker, before.marker);
    assert_eq!(back.position, before.position);
}

#[test]
fn incomplete_events_are_refused_by_field() {
    let refused = |change: fn(&mut v1::ChangeEvent)| {
        let mut message = v1::ChangeEvent::from(&event());
        change(&mut message);
        ChangeEvent::try_from(message).unwrap_err().0
    };
    assert_eq!(refused(|m| m.operation = 0), "operation");
    assert_eq!(refused(|m| m.operation = 99), "operation");
    assert_eq!(refused(|m| m.old_json = None), "new_json, old_json");
    assert_eq!(refused(|m| m.new_json = Some("{}".into())), "new_json, old_json");
    assert_eq!(refused(|m| m.primary_key = None), "primary_key");
    assert_eq!(refused(|m| m.position = None), "position");
    assert_eq!(refused(|m| m.relid = 0), "relid");
    assert_eq!(refused(|m| m.errors = vec![9]), "errors");
}

#[test]
fn verdicts_survive_and_an_empty_one_is_no_verdict() {
    for readable in [
        Readable::All,
        Readable::Only([].into()),
        Readable::Only([Box::from("a")].into()),
    ] {
        let grant = Grant {
            old_visible: true,
            whole_deletes: false,
            readable,
        };
        assert_eq!(
            Verdict::try_from(deliver_verdict(&grant)),
            Ok(Verdict::Deliver(grant))
        );
    }
    let drop = drop_verdict(DropReason::PolicyError, Some("22P02"));
    assert_eq!(drop.sqlstate, "22P02");
    assert_eq!(
        Verdict::try_from(drop),
        Ok(Verdict::Drop(DropReason::PolicyError))
    );
    assert_eq!(
        Verdict::try_from(v1::Verdict::default()),
        Err(Malformed("decision"))
    );
    let reasonless = v1::Verdict {
        decision: v1::Decision::Drop.into(),
        ..Default::default()
    };
    assert_eq!(Verdict::try_from(reasonless), Err(Malformed("reason")));
}

#[test]
fn whole_deletes_cannot_be_granted_over_the_wire() {
    let grant = Grant {
        old_visible: true,
        whole_deletes: true,
        readable: Readable::All,
    };
    let Ok(Verdict::Deliver(back)) = Verdict::try_from(deliver_verdict(&grant)) else {
        panic!("no grant")
    };
    assert!(!back.whole_deletes);
}

#[test]
fn facts_survive_the_journey() {
    let column = |compare| ColumnFacts {
        name: "c".into(),
        type_name: "t".into(),
        compare,
        readable: true,
        key: false,
    };
    let facts = TableFacts {
        table: TableRef::new("s", "t"),
        relid: 9,
        columns: [
            column(Comparison::Opaque),
            column(Comparison::Decimal),
            column(Comparison::Float4),
            column(Comparison::Float8),
            column(Comparison::Bool),
            column(Comparison::Text(Collation::C)),
            column(Comparison::Text(Collation::UNKNOWN)),
            column(Comparison::PaddedText(Collation::C)),
            column(Comparison::Uuid),
            column(Comparison::Date),
            column(Comparison::Time),
            column(Comparison::Timestamp),
            column(Comparison::TimestampTz),
            column(Comparison::Bytea),
            column(Comparison::TimeTz),
            column(Comparison::Interval),
            column(Comparison::Network),
            column(Comparison::Jsonb),
            column(Comparison::FoldedText),
            column(Comparison::Veiled),
            column(Comparison::Text(Collation {
                ordered_by_bytes: true,
                letters: Letters::Wide {
                    dotted_i: "i\u{307}".into(),
                    kelvin: "k".into(),
                },
            })),
            column(Comparison::Array(Box::new(Element {
                type_name: "int4".into(),
                compare: Comparison::Decimal,
            }))),
            column(Comparison::Array(Box::new(Element {
                type_name: "mood".into(),
                compare: Comparison::Enum([Box::from("a")].into()),
            }))),
            column(Comparison::Enum([Box::from("a"), Box::from("b")].into())),
        ]
        .into(),
        cannot_emit: Some(CannotEmit::RlsDisabled),
        delete_events: true,
    };
    assert_eq!(
        TableFacts::try_from(v1::DescribeTableResponse::from(&facts)),
        Ok(facts)
    );
}

#[test]
fn a_disconnect_names_a_project_and_somebody() {
    let project = ProjectId::parse("p").unwrap();
    for who in [Who::Subject("u1".into()), Who::Session("s1".into())] {
        let message = v1::DisconnectRequest::of(&project, &who);
        let (of, back): (ProjectId, Who) = message.try_into().unwrap();
        assert!(of == project && back == who);
        assert!(!format!("{back:?}").contains("1"));
    }
    let nobody = v1::DisconnectRequest {
        project: "p".into(),
        who: None,
    };
    assert_eq!(<(ProjectId, Who)>::try_from(nobody), Err(Malformed("who")));
    let empty = v1::DisconnectRequest::of(&project, &Who::Subject("".into()));
    assert_eq!(<(ProjectId, Who)>::try_from(empty), Err(Malformed("who")));
    let mut nowhere = v1::DisconnectRequest::of(&project, &Who::Subject("u".into()));
    nowhere.project = "_cluster".into();
    assert_eq!(<(ProjectId, Who)>::try_from(nowhere), Err(Malformed("project")));
}
