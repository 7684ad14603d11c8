//! Keys that are fetched, and keys and users that are taken off.

use super::*;

fn signed(signer: &Signer) -> String {
    let exp = START_MS / 1_000 + 3_600;
    signer.sign(&json!({ "role": "authenticated", "exp": exp }))
}

#[test]
fn a_join_by_an_unknown_key_waits_for_one_fetch() {
    let roles = ["anon", "authenticated"].map(Role::new);
    let (known, unknown) = (Signer::ed25519(1, "k1"), Signer::ed25519(2, "k2"));
    let mut script = Script::new(Serializer::V2);
    let second = |text: String| text.replace("realtime:room", "realtime:other");
    check(
        &script.send(&join("1", NOTES, Some(&signed(&known)))),
        expect!["FetchKeys"],
    );
    assert_eq!(
        script.send(&second(join("2", NOTES, Some(&signed(&unknown))))),
        ""
    );
    script.verifier = verifier(&roles, &fetched(&known));
    let effects = script.turn(Input::Keys(Refresh::Fetched));
    let mut lines: Vec<&str> = effects.lines().collect();
    lines.sort_unstable();
    check(
        &lines.join("\n"),
        expect![[r#"
            ["2","2","realtime:other","phx_reply",{"status":"error","response":{"reason":"JwtSignatureError: Failed to validate JWT signature"}}]
            prepare ChannelKey(0) 0 Role(authenticated) 1"#]],
    );
    // The next one to wait asks anew; its answer may be that it is not the time.
    check(
        &script.send(&second(join("3", NOTES, Some(&signed(&unknown))))),
        expect!["FetchKeys"],
    );
    check(
        &script.turn(Input::Keys(Refresh::NotNow)),
        expect![[
            r#"["3","3","realtime:other","phx_reply",{"status":"error","response":{"reason":"KeysUnavailable: The token's key is not known just now, try again later"}}]"#
        ]],
    );
}

#[test]
fn joins_that_wait_count_as_channels_and_their_tokens_end_meanwhile() {
    let known = Signer::ed25519(1, "k1");
    let mut script = Script::new(Serializer::V2);
    script.limits.socket_channels_max = 1;
    script.send(&join("1", NOTES, Some(&signed(&known))));
    let other = join("2", NOTES, None).replace("realtime:room", "realtime:other");
    assert!(script.send(&other).contains("ChannelRateLimitReached"));
    script.verifier = verifier(&["authenticated"].map(Role::new), &fetched(&known));
    script.now_ms += 3_600_000;
    check(
        &script.turn(Input::Keys(Refresh::Fetched)),
        expect![[
            r#"["1","1","realtime:room","phx_reply",{"status":"error","response":{"reason":"InvalidJWTToken: Token has expired 0 seconds ago"}}]"#
        ]],
    );
}

#[test]
fn what_is_left_or_replaced_while_it_waits_does_not_come_back() {
    let known = Signer::ed25519(1, "k1");
    let roles = ["anon", "authenticated"].map(Role::new);
    let mut script = Script::new(Serializer::V2);
    script.send(&join("1", NOTES, Some(&signed(&known))));
    check(
        &script.send(r#"["1","3","realtime:room","phx_leave",{}]"#),
        expect![[r#"
            ["1","3","realtime:room","phx_reply",{"status":"ok","response":{}}]
            ["1","1","realtime:room","phx_close",{}]"#]],
    );
    script.verifier = verifier(&roles, &fetched(&known));
    assert_eq!(script.turn(Input::Keys(Refresh::Fetched)), "");

    // A refresh that waits, and then the channel is given back, left, or joined anew.
    for meanwhile in [
        access_token_frame("1", "null"),
        r#"["1","3","realtime:room","phx_leave",{}]"#.to_owned(),
        join("2", NOTES, None),
    ] {
        let mut script = Script::new(Serializer::V2);
        script.joined(None);
        let waits = script.send(&access_token_frame("1", &format!("\"{}\"", signed(&known))));
        assert_eq!(waits, "FetchKeys");
        script.send(&meanwhile);
        script.verifier = verifier(&roles, &fetched(&known));
        assert_eq!(script.turn(Input::Keys(Refresh::Fetched)), "", "{meanwhile}");
    }
}

#[test]
fn a_withdrawn_key_ends_its_channels_and_its_socket() {
    let (known, other) = (Signer::ed25519(1, "k1"), Signer::ed25519(2, "k2"));
    let roles = ["anon", "authenticated"].map(Role::new);
    let mut script = Script::new(Serializer::V2);
    script.verifier = verifier(&roles, &fetched(&known));
    script.joined(Some(&signed(&known)));
    assert_eq!(script.turn(Input::Rekeyed), "");
    script.verifier = verifier(&roles, &fetched(&other));
    check(
        &script.turn(Input::Rekeyed),
        expect![[r#"
            Unsubscribe { channel: ChannelKey(0) }
            ["1",null,"realtime:room","system",{"extension":"system","status":"error","message":"The key behind the token is no longer valid","channel":"room"}]
            ["1","1","realtime:room","phx_close",{}]"#]],
    );
    script.verifier = verifier(&roles[1..], &[]);
    check(
        &script.turn(Input::Rekeyed),
        expect![[r#"Close(CloseReason { code: 4401, reason: "the connection's key is no longer valid" })"#]],
    );
    // A key that has ended by itself does not end the socket: channels have tokens of their own.
    let mut script = Script::new(Serializer::V2);
    script.joined(Some(&token("authenticated", 7_200)));
    script.now_ms += 3_600_001;
    assert_eq!(script.turn(Input::Rekeyed), "");
}

#[test]
fn a_token_that_is_too_long_is_not_kept_until_the_keys_are_there() {
    let known = Signer::ed25519(1, "k1");
    let mut script = Script::new(Serializer::V2);
    script.send(&join("1", NOTES, Some(&signed(&known))));
    let max = script.limits.token_bytes_max as usize;
    let push = |script: &mut Script, bytes: usize| {
        script.send(&access_token_frame("1", &format!("\"{}\"", "x".repeat(bytes))))
    };
    assert_eq!(push(&mut script, max), "");
    let refused = push(&mut script, max + 1);
    let reason = format!("InvalidJWTToken: The token is longer than {max} bytes");
    assert!(
        refused.contains(&reason) && refused.contains("phx_reply"),
        "{refused}"
    );
    // The join is over, and the topic free for another.
    script.verifier = verifier(&["anon", "authenticated"].map(Role::new), &fetched(&known));
    assert_eq!(script.turn(Input::Keys(Refresh::Fetched)), "");
    assert!(
        script
            .send(&join("2", NOTES, Some(&signed(&known))))
            .starts_with("prepare")
    );
}

fn of_user(sub: &str) -> String {
    let exp = START_MS / 1_000 + 3_600;
    let claims = json!({ "role": "authenticated", "sub": sub, "session_id": format!("{sub}-s"), "exp": exp });
    tokens::mint(SECRET, &claims)
}

#[test]
fn an_operators_word_ends_a_users_channels_and_no_others() {
    let other = |text: String| text.replace("realtime:room", "realtime:other");
    let mut script = Script::new(Serializer::V2);
    script.joined(Some(&of_user("u1")));
    script.send(&other(join("2", NOTES, Some(&of_user("u2")))));
    assert_eq!(script.turn(Input::Disconnect(Who::Subject("u3".into()))), "");
    assert_eq!(script.turn(Input::Disconnect(Who::Session("u1".into()))), "");
    check(
        &script.turn(Input::Disconnect(Who::Subject("u1".into()))),
        expect![[r#"
            Unsubscribe { channel: ChannelKey(0) }
            ["1",null,"realtime:room","system",{"extension":"system","status":"ok","message":"Server requested disconnect","channel":"room"}]
            ["1","1","realtime:room","phx_close",{}]"#]],
    );
    // A join that was not answered yet is refused; then nothing is left on the socket.
    check(
        &script.turn(Input::Disconnect(Who::Session("u2-s".into()))),
        expect![[r#"
            Unsubscribe { channel: ChannelKey(1) }
            ["2","2","realtime:other","phx_reply",{"status":"error","response":{"reason":"Unauthorized: Server requested disconnect"}}]
            Close(CloseReason { code: 4403, reason: "disconnected by an operator" })"#]],
    );
}
