//! The lines that `tail` prints.

use realtime_core::change::{Marker, Operation};

use super::*;

fn event() -> ChangeEvent {
    ChangeEvent {
        id: "n".into(),
        relid: 1,
        table: TableRef::new("public", "no\"tes"),
        operation: Operation::Update,
        commit_timestamp: "2026-06-04T10:00:00.123Z".into(),
        new: Some(Row::new(r#"{"id":12345678901234567890.10}"#)),
        old: None,
        primary_key: None,
        marker: Some(Marker::PayloadTooLarge),
        position: Position { epoch: 7, seq: 9 },
    }
}

#[test]
fn a_change_is_one_line_with_the_rows_own_text() {
    let line = change(&event(), true);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["change"]["type"], "UPDATE");
    assert_eq!(value["change"]["table"], "no\"tes");
    assert_eq!(value["change"]["position"], json!({ "epoch": 7, "seq": 9 }));
    assert_eq!(value["change"]["errors"], json!(["payload_too_large"]));
    assert_eq!(value["change"]["old"], json!(null));
    assert!(line.contains(r#""new":{"id":12345678901234567890.10}"#), "{line}");
    assert_eq!(
        change(&event(), false),
        "2026-06-04T10:00:00.123Z UPDATE public.no\"tes new={\"id\":12345678901234567890.10} old=null errors=payload_too_large\n"
    );
}

#[test]
fn holes_are_lines_and_beats_are_not() {
    let gap = |table: &str| v1::FeedStatus {
        owner: String::new(),
        position: None,
        kind: Some(feed_status::Kind::Gap(feed_status::Gap {
            dropped: 3,
            reason: "publish_backlog".to_owned(),
            schema: if table.is_empty() { "" } else { "public" }.to_owned(),
            table: table.to_owned(),
            relid: 0,
        })),
    };
    let only = TableRef::new("public", "notes");
    assert_eq!(
        status_line(&gap(""), Some(&only), false).unwrap(),
        "-- gap all tables publish_backlog\n"
    );
    assert_eq!(
        status_line(&gap("notes"), Some(&only), false).unwrap(),
        "-- gap public.notes publish_backlog\n"
    );
    assert_eq!(status_line(&gap("other"), Some(&only), false), None);
    let beat = v1::FeedStatus {
        kind: Some(feed_status::Kind::Up(feed_status::Up {})),
        ..gap("")
    };
    assert_eq!(status_line(&beat, None, true), None);
    assert!(lost(0, true).contains("\"lost\""));
}

#[test]
fn a_table_is_named_with_or_without_its_schema() {
    assert_eq!(table("notes").unwrap(), TableRef::new("public", "notes"));
    assert_eq!(table("app.no.tes").unwrap(), TableRef::new("app", "no.tes"));
    for wrong in ["", ".a", "a."] {
        assert!(table(wrong).is_err(), "{wrong}");
    }
}
