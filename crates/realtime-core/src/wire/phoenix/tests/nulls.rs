//! Where a frame may say null: encoders have crashed on references that are null, and clients have
//! compared what was null on one side and absent on the other.

use serde_json::Value;

use super::*;

/// Topic, join reference, reference, event and payload; the first version has no join reference.
fn parts(serializer: Serializer, frame: &str) -> (Value, Value, String, Value) {
    let mut json: Value = serde_json::from_str(frame).unwrap();
    match serializer {
        Serializer::V1 => {
            assert_eq!(json.as_object().unwrap().len(), 4, "{frame}");
            let event = json["event"].as_str().unwrap().to_owned();
            (Value::Null, json["ref"].take(), event, json["payload"].take())
        }
        Serializer::V2 => {
            assert_eq!(json.as_array().unwrap().len(), 5, "{frame}");
            let event = json[3].as_str().unwrap().to_owned();
            (json[0].take(), json[1].take(), event, json[4].take())
        }
    }
}

#[test]
fn e10_pushes_have_a_null_reference_and_replies_the_one_they_answer() {
    let system = SystemFrame {
        extension: "postgres_changes",
        status: SystemStatus::Ok,
        message: "m",
        channel: "c",
        extra: &[],
    };
    for serializer in BOTH {
        let v2 = serializer == Serializer::V2;
        let join_ref = Ref::text("6");
        for (operation, new, old, old_visible) in [
            (Operation::Insert, Some(NEW), None, false),
            (Operation::Update, Some(NEW), Some(OLD), true),
            (Operation::Update, Some(NEW), Some(OLD), false),
            (Operation::Delete, None, Some(OLD), false),
        ] {
            let frame = frames(&event(operation, new, old), &grant(old_visible))(serializer);
            let (joined, reference, name, payload) = parts(serializer, &frame);
            assert_eq!(
                (&*name, &joined, &reference),
                ("postgres_changes", &Value::Null, &Value::Null)
            );
            let data = payload["data"].as_object().unwrap();
            // What the public SDKs read is there as an object or not there at all.
            for (key, there) in [("record", new.is_some()), ("old_record", old.is_some())] {
                assert_eq!(
                    data.get(key).is_some_and(Value::is_object),
                    there,
                    "{key}: {frame}"
                );
                assert_eq!(data.contains_key(key), there, "{key}: {frame}");
            }
            let nulls: Vec<&str> = data
                .iter()
                .filter(|(_, value)| value.is_null())
                .map(|(key, _)| &**key)
                .collect();
            let ours = [
                ("new", new.is_none()),
                (
                    "old",
                    old.is_none() || (!old_visible && operation == Operation::Update),
                ),
            ];
            let expected: Vec<&str> = ours
                .iter()
                .filter(|(_, null)| *null)
                .map(|(key, _)| *key)
                .collect();
            assert_eq!(nulls, [&["errors"][..], &expected].concat(), "{frame}");
        }
        let (joined, reference, _, payload) = parts(
            serializer,
            &system_frame(serializer, &join_ref, "realtime:c", &system),
        );
        assert_eq!(reference, Value::Null);
        assert_eq!(joined.is_string(), v2);
        assert!(payload.as_object().unwrap().values().all(Value::is_string));
        for frame in [
            close_frame(serializer, &join_ref, "realtime:c"),
            error_frame(serializer, &join_ref, "realtime:c"),
        ] {
            let (_, reference, _, payload) = parts(serializer, &frame);
            assert_eq!((reference, payload), (Value::from("6"), serde_json::json!({})));
        }
        for asked in [Ref::text("7"), Ref::NULL] {
            let frame = reply_ok(serializer, &join_ref, &asked, "realtime:c", "{}");
            let (_, reference, _, _) = parts(serializer, &frame);
            assert_eq!(reference, serde_json::from_str::<Value>(asked.as_json()).unwrap());
        }
    }
    // A binding's reply holds what the client wrote and the id, and no further key.
    for asked in [
        r#"{"event":"*","schema":"public"}"#,
        r#"{"table":"t","filter":null}"#,
    ] {
        let answer: Value = serde_json::from_str(&BindingParams::parse(asked).unwrap().reply(id(3))).unwrap();
        let mut expected: Value = serde_json::from_str(asked).unwrap();
        expected["id"] = 3.into();
        assert_eq!(answer, expected);
    }
}
