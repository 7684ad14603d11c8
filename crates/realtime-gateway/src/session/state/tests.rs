//! Sessions as scripts: what a client sends, and what is done about it, line by line.

mod keys;
mod limits;

use expect_test::{Expect, expect};
use realtime_core::claims::Role;
use realtime_core::code::Hint;
use realtime_core::filter::FilterError;
use realtime_core::id::ProjectId;
use realtime_core::wire::phoenix::decode_text;
use realtime_node::catalog::TokenConfig;
use realtime_node::secret::Secret;
use realtime_testkit::tokens::{self, Signer, key_set};
use serde_json::json;

use super::*;
use crate::auth::keys::{Key, Origin, parse};
use crate::feed::{PreparedBinding, PreparedFilter};
use crate::ids::Interner;

const SECRET: &str = "a secret of at least thirty-two bytes";
const START_MS: u64 = 1_780_000_000_000;

struct Script {
    state: SessionState,
    verifier: Verifier,
    limits: Limits,
    now_ms: u64,
    interner: Interner,
    /// Bindings by channel, as they were asked for.
    asked: HashMap<ChannelKey, (u64, Arc<[BindingParams]>)>,
}

impl Script {
    fn new(serializer: Serializer) -> Self {
        let roles = ["anon", "authenticated", "service_role"].map(Role::new);
        let verifier = verifier(&roles, &[]);
        let own = verifier.verify(&token("anon", 3_600), START_MS).unwrap();
        Self {
            state: SessionState::new(serializer, own, START_MS),
            verifier,
            limits: Limits::defaults(),
            now_ms: START_MS,
            interner: Interner::default(),
            asked: HashMap::new(),
        }
    }

    fn turn(&mut self, input: Input) -> String {
        let context = Context {
            now_ms: self.now_ms,
            verifier: &self.verifier,
            limits: &self.limits,
        };
        let effects = self.state.on(input, &context);
        let mut lines = Vec::new();
        for effect in effects {
            lines.push(self.show(effect));
        }
        lines.join("\n")
    }

    fn show(&mut self, effect: Effect) -> String {
        match effect {
            Effect::Send(frame) => frame.to_string(),
            Effect::Prepare {
                channel,
                generation,
                claims,
                bindings,
            } => {
                let line = format!(
                    "prepare {channel:?} {generation} {:?} {}",
                    claims.role(),
                    bindings.len()
                );
                self.asked.insert(channel, (generation, bindings));
                line
            }
            Effect::Subscribe {
                tag,
                generation,
                claims,
                ..
            } => {
                format!("subscribe {:?} {generation} {:?}", tag.key, claims.role())
            }
            Effect::Identify {
                channel,
                generation,
                claims,
            } => {
                format!("identify {channel:?} {generation} {:?}", claims.role())
            }
            other => format!("{other:?}"),
        }
    }

    fn send(&mut self, text: &str) -> String {
        let input = decode_text(self.state.serializer, text).map_or_else(Input::Unparsable, Input::Frame);
        self.turn(input)
    }

    fn prepared(&mut self, channel: u64, hint: Option<Hint>) -> String {
        let (generation, params) = self.asked[&ChannelKey(channel)].clone();
        let ids = self
            .interner
            .intern(&ProjectId::parse("p").unwrap(), &params)
            .unwrap();
        let bindings = params.iter().map(|params| PreparedBinding {
            params: params.clone(),
            filter: PreparedFilter::None,
            selection: None,
            hint,
            hint_text: None,
        });
        let prepared = Prepared {
            ids,
            bindings: bindings.collect(),
            facts: Default::default(),
            patterns: None,
            table_patterns: None,
        };
        self.turn(Input::Prepared {
            channel: ChannelKey(channel),
            generation,
            result: Ok(prepared),
        })
    }

    fn unprepared(&mut self, channel: u64, error: PrepareError) -> String {
        let generation = self.asked[&ChannelKey(channel)].0;
        self.turn(Input::Prepared {
            channel: ChannelKey(channel),
            generation,
            result: Err(error),
        })
    }

    fn live(&mut self, channel: u64, generation: u64) -> String {
        self.turn(Input::Live {
            channel: ChannelKey(channel),
            generation,
        })
    }

    fn pass(&mut self, ms: u64) -> String {
        self.now_ms += ms;
        self.turn(Input::Tick)
    }

    fn joined(&mut self, token: Option<&str>) {
        self.send(&join("1", NOTES, token));
        let key = self.asked.keys().max().unwrap().0;
        self.prepared(key, None);
        self.live(key, 0);
    }
}

/// A verifier by the secret, and by the keys that were fetched.
fn verifier(roles: &[Role], fetched: &[Key]) -> Verifier {
    let tokens = TokenConfig {
        jwks_url: Some("https://id.example/keys".parse().unwrap()),
        ..TokenConfig::by_secret(Secret::new(SECRET))
    };
    Verifier::new(&tokens, roles, fetched, 16_384, 32).unwrap()
}

fn fetched(signer: &Signer) -> Vec<Key> {
    parse(&key_set(&[signer]), Origin::Url, 32).unwrap()
}

const NOTES: &str = r#"{"event":"*","schema":"public","table":"notes"}"#;

fn token(role: &str, seconds: i64) -> String {
    let exp = START_MS as i64 / 1_000 + seconds;
    tokens::mint(SECRET, &json!({ "role": role, "exp": exp }))
}

fn join(join_ref: &str, binding: &str, token: Option<&str>) -> String {
    let token = token
        .map(|token| format!(r#","access_token":"{token}""#))
        .unwrap_or_default();
    let payload = format!(r#"{{"config":{{"postgres_changes":[{binding}]}}{token}}}"#);
    format!(r#"["{join_ref}","{join_ref}","realtime:room","phx_join",{payload}]"#)
}

fn access_token_frame(join_ref: &str, token: &str) -> String {
    format!(r#"["{join_ref}","9","realtime:room","access_token",{{"access_token":{token}}}]"#)
}

fn check(actual: &str, expect: Expect) {
    expect.assert_eq(actual);
}

#[test]
fn a_join_is_answered_before_it_is_subscribed_and_told_when_live() {
    let mut script = Script::new(Serializer::V2);
    check(
        &script.send(&join("6", NOTES, None)),
        expect!["prepare ChannelKey(0) 0 Role(anon) 1"],
    );
    check(
        &script.prepared(0, None),
        expect![[r#"
        ["6","6","realtime:room","phx_reply",{"status":"ok","response":{"postgres_changes":[{"event":"*","schema":"public","table":"notes","id":1}]}}]
        subscribe ChannelKey(0) 0 Role(anon)"#]],
    );
    check(
        &script.live(0, 0),
        expect![[
            r#"["6",null,"realtime:room","system",{"extension":"postgres_changes","status":"ok","message":"Subscribed to PostgreSQL","channel":"room","role":"anon"}]"#
        ]],
    );
    // A later "live", as after a recovery, is told again.
    check(
        &script.live(0, 0),
        expect![[
            r#"["6",null,"realtime:room","system",{"extension":"postgres_changes","status":"ok","message":"Subscribed to PostgreSQL","channel":"room","role":"anon"}]"#
        ]],
    );
}

#[test]
fn a_join_of_the_first_version_has_no_join_ref() {
    let mut script = Script::new(Serializer::V1);
    let join = r#"{"topic":"realtime:room","event":"phx_join","payload":{"config":{}},"ref":null}"#;
    check(
        &script.send(join),
        expect![[
            r#"{"topic":"realtime:room","event":"phx_reply","payload":{"status":"ok","response":{"postgres_changes":[]}},"ref":null}"#
        ]],
    );
}

#[test]
fn bindings_that_cannot_emit_are_hinted_after_the_reply() {
    let mut script = Script::new(Serializer::V2);
    script.send(&join("6", NOTES, None));
    check(
        &script.prepared(0, Some(Hint::NoSuchTable)),
        expect![[r#"
        ["6","6","realtime:room","phx_reply",{"status":"ok","response":{"postgres_changes":[{"event":"*","schema":"public","table":"notes","id":1}]}}]
        ["6",null,"realtime:room","system",{"extension":"postgres_changes","status":"ok","message":"There is no such table yet: changes arrive once it exists","channel":"room","code":"no_such_table","binding":0}]
        subscribe ChannelKey(0) 0 Role(anon)"#]],
    );
}

#[test]
fn a_join_that_waits_is_answered_when_the_feed_is_live() {
    let mut script = Script::new(Serializer::V2);
    let payload = format!(
        r#"{{"config":{{"postgres_changes":[{NOTES}],"postgres_changes_options":{{"wait":true,"timeout":500}}}}}}"#
    );
    let join = format!(r#"["6","7","realtime:room","phx_join",{payload}]"#);
    script.send(&join);
    check(
        &script.prepared(0, None),
        expect!["subscribe ChannelKey(0) 0 Role(anon)"],
    );
    check(
        &script.live(0, 0),
        expect![[r#"
        ["6","7","realtime:room","phx_reply",{"status":"ok","response":{"postgres_changes":[{"event":"*","schema":"public","table":"notes","id":1}]}}]
        ["6",null,"realtime:room","system",{"extension":"postgres_changes","status":"ok","message":"Subscribed to PostgreSQL","channel":"room","role":"anon"}]"#]],
    );
    // Again, and this time the feed does not come up.
    script.send(&join);
    script.prepared(1, None);
    check(&script.pass(499), expect![[r#""#]]);
    check(
        &script.pass(1),
        expect![[r#"
        Unsubscribe { channel: ChannelKey(1) }
        ["6","7","realtime:room","phx_reply",{"status":"error","response":{"reason":"PostgresChangesSubscribeTimeout: Timed out after 500ms waiting for the postgres_changes subscription"}}]"#]],
    );
    assert_eq!(script.live(1, 0), "");
}

#[test]
fn heartbeats_and_unknown_topics_and_events() {
    let mut script = Script::new(Serializer::V2);
    check(
        &script.send(r#"[null,"5","phoenix","heartbeat",{}]"#),
        expect![[r#"[null,"5","phoenix","phx_reply",{"status":"ok","response":{}}]"#]],
    );
    check(
        &script.send(r#"[null,null,"phoenix","heartbeat",{}]"#),
        expect![[r#"[null,null,"phoenix","phx_reply",{"status":"ok","response":{}}]"#]],
    );
    check(
        &script.send(r#"["1","2","realtime:nowhere","broadcast",{}]"#),
        expect![[
            r#"[null,"2","realtime:nowhere","phx_reply",{"status":"error","response":{"reason":"unmatched topic"}}]"#
        ]],
    );
    check(
        &script.send(r#"["1","2","other:room","phx_join",{}]"#),
        expect![[
            r#"[null,"2","other:room","phx_reply",{"status":"error","response":{"reason":"unmatched topic"}}]"#
        ]],
    );
    check(
        &script.send(r#"["1","2","realtime:","phx_join",{}]"#),
        expect![[
            r#"["1","2","realtime:","phx_reply",{"status":"error","response":{"reason":"TopicNameRequired: You must provide a topic name"}}]"#
        ]],
    );
    check(&script.send("not a frame"), expect!["CountUnparsable(Malformed)"]);
    script.joined(None);
    assert_eq!(script.send(r#"["1","2","realtime:room","whatever",{}]"#), "");
}

#[test]
fn a_leave_is_answered_and_then_the_channel_closes() {
    let mut script = Script::new(Serializer::V2);
    check(
        &script.send(r#"["1","2","realtime:room","phx_leave",{}]"#),
        expect![[r#"[null,"2","realtime:room","phx_reply",{"status":"ok","response":{}}]"#]],
    );
    script.joined(None);
    check(
        &script.send(r#"["1","2","realtime:room","phx_leave",{}]"#),
        expect![[r#"
            ["1","2","realtime:room","phx_reply",{"status":"ok","response":{}}]
            Unsubscribe { channel: ChannelKey(0) }
            ["1","1","realtime:room","phx_close",{}]"#]],
    );
    assert_eq!(script.state.channels(), 0);
}

#[test]
fn a_second_join_closes_the_first_by_its_own_reference() {
    let mut script = Script::new(Serializer::V2);
    script.joined(None);
    check(
        &script.send(&join("2", NOTES, None)),
        expect![[r#"
        Unsubscribe { channel: ChannelKey(0) }
        ["1","1","realtime:room","phx_close",{}]
        prepare ChannelKey(1) 0 Role(anon) 1"#]],
    );
    // What belongs to the first join neither ends nor re-binds the second.
    let other = token("authenticated", 3_600);
    assert_eq!(script.send(&access_token_frame("1", &format!("\"{other}\""))), "");
    check(
        &script.send(r#"["1","3","realtime:room","phx_leave",{}]"#),
        expect![[r#"["1","3","realtime:room","phx_reply",{"status":"ok","response":{}}]"#]],
    );
    assert_eq!(script.state.channels(), 1);
    // And an answer for the first is for nobody.
    assert_eq!(script.live(0, 0), "");
}

#[test]
fn a_new_token_of_the_same_role_goes_on_at_once() {
    let mut script = Script::new(Serializer::V2);
    let first = token("authenticated", 3_600);
    script.joined(Some(&first));
    assert_eq!(script.send(&access_token_frame("1", &format!("\"{first}\""))), "");
    let second = token("authenticated", 7_200);
    check(
        &script.send(&access_token_frame("1", &format!("\"{second}\""))),
        expect!["identify ChannelKey(0) 1 Role(authenticated)"],
    );
    assert_eq!(script.live(0, 0), "", "live under the old identity is no news");
    check(
        &script.live(0, 1),
        expect![[
            r#"["1",null,"realtime:room","system",{"extension":"postgres_changes","status":"ok","message":"Subscribed to PostgreSQL","channel":"room","role":"authenticated"}]"#
        ]],
    );
}

#[test]
fn another_role_is_looked_up_anew_and_nothing_arrives_meanwhile() {
    let mut script = Script::new(Serializer::V2);
    script.joined(Some(&token("authenticated", 3_600)));
    for given_back in ["null", "\"\"", "\"sb_publishable_x\""] {
        let mut script = Script::new(Serializer::V2);
        script.joined(Some(&token("authenticated", 3_600)));
        let effects = script.send(&access_token_frame("1", given_back));
        assert!(
            effects.contains("Suspend") && effects.contains("Role(anon)"),
            "{given_back}: {effects}"
        );
    }
    check(
        &script.send(&access_token_frame("1", "null")),
        expect![[r#"
        Suspend { channel: ChannelKey(0) }
        prepare ChannelKey(0) 1 Role(anon) 1"#]],
    );
    // Another token while the look-up is on its way: its answer starts another.
    let next = token("service_role", 3_600);
    check(
        &script.send(&access_token_frame("1", &format!("\"{next}\""))),
        expect!["Suspend { channel: ChannelKey(0) }"],
    );
    let generation_1 = (1, script.asked[&ChannelKey(0)].1.clone());
    script.asked.insert(ChannelKey(0), generation_1);
    check(
        &script.prepared(0, None),
        expect!["prepare ChannelKey(0) 2 Role(service_role) 1"],
    );
    check(
        &script.prepared(0, None),
        expect!["subscribe ChannelKey(0) 2 Role(service_role)"],
    );
}

#[test]
fn a_refused_token_ends_the_channel() {
    for (sent, text) in [
        ("\"junk\"".to_owned(), "The token provided is not a valid JWT"),
        (
            format!("\"{}\"", token("authenticated", -3)),
            "Token has expired 3 seconds ago",
        ),
        (
            format!("\"{}\"", token("nobody", 60)),
            "The token's role is not allowed in this project",
        ),
    ] {
        let mut script = Script::new(Serializer::V2);
        script.joined(None);
        let effects = script.send(&access_token_frame("1", &sent));
        let lines: Vec<&str> = effects.lines().collect();
        assert_eq!(lines[0], "Unsubscribe { channel: ChannelKey(0) }");
        assert!(lines[1].contains(r#""extension":"system","status":"error""#) && lines[1].contains(text));
        assert_eq!(lines[2], r#"["1","1","realtime:room","phx_close",{}]"#);
        assert!(!effects.contains("junk") && lines.len() == 3);
    }
}

#[test]
fn an_expired_token_ends_its_own_channel_only() {
    let mut script = Script::new(Serializer::V2);
    script.joined(Some(&token("authenticated", 3)));
    let other =
        join("2", NOTES, Some(&token("authenticated", 60))).replace("realtime:room", "realtime:other");
    script.send(&other);
    assert_eq!(script.state.next_tick_ms(&script.limits), Some(START_MS + 3_000));
    assert_eq!(script.pass(2_999), "");
    check(
        &script.pass(1),
        expect![[r#"
        Unsubscribe { channel: ChannelKey(0) }
        ["1",null,"realtime:room","system",{"extension":"system","status":"error","message":"Token has expired 0 seconds ago","channel":"room"}]
        ["1","1","realtime:room","phx_close",{}]"#]],
    );
    assert_eq!(script.state.channels(), 1);
}

#[test]
fn a_join_with_an_expired_token_is_an_error_and_the_next_one_works() {
    let mut script = Script::new(Serializer::V2);
    check(
        &script.send(&join("1", NOTES, Some(&token("authenticated", -5)))),
        expect![[
            r#"["1","1","realtime:room","phx_reply",{"status":"error","response":{"reason":"InvalidJWTToken: Token has expired 5 seconds ago"}}]"#
        ]],
    );
    check(
        &script.send(&join("2", NOTES, Some(&token("authenticated", 60)))),
        expect!["prepare ChannelKey(0) 0 Role(authenticated) 1"],
    );
}

#[test]
fn a_look_up_that_fails_answers_the_join_or_ends_the_channel() {
    let invalid = || PrepareError::Filter {
        binding: 0,
        error: FilterError::EmptySegment,
    };
    let mut script = Script::new(Serializer::V2);
    script.send(&join("1", NOTES, None));
    check(
        &script.unprepared(0, invalid()),
        expect![[r#"
        Unsubscribe { channel: ChannelKey(0) }
        ["1","1","realtime:room","phx_reply",{"status":"error","response":{"reason":"RealtimeDisabledForConfiguration: binding 0: filter: must not contain empty segments (check for extra commas)"}}]"#]],
    );
    script.send(&join("2", NOTES, None));
    check(
        &script.unprepared(1, PrepareError::Unavailable),
        expect![[r#"
        Unsubscribe { channel: ChannelKey(1) }
        ["2","2","realtime:room","phx_reply",{"status":"error","response":{"reason":"UnableToConnectToProject: Realtime was unable to connect to the project database"}}]"#]],
    );
    assert_eq!(script.state.channels(), 0);
    // On a channel that was joined: another role, under which the binding is not valid …
    for (error, last) in [(invalid(), "phx_close"), (PrepareError::Unavailable, "phx_error")] {
        let mut script = Script::new(Serializer::V2);
        script.joined(Some(&token("authenticated", 60)));
        script.send(&access_token_frame("1", "null"));
        let effects = script.unprepared(0, error);
        assert!(effects.lines().last().unwrap().contains(last), "{effects}");
        // … and a passing failure is no `system` error, which would end the channel for good.
        assert_eq!(effects.contains("\"status\":\"error\""), last == "phx_close");
    }
}

#[test]
fn a_socket_without_a_channel_ends_in_the_end() {
    let mut script = Script::new(Serializer::V2);
    assert_eq!(script.pass(599_999), "");
    check(
        &script.pass(1),
        expect![[r#"Close(CloseReason { code: 1012, reason: "no channel was joined" })"#]],
    );
    let mut script = Script::new(Serializer::V2);
    script.joined(Some(&token("anon", 100_000)));
    assert_eq!(script.pass(600_000), "");
}
