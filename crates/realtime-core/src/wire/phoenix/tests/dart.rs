//! What the Dart client demands of a frame, as rules: it cannot be run here, so that every kind of
//! frame is held to them.
//!
//! It casts without asking. Of a frame: five elements, references that are strings or null, a
//! payload that is a map. Of a change: integer ids; texts for schema, table and a time that parses;
//! a list of columns with a name and a type that is not empty; a map under `record` unless it is a
//! DELETE, and under `old_record` unless it is an INSERT. Of a join's reply: as many bindings as
//! were asked, in their order, with the same event, schema, table and filter, and an integer id.

use serde_json::{Map, Value};

use super::*;

/// The topic, event and payload of a frame that the client can take.
fn accepted(frame: &str) -> (String, String, Map<String, Value>) {
    let Value::Array(parts) = serde_json::from_str(frame).unwrap() else {
        panic!("not a list: {frame}")
    };
    let [join_ref, reference, topic, event, payload] = parts.as_slice() else {
        panic!("not five elements: {frame}")
    };
    for reference in [join_ref, reference] {
        assert!(reference.is_null() || reference.is_string(), "{frame}");
    }
    (
        topic.as_str().unwrap().to_owned(),
        event.as_str().unwrap().to_owned(),
        payload.as_object().unwrap().clone(),
    )
}

/// Fails unless the client would hand this change to its callback; gives `newRecord` and `oldRecord`.
fn change(frame: &str) -> (Value, Value) {
    let (_, event, payload) = accepted(frame);
    assert_eq!(event, "postgres_changes");
    let ids = payload["ids"].as_array().unwrap();
    assert!(!ids.is_empty() && ids.iter().all(Value::is_u64), "{frame}");
    let data = payload["data"].as_object().unwrap();
    for text in ["schema", "table"] {
        assert!(data[text].is_string(), "{text} of {frame}");
    }
    let time = data["commit_timestamp"].as_str().unwrap().as_bytes();
    assert!(
        time.len() == 24 && time[10] == b'T' && time[23] == b'Z',
        "{frame}"
    );
    assert!(data["errors"].is_null() || data["errors"].is_array(), "{frame}");
    for column in data["columns"].as_array().unwrap() {
        assert!(column["name"].is_string(), "{frame}");
        // It looks at the first character.
        assert!(!column["type"].as_str().unwrap().is_empty(), "{frame}");
    }
    let operation = data["type"].as_str().unwrap();
    let row = |key: &str, wanted: bool| {
        if wanted {
            assert!(data[key].is_object(), "{key} of {frame}");
        }
        data.get(key).cloned().unwrap_or_else(|| serde_json::json!({}))
    };
    match operation {
        "INSERT" | "UPDATE" | "DELETE" => (
            row("record", operation != "DELETE"),
            row("old_record", operation != "INSERT"),
        ),
        other => panic!("{other} is none of its operations"),
    }
}

fn v2(event: &ChangeEvent, verdict: &Verdict) -> String {
    frames(event, verdict)(Serializer::V2)
}

#[test]
fn every_kind_of_change_can_be_taken() {
    let hidden = v2(&event(Operation::Update, Some(NEW), Some(OLD)), &grant(false));
    assert_eq!(change(&hidden).1, serde_json::json!({}));
    let inserted = v2(&event(Operation::Insert, Some(NEW), None), &grant(false));
    assert_eq!(change(&inserted).0["title"], "aé");
    let updated = v2(&event(Operation::Update, Some(NEW), Some(OLD)), &grant(true));
    assert_eq!(change(&updated).1["title"], "b");
    let deleted = v2(&event(Operation::Delete, None, Some(OLD)), &grant(true));
    assert_eq!(
        change(&deleted).1,
        serde_json::json!({ "id": 9_007_199_254_740_993_i64 })
    );

    let mut keyless = event(Operation::Delete, None, Some(OLD));
    keyless.primary_key = Some([].into());
    assert_eq!(change(&v2(&keyless, &grant(true))).1, serde_json::json!({}));

    let mut reference = event(Operation::Insert, Some(r#"{"id":1}"#), None);
    reference.marker = Some(Marker::PayloadTooLarge);
    reference.primary_key = Some(
        [KeyColumn {
            name: "id".into(),
            type_name: "int8".into(),
        }]
        .into(),
    );
    assert_eq!(
        change(&v2(&reference, &grant(true))).0,
        serde_json::json!({ "id": 1 })
    );

    let readable = Readable::Only(Arc::from([]));
    let nothing = Verdict::Deliver(Grant {
        old_visible: true,
        whole_deletes: false,
        readable,
    });
    let blind = v2(&event(Operation::Update, Some(NEW), Some(OLD)), &nothing);
    assert_eq!(change(&blind), (serde_json::json!({}), serde_json::json!({})));
}

/// As the client writes it: absent keys are left out, list items always quoted, the token beside.
const JOIN: &str = r#"["1","1","realtime:messages-feed","phx_join",{"config":{"broadcast":{"ack":false,"self":false},"presence":{"key":"","enabled":false},"private":false,"postgres_changes":[{"event":"INSERT","schema":"public","table":"messages"},{"event":"*","schema":"public","table":"orders","filter":"region=in.(\"eu\",\"uk\")"}]},"access_token":"a.b.c"}]"#;

#[test]
fn its_join_is_read_and_the_reply_is_what_it_compares_with() {
    let frame = decode_text(Serializer::V2, JOIN).unwrap();
    let join = JoinConfig::parse(frame.payload.json(), "messages-feed");
    assert_eq!(join.access_token.as_deref(), Some("a.b.c"));
    let bindings: Vec<_> = join
        .bindings
        .iter()
        .map(|b| BindingParams::parse(b).unwrap())
        .collect();
    assert_eq!(bindings[1].filter.as_deref(), Some(r#"region=in.("eu","uk")"#));
    let parsed = crate::filter::FilterExpr::parse(
        bindings[1].filter.as_deref().unwrap(),
        &crate::filter::FilterLimits::default(),
    );
    assert_eq!(
        &*parsed.unwrap().unwrap().conditions()[0].values,
        ["eu".into(), Box::<str>::from("uk")]
    );

    let echoed: Vec<String> = (1..).zip(&bindings).map(|(n, b)| b.reply(id(n))).collect();
    let response = format!(r#"{{"postgres_changes":[{}]}}"#, echoed.join(","));
    let reply = reply_ok(
        Serializer::V2,
        &frame.join_ref,
        &frame.reference,
        &frame.topic,
        &response,
    );
    let (topic, event, payload) = accepted(&reply);
    assert_eq!(
        (topic.as_str(), event.as_str(), &payload["status"]),
        ("realtime:messages-feed", "phx_reply", &"ok".into())
    );
    let asked: Value = serde_json::from_str(JOIN).unwrap();
    let asked = asked[4]["config"]["postgres_changes"].as_array().unwrap();
    let answered = payload["response"]["postgres_changes"].as_array().unwrap();
    assert_eq!(asked.len(), answered.len());
    for (asked, answered) in asked.iter().zip(answered) {
        for key in ["event", "schema", "table", "filter"] {
            assert_eq!(asked.get(key), answered.get(key), "{key}");
        }
        assert!(answered["id"].as_u64().unwrap() > 0);
    }
}

#[test]
fn every_other_frame_can_be_taken_and_ends_only_what_it_should() {
    let join = Ref::text("6");
    // It takes an end only under the reference of its join.
    for (frame, name) in [
        (close_frame(Serializer::V2, &join, "realtime:a"), "phx_close"),
        (error_frame(Serializer::V2, &join, "realtime:a"), "phx_error"),
    ] {
        let (_, event, _) = accepted(&frame);
        assert_eq!(event, name);
        assert!(frame.starts_with(r#"["6","6","#), "{frame}");
    }
    let refusal = reply_error(
        Serializer::V2,
        &join,
        &Ref::text("7"),
        "realtime:a",
        "InvalidJWTToken: expired",
    );
    let (_, _, payload) = accepted(&refusal);
    assert!(payload["response"]["reason"].is_string());
    let hint = SystemFrame {
        extension: "postgres_changes",
        status: SystemStatus::Ok,
        message: "Changes may have been missed",
        channel: "a",
        extra: &[("code", "\"gap\"")],
    };
    let (_, event, payload) = accepted(&system_frame(Serializer::V2, &join, "realtime:a", &hint));
    // Any other status of a `system` frame would end the channel there.
    assert_eq!((event.as_str(), &payload["status"]), ("system", &"ok".into()));
}
