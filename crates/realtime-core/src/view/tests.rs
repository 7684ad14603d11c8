use std::sync::Arc;

use super::*;
use crate::change::{KeyColumn, Position};
use crate::claims::Role;
use crate::verdict::{DropReason, Readable};

fn event(operation: Operation, new: Option<&str>, old: Option<&str>) -> ChangeEvent {
    let key = KeyColumn {
        name: "id".into(),
        type_name: "int8".into(),
    };
    ChangeEvent {
        id: "n".into(),
        relid: 1,
        table: TableRef::new("public", "notes"),
        operation,
        commit_timestamp: "2026-06-04T10:00:00.123Z".into(),
        new: new.map(Row::new),
        old: old.map(Row::new),
        primary_key: (operation == Operation::Delete).then(|| [key].into()),
        marker: None,
        position: Position::default(),
    }
}

fn grant(old_visible: bool, readable: Readable) -> Verdict {
    Verdict::Deliver(Grant {
        old_visible,
        whole_deletes: false,
        readable,
    })
}

fn only(columns: &[&str]) -> Readable {
    Readable::Only(columns.iter().map(|c| Box::from(*c)).collect::<Vec<_>>().into())
}

fn text<'a>(row: &'a Option<RowText<'_>>) -> Option<&'a str> {
    row.as_ref().map(RowText::as_str)
}

fn names(view: &View<'_>) -> Vec<String> {
    view.columns
        .iter()
        .map(|c| format!("{}:{}", c.name, c.type_name))
        .collect()
}

const NEW: &str = r#"{"id":1,"pub":"a","secret":"s"}"#;
const OLD: &str = r#"{"id":1,"pub":"b","secret":"t"}"#;

#[test]
fn a_drop_has_no_view() {
    let event = event(Operation::Insert, Some(NEW), None);
    let drop = Verdict::Drop(DropReason::NotVisible);
    assert_eq!(View::new(&event, &drop).unwrap_err(), NoView::Dropped);
}

#[test]
fn an_update_shows_its_old_row_only_where_that_was_visible() {
    let event = event(Operation::Update, Some(NEW), Some(OLD));
    let seen = View::new(&event, &grant(true, Readable::All)).unwrap();
    assert_eq!((text(&seen.new), text(&seen.old)), (Some(NEW), Some(OLD)));
    let hidden = View::new(&event, &grant(false, Readable::All)).unwrap();
    assert_eq!((text(&hidden.new), text(&hidden.old)), (Some(NEW), None));
}

#[test]
fn unreadable_columns_are_in_no_part() {
    let event = event(Operation::Update, Some(NEW), Some(OLD));
    let view = View::new(&event, &grant(true, only(&["id", "pub"]))).unwrap();
    assert_eq!(text(&view.new), Some(r#"{"id":1,"pub":"a"}"#));
    assert_eq!(text(&view.old), Some(r#"{"id":1,"pub":"b"}"#));
    assert_eq!(names(&view), ["id:unknown", "pub:unknown"]);
}

#[test]
fn an_empty_list_of_readable_columns_means_none() {
    let event = event(Operation::Insert, Some(NEW), None);
    let view = View::new(&event, &grant(false, only(&[]))).unwrap();
    assert_eq!(text(&view.new), Some("{}"));
    assert!(view.columns.is_empty());
}

#[test]
fn a_delete_shows_the_key_and_to_service_role_the_row() {
    let event = event(Operation::Delete, None, Some(OLD));
    let view = View::new(&event, &grant(true, Readable::All)).unwrap();
    assert_eq!((text(&view.new), text(&view.old)), (None, Some(r#"{"id":1}"#)));
    assert_eq!(names(&view), ["id:unknown", "pub:unknown", "secret:unknown"]);
    let unreadable_key = View::new(&event, &grant(true, only(&["pub"]))).unwrap();
    assert_eq!(text(&unreadable_key.old), Some("{}"));
    let service = Verdict::for_service(&Role::new("service_role")).unwrap();
    assert_eq!(text(&View::new(&event, &service).unwrap().old), Some(OLD));
    assert_eq!(Verdict::for_service(&Role::new("authenticated")), None);
}

#[test]
fn a_reference_lists_its_key_with_types() {
    let mut event = event(Operation::Insert, Some(r#"{"id":1}"#), None);
    event.marker = Some(Marker::PayloadTooLarge);
    event.primary_key = Some(
        [KeyColumn {
            name: "id".into(),
            type_name: "int8".into(),
        }]
        .into(),
    );
    let view = View::new(&event, &grant(false, Readable::All)).unwrap();
    assert_eq!(names(&view), ["id:int8"]);
    assert_eq!(text(&view.new), Some(r#"{"id":1}"#));
}

#[test]
fn a_reference_shows_the_old_key_only_where_the_new_one_says_as_much() {
    let mut event = event(Operation::Update, Some(r#"{"id":1}"#), Some(r#"{"id":1}"#));
    event.marker = Some(Marker::PayloadTooLarge);
    event.primary_key = Some(
        [KeyColumn {
            name: "id".into(),
            type_name: "int8".into(),
        }]
        .into(),
    );
    let verdict = grant(false, Readable::All);
    assert_eq!(
        text(&View::new(&event, &verdict).unwrap().old),
        Some(r#"{"id":1}"#)
    );
    event.old = Some(Row::new(r#"{"id":2}"#));
    assert_eq!(text(&View::new(&event, &verdict).unwrap().old), None);
}

#[test]
fn a_broken_row_gives_no_view() {
    let event = event(Operation::Insert, Some(r#"{"id":1"#), None);
    assert_eq!(
        View::new(&event, &grant(false, Readable::Only(Arc::from([])))).unwrap_err(),
        NoView::Row(RowError::NotAnObject)
    );
}

#[test]
fn a_selection_takes_away_and_never_adds() {
    let event = event(Operation::Update, Some(NEW), Some(OLD));
    let select = |columns: &[&str]| Selection::new(columns.iter().map(|name| Box::from(*name)));
    let view = View::narrowed(
        &event,
        &grant(true, Readable::All),
        Some(&select(&["secret", "id"])),
    )
    .unwrap();
    assert_eq!(text(&view.new), Some(r#"{"id":1,"secret":"s"}"#));
    assert_eq!(text(&view.old), Some(r#"{"id":1,"secret":"t"}"#));
    assert_eq!(names(&view), ["id:unknown", "secret:unknown"]);
    let readable = grant(true, only(&["id", "pub"]));
    let view = View::narrowed(&event, &readable, Some(&select(&["secret"]))).unwrap();
    assert_eq!((text(&view.new), names(&view)), (Some("{}"), vec![]));
}

#[test]
fn a_delete_shows_its_key_whatever_is_selected() {
    let event = event(Operation::Delete, None, Some(OLD));
    let selection = Selection::new([Box::from("pub")]);
    let view = View::narrowed(&event, &grant(false, Readable::All), Some(&selection)).unwrap();
    assert_eq!(text(&view.old), Some(r#"{"id":1}"#));
    let service = Verdict::for_service(&Role::new("service_role")).unwrap();
    let view = View::narrowed(&event, &service, Some(&selection)).unwrap();
    assert_eq!(text(&view.old), Some(r#"{"id":1,"pub":"b"}"#));
}
