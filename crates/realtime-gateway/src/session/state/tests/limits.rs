//! Each limit holds at its value, and one beyond it is refused by name.

use super::*;

#[test]
fn limits_are_named_by_the_codes_of_the_sdks() {
    let mut script = Script::new(Serializer::V2);
    script.limits.socket_channels_max = 1;
    script.limits.channel_bindings_max = 1;
    script.limits.socket_joins_per_second_max = 4;
    script.limits.topic_bytes_max = 20;
    let long = join("1", NOTES, None).replace("realtime:room", "realtime:far too long a name");
    check(
        &script.send(&long),
        expect![[
            r#"["1","1","realtime:far too long a name","phx_reply",{"status":"error","response":{"reason":"TopicNameRequired: topic: must be at most 20 bytes"}}]"#
        ]],
    );
    check(
        &script.send(&join("1", &format!("{NOTES},{NOTES}"), None)),
        expect![[
            r#"["1","1","realtime:room","phx_reply",{"status":"error","response":{"reason":"RealtimeDisabledForConfiguration: postgres_changes: at most 1 bindings on a channel"}}]"#
        ]],
    );
    check(
        &script.send(&join("1", r#"{"event":"TRUNCATE","schema":"public"}"#, None)),
        expect![[
            r#"["1","1","realtime:room","phx_reply",{"status":"error","response":{"reason":"RealtimeDisabledForConfiguration: binding 0: event: must be *, INSERT, UPDATE or DELETE"}}]"#
        ]],
    );
    script.limits.binding_bytes_max = 100;
    script.limits.socket_joins_per_second_max = 5;
    let long = format!(r#"{{"schema":"public","table":"{}"}}"#, "x".repeat(100));
    check(
        &script.send(&join("1", &long, None)),
        expect![[
            r#"["1","1","realtime:room","phx_reply",{"status":"error","response":{"reason":"RealtimeDisabledForConfiguration: binding 0: must be at most 100 bytes"}}]"#
        ]],
    );
    script.send(&join("1", NOTES, None));
    let other = join("2", NOTES, None).replace("realtime:room", "realtime:other");
    check(
        &script.send(&other),
        expect![[
            r#"["2","2","realtime:other","phx_reply",{"status":"error","response":{"reason":"ChannelRateLimitReached: Too many channels (at most 1 on a socket)"}}]"#
        ]],
    );
    check(
        &script.send(&other),
        expect![[
            r#"["2","2","realtime:other","phx_reply",{"status":"error","response":{"reason":"ClientJoinRateLimitReached: Too many joins per second (at most 5 on a socket)"}}]"#
        ]],
    );
    script.now_ms += 1_000;
    assert!(script.send(&other).contains("ChannelRateLimitReached"));
}

/// The reason of an error reply; nothing where the join goes on.
fn refused(effects: &str) -> Option<String> {
    let frame: serde_json::Value = serde_json::from_str(effects.lines().last()?).ok()?;
    let reason = frame[4]["response"]["reason"].as_str()?;
    Some(reason.to_owned())
}

fn join_of(topic: &str, bindings: &[String], token: &str) -> String {
    let payload = format!(
        r#"{{"config":{{"postgres_changes":[{}]}},"access_token":"{token}"}}"#,
        bindings.join(",")
    );
    format!(r#"["1","1","{topic}","phx_join",{payload}]"#)
}

/// Tries a join at a limit, which must go on, and one beyond it, which must be refused like this.
fn at_and_beyond(limit: impl Fn(&mut Limits), join: impl Fn(usize) -> String, at: usize, reason: &str) {
    for (size, refusal) in [(at, None), (at + 1, Some(reason.to_owned()))] {
        let mut script = Script::new(Serializer::V2);
        limit(&mut script.limits);
        let effects = script.send(&join(size));
        assert_eq!(refused(&effects), refusal, "{size}: {effects}");
        assert_eq!(script.state.channels(), usize::from(refusal.is_none()));
    }
}

#[test]
fn c11_sizes_and_counts_are_configurable_and_named() {
    let anon = token("anon", 60);
    let topic = |bytes: usize| join_of(&format!("realtime:{}", "t".repeat(bytes - 9)), &[], &anon);
    at_and_beyond(
        |limits| limits.topic_bytes_max = 40,
        topic,
        40,
        "TopicNameRequired: topic: must be at most 40 bytes",
    );
    // Bytes, not characters.
    let wide = |bytes: usize| join_of(&format!("realtime:é{}", "t".repeat(bytes - 11)), &[], &anon);
    at_and_beyond(
        |limits| limits.topic_bytes_max = 40,
        wide,
        40,
        "TopicNameRequired: topic: must be at most 40 bytes",
    );
    let bindings = |count| join_of("realtime:room", &vec![NOTES.to_owned(); count], &anon);
    at_and_beyond(
        |limits| limits.channel_bindings_max = 3,
        bindings,
        3,
        "RealtimeDisabledForConfiguration: postgres_changes: at most 3 bindings on a channel",
    );
    let binding = |bytes: usize| {
        let binding = |padding: usize| format!(r#"{{"schema":"public","table":"{}"}}"#, "x".repeat(padding));
        join_of("realtime:room", &[binding(bytes - binding(0).len())], &anon)
    };
    at_and_beyond(
        |limits| limits.binding_bytes_max = 300,
        binding,
        300,
        "RealtimeDisabledForConfiguration: binding 0: must be at most 300 bytes",
    );
    // The last channel, join and token length that are taken, and the first that are not.
    let mut script = Script::new(Serializer::V2);
    script.limits.socket_channels_max = 2;
    script.limits.socket_joins_per_second_max = 4;
    let rooms = ["a", "b", "c"].map(|room| join_of(&format!("realtime:{room}"), &[], &anon));
    let replies = rooms.each_ref().map(|join| refused(&script.send(join)));
    let too_many = "ChannelRateLimitReached: Too many channels (at most 2 on a socket)";
    assert_eq!(replies, [None, None, Some(too_many.to_owned())]);
    // Joining one of them anew is no further channel.
    assert_eq!(refused(&script.send(&rooms[0])), None);
    let too_often = "ClientJoinRateLimitReached: Too many joins per second (at most 4 on a socket)";
    assert_eq!(refused(&script.send(&rooms[0])), Some(too_often.to_owned()));
    script.now_ms += 1_000;
    assert_eq!(refused(&script.send(&rooms[0])), None);
}

#[test]
fn a_token_is_taken_up_to_its_limit() {
    let roles = ["anon"].map(Role::new);
    let of_bytes = |bytes: usize| {
        let token = |padding: usize| {
            let claims = json!({ "role": "anon", "exp": START_MS / 1_000 + 60, "x": "x".repeat(padding) });
            tokens::mint(SECRET, &claims)
        };
        // Base64 grows by four characters for three.
        let padding = (0..bytes).find(|padding| token(*padding).len() == bytes);
        token(padding.unwrap())
    };
    let tokens = TokenConfig::by_secret(Secret::new(SECRET));
    let verifier = Verifier::new(&tokens, &roles, &[], 1_024, 32).unwrap();
    assert!(verifier.verify(&of_bytes(1_024), START_MS).is_ok());
    let error = verifier
        .verify(&format!("{}=", of_bytes(1_024)), START_MS)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "InvalidJWTToken: The token is longer than 1024 bytes"
    );
}

#[test]
fn new_tokens_are_limited_and_one_for_all_channels_is_one() {
    let mut script = Script::new(Serializer::V2);
    script.limits.socket_joins_per_second_max = 3;
    let first = token("authenticated", 60);
    script.joined(Some(&first));
    let push =
        |script: &mut Script, token: &str| script.send(&access_token_frame("1", &format!("\"{token}\"")));
    for n in 0..10 {
        // The same one again and again costs nothing; each new one counts.
        assert_eq!(push(&mut script, &first), "", "{n}");
    }
    for seconds in [61, 62, 63] {
        assert!(push(&mut script, &token("authenticated", seconds)).starts_with("identify"));
    }
    check(
        &push(&mut script, &token("authenticated", 64)),
        expect![[r#"
            Unsubscribe { channel: ChannelKey(0) }
            ["1",null,"realtime:room","system",{"extension":"system","status":"error","message":"Too many tokens per second (at most 3 on a socket)","channel":"room"}]
            ["1","1","realtime:room","phx_close",{}]"#]],
    );
    script.now_ms += 1_000;
    script.joined(Some(&first));
    script.send(&access_token_frame(
        "1",
        &format!("\"{}\"", token("authenticated", 65)),
    ));
    // Giving a channel back is never one too many.
    let back = script.send(&access_token_frame("1", "null"));
    assert!(back.contains("Role(anon)"), "{back}");
    // A token that was verified a moment ago ends all the same.
    let mut script = Script::new(Serializer::V2);
    script.joined(Some(&first));
    script.now_ms += 60_000;
    assert!(
        script
            .send(&join("2", NOTES, Some(&first)))
            .contains("Token has expired 0 seconds ago")
    );
}

/// Each of them is a command to the feed that all of a project's sockets share.
#[test]
fn changes_of_identity_are_limited_though_no_token_is_new() {
    let mut script = Script::new(Serializer::V2);
    script.limits.socket_joins_per_second_max = 3;
    script.limits.socket_channels_max = 2;
    let user = token("authenticated", 60);
    script.joined(Some(&user));
    let push = |script: &mut Script, token: &str| script.send(&access_token_frame("1", token));
    let given = format!("\"{user}\"");
    // Every channel may sign out and in again within a second.
    for token in ["null", &given, "null", &given] {
        let effects = push(&mut script, token);
        assert!(
            !effects.contains("phx_close") && effects.contains("Suspend"),
            "{effects}"
        );
    }
    let ended = push(&mut script, "null");
    assert!(
        ended.contains("Too many tokens per second (at most 4 on a socket)"),
        "{ended}"
    );
    assert_eq!(script.state.channels(), 0);
    script.now_ms += 1_000;
    script.joined(Some(&user));
    assert!(push(&mut script, "null").contains("Role(anon)"));
}
