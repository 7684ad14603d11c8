//! Golden frames of both serializers, and the decoders against anything.

use std::sync::Arc;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::join::{WAIT_DEFAULT_MS, WAIT_MAX_MS};
use super::*;
use crate::change::{ChangeEvent, KeyColumn, Marker, Operation, Position, Row};
use crate::id::{BindingId, TableRef};
use crate::index::EventFilter;
use crate::verdict::{Grant, Readable, Verdict};
use crate::view::View;

mod dart;
mod nulls;

const BOTH: [Serializer; 2] = [Serializer::V1, Serializer::V2];

fn check(frames: impl Fn(Serializer) -> String, expect: Expect) {
    let both: Vec<String> = BOTH.into_iter().map(frames).collect();
    for frame in &both {
        serde_json::from_str::<serde_json::Value>(frame).unwrap();
    }
    expect.assert_eq(&both.join("\n"));
}

fn id(n: u64) -> BindingId {
    BindingId::from_ordinal(n - 1).unwrap()
}

fn event(operation: Operation, new: Option<&str>, old: Option<&str>) -> ChangeEvent {
    let key = KeyColumn {
        name: "id".into(),
        type_name: "int8".into(),
    };
    ChangeEvent {
        id: "n".into(),
        relid: 1,
        table: TableRef::new("public", "no\"tes"),
        operation,
        commit_timestamp: "2026-06-04T10:00:00.123Z".into(),
        new: new.map(Row::new),
        old: old.map(Row::new),
        primary_key: (operation == Operation::Delete).then(|| [key].into()),
        marker: None,
        position: Position::default(),
    }
}

fn grant(old_visible: bool) -> Verdict {
    Verdict::Deliver(Grant {
        old_visible,
        whole_deletes: false,
        readable: Readable::All,
    })
}

fn frames(event: &ChangeEvent, verdict: &Verdict) -> impl Fn(Serializer) -> String {
    let data = ChangeData::new(&View::new(event, verdict).unwrap());
    move |serializer| change_frame(serializer, "realtime:röom", &[id(3), id(7)], &data)
}

// Digits that no double holds, an escape, and blanks inside the value: all must stay.
const NEW: &str = r#"{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}}"#;
const OLD: &str = r#"{"id":9007199254740993,"title":"b","meta":null}"#;

#[test]
fn an_insert_has_no_old_record() {
    check(
        frames(&event(Operation::Insert, Some(NEW), None), &grant(false)),
        expect![[r#"
            {"topic":"realtime:röom","event":"postgres_changes","payload":{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"INSERT","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"INSERT","new":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old":null,"record":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}}}},"ref":null}
            [null,null,"realtime:röom","postgres_changes",{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"INSERT","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"INSERT","new":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old":null,"record":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}}}}]"#]],
    );
}

#[test]
fn an_update_shows_both_rows() {
    check(
        frames(&event(Operation::Update, Some(NEW), Some(OLD)), &grant(true)),
        expect![[r#"
            {"topic":"realtime:röom","event":"postgres_changes","payload":{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"UPDATE","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"UPDATE","new":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old":{"id":9007199254740993,"title":"b","meta":null},"record":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old_record":{"id":9007199254740993,"title":"b","meta":null}}},"ref":null}
            [null,null,"realtime:röom","postgres_changes",{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"UPDATE","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"UPDATE","new":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old":{"id":9007199254740993,"title":"b","meta":null},"record":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old_record":{"id":9007199254740993,"title":"b","meta":null}}}]"#]],
    );
}

#[test]
fn an_update_from_a_hidden_row_has_an_empty_old_record_and_old_null() {
    check(
        frames(&event(Operation::Update, Some(NEW), Some(OLD)), &grant(false)),
        expect![[r#"
            {"topic":"realtime:röom","event":"postgres_changes","payload":{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"UPDATE","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"UPDATE","new":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old":null,"record":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old_record":{}}},"ref":null}
            [null,null,"realtime:röom","postgres_changes",{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"UPDATE","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"UPDATE","new":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old":null,"record":{"id":9007199254740993,"title":"a\u00e9","meta":{"a": 1.50}},"old_record":{}}}]"#]],
    );
}

#[test]
fn a_delete_has_no_record() {
    check(
        frames(&event(Operation::Delete, None, Some(OLD)), &grant(true)),
        expect![[r#"
            {"topic":"realtime:röom","event":"postgres_changes","payload":{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"DELETE","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"DELETE","new":null,"old":{"id":9007199254740993},"old_record":{"id":9007199254740993}}},"ref":null}
            [null,null,"realtime:röom","postgres_changes",{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"DELETE","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"DELETE","new":null,"old":{"id":9007199254740993},"old_record":{"id":9007199254740993}}}]"#]],
    );
}

#[test]
fn a_reference_carries_its_mark_and_its_keys_types() {
    let mut event = event(Operation::Update, Some(r#"{"id":1}"#), Some(r#"{"id":1}"#));
    event.marker = Some(Marker::PayloadTooLarge);
    event.primary_key = Some(
        [KeyColumn {
            name: "id".into(),
            type_name: "int8".into(),
        }]
        .into(),
    );
    check(
        frames(&event, &grant(true)),
        expect![[r#"
        {"topic":"realtime:röom","event":"postgres_changes","payload":{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"UPDATE","columns":[{"name":"id","type":"int8"}],"errors":["payload_too_large"],"eventType":"UPDATE","new":{"id":1},"old":{"id":1},"record":{"id":1},"old_record":{"id":1}}},"ref":null}
        [null,null,"realtime:röom","postgres_changes",{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"UPDATE","columns":[{"name":"id","type":"int8"}],"errors":["payload_too_large"],"eventType":"UPDATE","new":{"id":1},"old":{"id":1},"record":{"id":1},"old_record":{"id":1}}}]"#]],
    );
}

#[test]
fn a_service_role_sees_the_whole_deleted_row() {
    let event = event(Operation::Delete, None, Some(OLD));
    let verdict = Verdict::for_service(&crate::claims::Role::new("service_role")).unwrap();
    check(
        frames(&event, &verdict),
        expect![[r#"
        {"topic":"realtime:röom","event":"postgres_changes","payload":{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"DELETE","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"DELETE","new":null,"old":{"id":9007199254740993,"title":"b","meta":null},"old_record":{"id":9007199254740993,"title":"b","meta":null}}},"ref":null}
        [null,null,"realtime:röom","postgres_changes",{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"DELETE","columns":[{"name":"id","type":"unknown"},{"name":"title","type":"unknown"},{"name":"meta","type":"unknown"}],"errors":null,"eventType":"DELETE","new":null,"old":{"id":9007199254740993,"title":"b","meta":null},"old_record":{"id":9007199254740993,"title":"b","meta":null}}}]"#]],
    );
}

#[test]
fn only_readable_columns_are_named() {
    let event = event(Operation::Insert, Some(NEW), None);
    let readable = Readable::Only(Arc::from([Box::from("id")]));
    let verdict = Verdict::Deliver(Grant {
        old_visible: false,
        whole_deletes: false,
        readable,
    });
    check(
        frames(&event, &verdict),
        expect![[r#"
        {"topic":"realtime:röom","event":"postgres_changes","payload":{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"INSERT","columns":[{"name":"id","type":"unknown"}],"errors":null,"eventType":"INSERT","new":{"id":9007199254740993},"old":null,"record":{"id":9007199254740993}}},"ref":null}
        [null,null,"realtime:röom","postgres_changes",{"ids":[3,7],"data":{"schema":"public","table":"no\"tes","commit_timestamp":"2026-06-04T10:00:00.123Z","type":"INSERT","columns":[{"name":"id","type":"unknown"}],"errors":null,"eventType":"INSERT","new":{"id":9007199254740993},"old":null,"record":{"id":9007199254740993}}}]"#]],
    );
}

#[test]
fn replies_echo_their_references() {
    let (join_ref, reference) = (Ref::text("11"), Ref::text("1"));
    check(
        |s| reply_ok(s, &join_ref, &reference, "realtime:a b", "{}"),
        expect![[r#"
        {"topic":"realtime:a b","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":"1"}
        ["11","1","realtime:a b","phx_reply",{"status":"ok","response":{}}]"#]],
    );
    check(
        |s| reply_error(s, &join_ref, &reference, "realtime:a", "TopicNameRequired: \"x\""),
        expect![[r#"
            {"topic":"realtime:a","event":"phx_reply","payload":{"status":"error","response":{"reason":"TopicNameRequired: \"x\""}},"ref":"1"}
            ["11","1","realtime:a","phx_reply",{"status":"error","response":{"reason":"TopicNameRequired: \"x\""}}]"#]],
    );
    check(
        |s| reply_ok(s, &Ref::NULL, &Ref::NULL, CONTROL_TOPIC, "{}"),
        expect![[r#"
        {"topic":"phoenix","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":null}
        [null,null,"phoenix","phx_reply",{"status":"ok","response":{}}]"#]],
    );
}

#[test]
fn system_frames_have_the_four_keys_and_further_ones() {
    let frame = SystemFrame {
        extension: "postgres_changes",
        status: SystemStatus::Ok,
        message: "Subscribed to PostgreSQL",
        channel: "röom",
        extra: &[("role", "\"anon\"")],
    };
    check(
        |s| system_frame(s, &Ref::text("6"), "realtime:röom", &frame),
        expect![[r#"
        {"topic":"realtime:röom","event":"system","payload":{"extension":"postgres_changes","status":"ok","message":"Subscribed to PostgreSQL","channel":"röom","role":"anon"},"ref":null}
        ["6",null,"realtime:röom","system",{"extension":"postgres_changes","status":"ok","message":"Subscribed to PostgreSQL","channel":"röom","role":"anon"}]"#]],
    );
    let over = SystemFrame {
        status: SystemStatus::Error,
        extension: "system",
        extra: &[],
        ..frame
    };
    check(
        |s| system_frame(s, &Ref::text("6"), "realtime:röom", &over),
        expect![[r#"
        {"topic":"realtime:röom","event":"system","payload":{"extension":"system","status":"error","message":"Subscribed to PostgreSQL","channel":"röom"},"ref":null}
        ["6",null,"realtime:röom","system",{"extension":"system","status":"error","message":"Subscribed to PostgreSQL","channel":"röom"}]"#]],
    );
}

#[test]
fn a_close_carries_its_join_twice() {
    check(
        |s| close_frame(s, &Ref::text("6"), "realtime:a"),
        expect![[r#"
        {"topic":"realtime:a","event":"phx_close","payload":{},"ref":"6"}
        ["6","6","realtime:a","phx_close",{}]"#]],
    );
    check(
        |s| error_frame(s, &Ref::text("6"), "realtime:a"),
        expect![[r#"
        {"topic":"realtime:a","event":"phx_error","payload":{},"ref":"6"}
        ["6","6","realtime:a","phx_error",{}]"#]],
    );
}

#[test]
fn a_reference_that_is_too_long_is_none() {
    let decode = |digits: usize| {
        let json = "7".repeat(digits);
        decode_text(Serializer::V2, &format!(r#"[{json},{json},"t","e",{{}}]"#))
    };
    assert!(decode(256).is_ok());
    assert_eq!(decode(257).unwrap_err(), FrameError::Malformed);
}

#[test]
fn references_come_back_as_they_came() {
    for (json, back) in [
        ("null", "null"),
        ("\"1\"", "\"1\""),
        ("7", "7"),
        ("\"\\u0031\"", "\"1\""),
    ] {
        let v2 = decode_text(Serializer::V2, &format!(r#"[{json},{json},"t","e",{{}},1,2]"#)).unwrap();
        let v1 = format!(r#"{{"topic":"t","event":"e","payload":{{}},"ref":{json},"join_ref":{json}}}"#);
        let v1 = decode_text(Serializer::V1, &v1).unwrap();
        for frame in [v1, v2] {
            assert_eq!(
                (frame.join_ref.as_json(), frame.reference.as_json()),
                (back, back)
            );
            assert_eq!(
                (&*frame.topic, &*frame.event, frame.payload.json()),
                ("t", "e", "{}")
            );
        }
    }
    let without = decode_text(
        Serializer::V1,
        r#"{"topic":"t","event":"e","payload":null,"ref":null}"#,
    )
    .unwrap();
    assert!(without.join_ref.is_null());
}

#[test]
fn what_is_not_a_frame_is_an_error() {
    for text in [
        "",
        "1",
        "[]",
        r#"[null,null,"t","e"]"#,
        r#"[{},null,"t","e",{}]"#,
        r#"[null,null,1,"e",{}]"#,
    ] {
        assert_eq!(
            decode_text(Serializer::V2, text).unwrap_err(),
            FrameError::Malformed,
            "{text}"
        );
    }
    for text in [
        "",
        "[]",
        r#"{"topic":"t"}"#,
        r#"{"topic":"t","event":"e","payload":{},"ref":[]}"#,
    ] {
        assert_eq!(
            decode_text(Serializer::V1, text).unwrap_err(),
            FrameError::Malformed,
            "{text}"
        );
    }
    assert_eq!(
        decode_binary(Serializer::V1, &[3]).unwrap_err(),
        FrameError::BinaryInV1
    );
    assert_eq!(
        decode_binary(Serializer::V2, &[]).unwrap_err(),
        FrameError::Truncated
    );
    assert_eq!(
        decode_binary(Serializer::V2, &[0, 0, 0]).unwrap_err(),
        FrameError::UnknownKind
    );
    assert_eq!(
        decode_binary(Serializer::V2, &[3, 1, 1, 1, 1, 0, 0, b'a']).unwrap_err(),
        FrameError::Truncated
    );
    assert_eq!(
        decode_binary(Serializer::V2, &[3, 0, 0, 1, 0, 0, 0, 0xff]).unwrap_err(),
        FrameError::Malformed
    );
    assert_eq!(
        decode_binary(Serializer::V2, &[3, 0, 0, 0, 0, 0, 2]).unwrap_err(),
        FrameError::Malformed
    );
}

#[test]
fn a_binary_broadcast_goes_in_as_kind_3_and_out_as_kind_4() {
    let mut push = vec![3, 1, 1, 17, 2, 17, 1];
    push.extend_from_slice("67realtime:room:é1ev{\"persist\":false}{\"a\":1}".as_bytes());
    let frame = decode_binary(Serializer::V2, &push).unwrap();
    assert_eq!(
        (frame.join_ref, frame.reference),
        (Ref::text("6"), Ref::text("7"))
    );
    assert_eq!((&*frame.topic, &*frame.event), ("realtime:room:é1", "broadcast"));
    let Payload::Broadcast(mut broadcast) = frame.payload else {
        panic!("not a broadcast")
    };
    assert_eq!(
        (&*broadcast.event, &*broadcast.metadata),
        ("ev", r#"{"persist":false}"#)
    );
    assert_eq!(&*broadcast.payload, br#"{"a":1}"#);
    broadcast.metadata = Box::default();
    let mut out = vec![4, 17, 2, 0, 1];
    out.extend_from_slice("realtime:room:é1ev{\"a\":1}".as_bytes());
    assert_eq!(user_broadcast("realtime:room:é1", &broadcast).unwrap(), out);
    assert_eq!(user_broadcast(&"x".repeat(256), &broadcast), None);
}

#[test]
fn versions_are_matched_by_major_and_minor() {
    assert_eq!(Serializer::from_vsn(None), Ok(Serializer::V1));
    assert_eq!(Serializer::from_vsn(Some("1.0.0")), Ok(Serializer::V1));
    assert_eq!(Serializer::from_vsn(Some("2.0.3")), Ok(Serializer::V2));
    for vsn in ["", "2", "2.0", "3.0.0", "1.1.0", "2.0.0x", "2.0.", "2.0.0.0"] {
        assert_eq!(Serializer::from_vsn(Some(vsn)), Err(UnknownVersion), "{vsn}");
    }
}

#[test]
fn a_join_is_read_with_tolerance() {
    let full = r#"{"config":{"broadcast":{"ack":true,"self":"TRUE"},"presence":{"key":7,"enabled":false},
        "postgres_changes":[null,{"event":"*"},3],"postgres_changes_options":{"wait":true,"timeout":99999},
        "private":false,"later":{}},"access_token":" t ","version":"x"}"#;
    let join = JoinConfig::parse(full, "a");
    assert!(join.broadcast_ack && join.broadcast_self && !join.presence_enabled && !join.private);
    assert_eq!(
        (&*join.presence_key, join.access_token.as_deref()),
        ("7", Some("t"))
    );
    assert_eq!(join.bindings, [r#"{"event":"*"}"#.into(), Box::from("3")]);
    assert_eq!(join.wait_ms, Some(WAIT_MAX_MS));
    let odd = JoinConfig::parse(
        r#"{"config":{"broadcast":1,"presence":[],"postgres_changes":{}}}"#,
        "a",
    );
    assert!(odd.bindings.is_empty() && odd.wait_ms.is_none() && odd.access_token.is_none());
    let wait = r#"{"config":{"postgres_changes_options":{"wait":true,"timeout":"x"}}}"#;
    assert_eq!(JoinConfig::parse(wait, "a").wait_ms, Some(WAIT_DEFAULT_MS));
    assert!(JoinConfig::parse("[]", "public").bindings.len() == 1);
}

#[test]
fn a_payload_without_config_names_its_binding_by_topic() {
    let join = JoinConfig::parse("{}", "public:todos:id=eq.1:2");
    let binding = BindingParams::parse(&join.bindings[0]).unwrap();
    assert_eq!(binding.table.as_deref(), Some("todos"));
    assert_eq!(binding.filter.as_deref(), Some("id=eq.1:2"));
}

#[test]
fn an_access_token_that_is_none_hands_back_to_the_connection() {
    assert_eq!(
        access_token(r#"{"access_token":"a.b.c"}"#).as_deref(),
        Some("a.b.c")
    );
    for payload in [
        "{}",
        r#"{"access_token":null}"#,
        r#"{"access_token":""}"#,
        r#"{"access_token":" "}"#,
        "7",
    ] {
        assert_eq!(access_token(payload), None, "{payload}");
    }
}

#[test]
fn bindings_are_echoed_byte_for_byte() {
    for (sent, back) in [
        (
            r#"{"event":"*","schema":"public"}"#,
            r#"{"event":"*","schema":"public","id":5}"#,
        ),
        (
            r#"{ "event": "insert", "schema":"public","table":"ü\u00e9","filter":"a=eq.\"x,y\"" , "select":["id"]}"#,
            r#"{ "event": "insert", "schema":"public","table":"ü\u00e9","filter":"a=eq.\"x,y\"" , "select":["id"],"id":5}"#,
        ),
        (
            r#"{"table":"t","filter":"","id":"mine"}"#,
            r#"{"table":"t","filter":"","id":5}"#,
        ),
        (
            r#"{"schema":"public","table":null}"#,
            r#"{"schema":"public","table":null,"id":5}"#,
        ),
    ] {
        assert_eq!(BindingParams::parse(sent).unwrap().reply(id(5)), back);
    }
}

#[test]
fn bindings_name_the_rule_that_they_break() {
    for (sent, error) in [
        ("3", BindingError::NotAnObject),
        (r#"{"event":"TRUNCATE","schema":"public"}"#, BindingError::Event),
        (r#"{"event":1,"schema":"public"}"#, BindingError::Event),
        (r#"{"schema":{}}"#, BindingError::Schema),
        (r#"{"schema":"public","table":1}"#, BindingError::Table),
        (
            r#"{"schema":"*","table":"t","filter":"id=eq.1"}"#,
            BindingError::FilterWithoutTable,
        ),
        (r#"{"event":"*"}"#, BindingError::NoTarget),
        (r#"{"table":"t","filter":1}"#, BindingError::Filter),
        (r#"{"table":"t","select":1}"#, BindingError::Select),
        (r#"{"table":"t","select":["a",1]}"#, BindingError::Select),
        (r#"{"table":"t","select":["a",""]}"#, BindingError::Select),
        (r#"{"table":"t","select":","}"#, BindingError::Select),
        (r#"{"table":"t","select":"a,"}"#, BindingError::Select),
        (
            r#"{"schema":"public","select":["a"]}"#,
            BindingError::SelectWithoutTable,
        ),
        (
            r#"{"schema":"*","table":"t","select":"a"}"#,
            BindingError::SelectWithoutTable,
        ),
        (
            r#"{"schema":"public","filter":"id=eq.1"}"#,
            BindingError::FilterWithoutTable,
        ),
    ] {
        assert_eq!(BindingParams::parse(sent).unwrap_err(), error, "{sent}");
    }
    let any = BindingParams::parse(r#"{"schema":"public","table":"*"}"#).unwrap();
    assert_eq!(
        (any.event, &any.table, any.one_table()),
        (EventFilter::All, &None, None)
    );
    let every = BindingParams::parse(r#"{"schema":"*","table":"t"}"#).unwrap();
    assert_eq!(
        (every.schema.as_deref(), every.table.as_deref()),
        (None, Some("t"))
    );
    for (sent, columns) in [
        (r#"{"table":"t","select":["a","b,c"]}"#, Some(vec!["a", "b,c"])),
        (r#"{"table":"t","select":"a, \"b,c\""}"#, Some(vec!["a", "b,c"])),
        (r#"{"schema":"public","select":[]}"#, None),
        (r#"{"table":"t","select":" "}"#, None),
        (r#"{"table":"t","select":null}"#, None),
    ] {
        let select = BindingParams::parse(sent).unwrap().select;
        let names = select
            .as_deref()
            .map(|names| names.iter().map(|name| &**name).collect());
        assert_eq!(names, columns, "{sent}");
    }
    let one = BindingParams::parse(r#"{"table":"t"}"#).unwrap();
    assert_eq!(one.one_table(), Some(TableRef::new("public", "t")));
}

#[test]
fn debug_shows_no_secret() {
    let frame = decode_text(
        Serializer::V2,
        r#"[null,null,"t","access_token",{"access_token":"marker"}]"#,
    )
    .unwrap();
    let join = JoinConfig::parse(r#"{"config":{},"access_token":"marker"}"#, "a");
    let binding = BindingParams::parse(r#"{"table":"t","filter":"id=eq.marker"}"#).unwrap();
    assert!(!format!("{frame:?}{join:?}{binding:?}").contains("marker"));
}

proptest! {
    #[test]
    fn decoders_never_panic(text in ".{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for serializer in BOTH {
            let _ = decode_text(serializer, &text);
            let _ = decode_binary(serializer, &bytes);
        }
        let mut push = vec![3];
        push.extend_from_slice(&bytes);
        let _ = decode_binary(Serializer::V2, &push);
        let _ = JoinConfig::parse(&text, &text);
        let _ = BindingParams::parse(&text);
    }

    #[test]
    fn any_topic_survives_both_serializers(topic in "\\PC{0,40}", reference in "\\PC{0,8}") {
        let reference = Ref::text(&reference);
        let v1 = reply_ok(Serializer::V1, &Ref::NULL, &reference, &topic, "{}");
        let v2 = reply_ok(Serializer::V2, &reference, &reference, &topic, "{}");
        for (serializer, text) in [(Serializer::V1, v1), (Serializer::V2, v2)] {
            let frame = decode_text(serializer, &text).unwrap();
            prop_assert_eq!(&*frame.topic, &*topic);
            prop_assert_eq!(&frame.reference, &reference);
        }
    }
}
