use super::*;
use proptest::prelude::*;

const INSERT: &str = r#"{"v":1,"n":"a","r":7,"s":"public","t":"notes","o":"I","c":"2026-06-04T10:00:00.123Z","new":{"id":9007199254740993,"x":1.10},"old":null}"#;

fn change_of(text: &str) -> ChangeEvent {
    match decode(text).unwrap() {
        Message::Change(event) => event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_rows_byte_for_byte() {
    let event = change_of(INSERT);
    assert_eq!(event.operation, Operation::Insert);
    assert_eq!(event.table, TableRef::new("public", "notes"));
    assert_eq!(event.relid, 7);
    assert_eq!(event.new.unwrap().text(), r#"{"id":9007199254740993,"x":1.10}"#);
    assert!(event.old.is_none() && event.primary_key.is_none() && event.marker.is_none());
}

#[test]
fn reads_deletes_and_references_with_their_key() {
    let event = change_of(
        r#"{"v":1,"n":"a","r":7,"s":"s","t":"t","o":"D","c":"2026-06-04T10:00:00.123Z","new":null,"old":{"id":1,"b":2},"pk":["id"],"pt":["int8"]}"#,
    );
    assert!(event.is_key_column("id") && !event.is_key_column("b"));
    let event = change_of(
        r#"{"v":1,"n":"a","r":7,"s":"s","t":"t","o":"I","c":"2026-06-04T10:00:00.123Z","new":{},"old":null,"pk":[],"pt":[],"e":["payload_too_large"]}"#,
    );
    assert_eq!(event.marker, Some(Marker::PayloadTooLarge));
    assert_eq!(event.primary_key.as_deref(), Some(&[][..]));
}

#[test]
fn reads_marks() {
    let table = r#""r":7,"s":"s","t":"t""#;
    let expected = TableMark {
        relid: 7,
        table: TableRef::new("s", "t"),
    };
    assert!(
        matches!(decode(&format!(r#"{{"v":1,"n":"a",{table},"o":"T"}}"#)), Ok(Message::Truncated(m)) if m == expected)
    );
    assert!(
        matches!(decode(&format!(r#"{{"v":1,"n":"a",{table},"o":"L"}}"#)), Ok(Message::Lost(m)) if m == expected)
    );
    assert!(
        matches!(decode(&format!(r#"{{"v":1,"n":"a",{table},"o":"X"}}"#)), Ok(Message::TableChanged(Some(m))) if m == expected)
    );
    assert!(matches!(
        decode(r#"{"v":1,"n":"a","r":0,"s":"","t":"","o":"X"}"#),
        Ok(Message::TableChanged(None))
    ));
    let beat = heartbeat(5);
    assert!(matches!(decode(&beat), Ok(Message::Heartbeat(n)) if n.parse::<u128>() == Ok(5)));
}

#[test]
fn refuses_what_the_trigger_never_writes() {
    assert_eq!(decode("").unwrap_err(), EnvelopeError::Malformed);
    assert_eq!(decode("[]").unwrap_err(), EnvelopeError::Malformed);
    assert_eq!(
        decode(&INSERT.replace("\"v\":1", "\"v\":2")).unwrap_err(),
        EnvelopeError::Version
    );
    assert_eq!(
        decode(&INSERT.replace("\"o\":\"I\"", "\"o\":\"Z\"")).unwrap_err(),
        EnvelopeError::Malformed
    );
    for operation in ["U", "D"] {
        let text = INSERT.replace("\"o\":\"I\"", &format!("\"o\":\"{operation}\""));
        assert_eq!(decode(&text).unwrap_err(), EnvelopeError::Inconsistent);
    }
    assert_eq!(
        decode(&INSERT.replace("\"r\":7", "\"r\":0")).unwrap_err(),
        EnvelopeError::Inconsistent
    );
    assert_eq!(
        decode(&INSERT.replace(r#"{"id":9007199254740993,"x":1.10}"#, "3")).unwrap_err(),
        EnvelopeError::Malformed
    );
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in ".{0,200}") {
        let _ = decode(&text);
    }
}
