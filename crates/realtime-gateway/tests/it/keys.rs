//! Key sets that are fetched, static keys, and keys that are withdrawn.

use std::time::Duration;

use realtime_core::claims::Role;
use realtime_node::catalog::{ProjectConfig, StaticKey, TokenConfig};
use realtime_node::secret::Secret;
use realtime_testkit::jwks::KeySetServer;
use realtime_testkit::tokens::{self, Signer, key_set};
use realtime_testkit::wait::{until, within};
use realtime_testkit::ws::{Client, Frame};
use serde_json::{Value, json};

use crate::harness::{SECRET, World, is_row, join, notes, project, subscribed, token, try_join};

/// The world's one project with tokens by its secret and by what this adds.
fn with(change: impl FnOnce(&mut TokenConfig)) -> Vec<ProjectConfig> {
    let mut tokens = TokenConfig::by_secret(Secret::new(SECRET));
    change(&mut tokens);
    vec![ProjectConfig {
        tokens: Some(tokens),
        ..project()
    }]
}

/// A world whose project's key set this serves.
async fn fetching(world: World, signers: &[&Signer]) -> (World, KeySetServer) {
    let server = KeySetServer::start(key_set(signers)).await;
    world.catalog.replace(with(|tokens| {
        tokens.jwks_url = Some(server.url().parse().unwrap())
    }));
    (world, server)
}

fn user(signer: &Signer) -> String {
    signer.sign(&tokens::user("u1"))
}

fn reason(reply: &Value) -> &str {
    reply["response"]["reason"].as_str().unwrap_or_default()
}

async fn closed(client: &mut Client) -> Option<(u16, String)> {
    loop {
        if let Frame::Closed(close) = client.next().await {
            return close;
        }
    }
}

#[tokio::test]
async fn b06_a_new_key_costs_one_fetch_and_random_names_cost_no_more() {
    let (k1, k2) = (Signer::ed25519(1, "k1"), Signer::ed25519(2, "k2"));
    let world = World::with_limits(|limits| limits.socket_joins_per_second_max = 2_000).await;
    let (world, server) = fetching(world, &[&k1]).await;
    let mut client = world.client().await;
    join(&mut client, "first", &user(&k1), notes()).await;
    assert_eq!(server.fetches(), 1);
    server.set(key_set(&[&k1, &k2]));
    join(&mut client, "rotated", &user(&k2), notes()).await;
    join(&mut client, "again", &user(&k2), notes()).await;
    join(&mut client, "old", &user(&k1), notes()).await;
    assert_eq!(server.fetches(), 2);

    for n in 0..1_000 {
        let stranger = Signer::ed25519(3, &format!("random-{n}"));
        let reply = try_join(&mut client, "stranger", &user(&stranger), notes()).await;
        assert_eq!(reply["status"], "error");
        assert!(reason(&reply).starts_with("KeysUnavailable: "), "{reply}");
    }
    assert!(server.fetches() <= 3, "{}", server.fetches());
    // Nobody else suffers from that.
    join(&mut client, "after", &user(&k2), notes()).await;
}

#[tokio::test]
async fn a_key_that_a_fresh_set_does_not_have_is_refused_for_good() {
    let (world, server) = fetching(World::start().await, &[&Signer::ed25519(1, "k1")]).await;
    let mut client = world.client().await;
    let stranger = Signer::ed25519(2, "k2");
    let reply = try_join(&mut client, "room", &user(&stranger), notes()).await;
    assert_eq!(
        reason(&reply),
        "JwtSignatureError: Failed to validate JWT signature"
    );
    // The set's first fetch is not held against a key that comes right after it.
    server.set(key_set(&[&stranger]));
    join(&mut client, "room", &user(&stranger), notes()).await;
    assert_eq!(server.fetches(), 2);
}

#[tokio::test]
async fn a_slow_endpoint_holds_up_what_needs_it_and_nothing_else() {
    let k1 = Signer::ed25519(1, "k1");
    let (world, server) = fetching(World::start().await, &[&k1]).await;
    server.hold();
    let mut client = world.client().await;
    join(&mut client, "open", &token("authenticated", "u1"), notes()).await;
    subscribed(&mut client).await;
    for room in ["waits", "leaves", "rejoins", "changes"] {
        let payload = json!({ "config": { "postgres_changes": notes() }, "access_token": user(&k1) });
        client
            .send_json(&json!([
                room,
                "1",
                format!("realtime:{room}"),
                "phx_join",
                payload
            ]))
            .await;
    }
    // The socket's other channels, other sockets and the heartbeat go on.
    world.insert(json!({ "id": 1 })).await;
    client.until("a row", |frame| is_row(frame, 1)).await;
    client
        .send_json(&json!(["leaves", "2", "realtime:leaves", "phx_leave", {}]))
        .await;
    client
        .until("the end of what was never joined", |frame| {
            frame[3] == "phx_close" && frame[0] == "leaves"
        })
        .await;
    let payload = json!({ "config": { "postgres_changes": [] } });
    client
        .send_json(&json!(["second", "3", "realtime:rejoins", "phx_join", payload]))
        .await;
    let (reply, before) = client
        .until("the second join", |frame| frame[3] == "phx_reply")
        .await;
    assert_eq!((&reply[0], &reply[4]["status"]), (&json!("second"), &json!("ok")));
    assert!(
        before
            .iter()
            .any(|frame| frame[3] == "phx_close" && frame[0] == "rejoins")
    );
    client
        .send_json(&json!(["changes", "4", "realtime:changes", "access_token", { "access_token": null }]))
        .await;
    client
        .send_json(&json!([null, "5", "phoenix", "heartbeat", {}]))
        .await;
    client.until("the heartbeat", |frame| frame[1] == "5").await;
    let (mut other, _) = world.joined(&token("authenticated", "u2"), notes()).await;
    other
        .send_json(&json!([null, "5", "phoenix", "heartbeat", {}]))
        .await;
    other
        .until("the other's heartbeat", |frame| frame[1] == "5")
        .await;

    until("the endpoint was asked", async || {
        (server.fetches() == 1).then_some(())
    })
    .await;
    server.set(key_set(&[&k1]));
    // The one that was given back runs under the connection's own key.
    let (mut replies, mut roles) = (0, Vec::new());
    while (replies, roles.len()) != (2, 2) {
        let frame = client.next_json().await;
        let room = frame[0].as_str().unwrap_or_default().to_owned();
        if frame[3] == "phx_reply" {
            assert!(
                ["changes", "waits"].contains(&&*room) && frame[4]["status"] == "ok",
                "{frame}"
            );
            replies += 1;
        } else {
            assert_eq!(frame[4]["message"], "Subscribed to PostgreSQL");
            roles.push((room, frame[4]["role"].clone()));
        }
    }
    roles.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        roles,
        [
            ("changes".to_owned(), json!("anon")),
            ("waits".to_owned(), json!("authenticated"))
        ]
    );
    assert_eq!(server.fetches(), 1);
}

#[tokio::test]
async fn a_refresh_by_a_new_key_goes_on_under_the_old_until_the_set_is_there() {
    let (k1, k2) = (Signer::ed25519(1, "k1"), Signer::ed25519(2, "k2"));
    let (world, server) = fetching(World::start().await, &[&k1]).await;
    let (mut client, _) = world.joined(&user(&k1), notes()).await;
    server.hold();
    let refresh =
        |token: String| json!(["room", "2", "realtime:room", "access_token", { "access_token": token }]);
    client.send_json(&refresh(k2.sign(&tokens::user("u2")))).await;
    world.insert(json!({ "id": 1, "owner": "u1" })).await;
    client.until("a row of the old", |frame| is_row(frame, 1)).await;
    server.set(key_set(&[&k1, &k2]));
    subscribed(&mut client).await;
    world.insert(json!({ "id": 2, "owner": "u1" })).await;
    world.insert(json!({ "id": 3, "owner": "u2" })).await;
    let (_, before) = client.until("a row of the new", |frame| is_row(frame, 3)).await;
    assert!(!before.iter().any(|frame| is_row(frame, 2)), "{before:?}");
    // One that no set has ends the channel.
    client.send_json(&refresh(user(&Signer::ed25519(3, "k3")))).await;
    let (error, _) = client
        .until("the error", |frame| frame[4]["status"] == "error")
        .await;
    assert_eq!(error[4]["extension"], "system");
    client.until("the close", |frame| frame[3] == "phx_close").await;
}

#[tokio::test]
async fn the_last_good_set_outlives_the_endpoint() {
    let (k1, k2) = (Signer::ed25519(1, "k1"), Signer::ed25519(2, "k2"));
    let world = World::with_limits(|limits| {
        limits.jwks_ttl_seconds = 1;
        limits.jwks_cool_down_seconds = 1;
    })
    .await;
    let (world, server) = fetching(world, &[&k1]).await;
    let mut client = world.client().await;
    join(&mut client, "a", &user(&k1), notes()).await;
    let unusable = json!({ "keys": [{ "kty": "oct", "k": "AAAA" }] }).to_string();
    for broken in [None, Some(unusable), Some("<html>".to_owned())] {
        match broken {
            None => server.fail(),
            Some(document) => server.set(document),
        }
        let failed = || world.metric("anvilbase_realtime_gateway_key_set_fetches_total{reason=\"failed\"}");
        let before = failed().unwrap_or(0.0);
        until("it was asked in vain", async || {
            (failed().unwrap_or(0.0) > before).then_some(())
        })
        .await;
        join(&mut client, "a", &user(&k1), notes()).await;
    }
    server.set(key_set(&[&k2]));
    let good = || world.metric("anvilbase_realtime_gateway_key_set_fetches_total{reason=\"fetched\"}");
    let before = good();
    until("it is fetched again", async || (good() > before).then_some(())).await;
    join(&mut client, "b", &user(&k2), notes()).await;
}

#[tokio::test]
async fn an_empty_set_withdraws_every_key() {
    let k1 = Signer::ed25519(1, "k1");
    let world = World::with_limits(|limits| limits.jwks_ttl_seconds = 1).await;
    let (world, server) = fetching(world, &[&k1]).await;
    let mut client = world.client().await;
    join(&mut client, "room", &user(&k1), notes()).await;
    server.set(key_set(&[]));
    client
        .until("the end of what the key signed", |frame| frame[3] == "phx_close")
        .await;
    let reply = try_join(&mut client, "again", &user(&k1), notes()).await;
    assert_eq!(reply["status"], "error", "{reply}");
}

#[tokio::test]
async fn a_set_that_nobody_confirms_for_too_long_no_longer_counts() {
    let k1 = Signer::ed25519(1, "k1");
    let world = World::with_limits(|limits| {
        limits.jwks_ttl_seconds = 1;
        limits.jwks_cool_down_seconds = 1;
        limits.jwks_stale_seconds_max = 4;
    })
    .await;
    let (world, server) = fetching(world, &[&k1]).await;
    let mut client = world.client().await;
    join(&mut client, "room", &user(&k1), notes()).await;
    server.set("nothing".to_owned());
    client
        .until("the end of what the key signed", |frame| frame[3] == "phx_close")
        .await;
    // Bad answers alone ended nothing.
    let failed = world.metric(r#"anvilbase_realtime_gateway_key_set_fetches_total{reason="failed"}"#);
    assert!(failed > Some(1.0), "{failed:?}");
    // As if it had never been fetched: asked for anew once somebody needs it.
    server.set(key_set(&[&k1]));
    let counts_again = async {
        while try_join(&mut client, "again", &user(&k1), notes()).await["status"] != "ok" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the key again", counts_again).await;
}

#[tokio::test]
async fn a_key_that_leaves_the_set_ends_what_it_signed_and_nothing_else() {
    let (k1, k2) = (Signer::ed25519(1, "k1"), Signer::ed25519(2, "k2"));
    let world = World::with_limits(|limits| limits.jwks_ttl_seconds = 1).await;
    let (world, server) = fetching(world, &[&k1, &k2]).await;
    let mut by_k1 = Client::connect(&world.url_as("2.0.0", &user(&k1))).await;
    join(&mut by_k1, "own", &token("authenticated", "u1"), notes()).await;
    let mut client = world.client().await;
    for (room, token) in [
        ("k1", user(&k1)),
        ("k2", user(&k2)),
        ("secret", token("authenticated", "u1")),
    ] {
        join(&mut client, room, &token, notes()).await;
        subscribed(&mut client).await;
    }
    server.set(key_set(&[&k2]));
    let (error, _) = client
        .until("the error", |frame| frame[4]["status"] == "error")
        .await;
    assert_eq!(error[2], "realtime:k1");
    assert_eq!(error[4]["message"], "The key behind the token is no longer valid");
    client
        .until("the close", |frame| frame[3] == "phx_close" && frame[0] == "k1")
        .await;
    // A socket that the key itself let in ends.
    assert_eq!(
        closed(&mut by_k1).await,
        Some((4401, "the connection's key is no longer valid".to_owned()))
    );
    world.insert(json!({ "id": 1 })).await;
    let mut rows = Vec::new();
    for _ in 0..2 {
        let (row, before) = client.until("a row", |frame| is_row(frame, 1)).await;
        assert!(before.is_empty(), "{before:?}");
        rows.push(row[2].as_str().unwrap().to_owned());
    }
    rows.sort();
    assert_eq!(rows, ["realtime:k2", "realtime:secret"]);
    let fetches = server.fetches();
    until("it is fetched again and again", async || {
        (server.fetches() > fetches + 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_connections_key_may_need_the_set_as_well() {
    let k1 = Signer::new(tokens::Algorithm::ES256, "k1");
    let (world, server) = fetching(World::start().await, &[&k1]).await;
    server.hold();
    let url = world.url_as("2.0.0", &user(&k1));
    let connecting = tokio::join!(Client::connect(&url), async {
        until("it is asked for", async || (server.fetches() == 1).then_some(())).await;
        server.set(key_set(&[&k1]));
    });
    drop(connecting.0);
    let stranger = user(&Signer::ed25519(1, "k2"));
    assert_eq!(
        Client::try_connect(&world.url_as("2.0.0", &stranger)).await.err(),
        Some(401)
    );
    // Asked a moment ago: not now.
    assert_eq!(
        Client::try_connect(&world.url_as("2.0.0", &stranger)).await.err(),
        Some(503)
    );
    assert_eq!(server.fetches(), 2);
}

fn static_key(role: &str, hex: &str) -> StaticKey {
    let digits = (0..32).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap());
    StaticKey {
        role: Role::new(role),
        sha256: digits.collect::<Vec<u8>>().try_into().unwrap(),
    }
}

/// `printf %s sb_publishable_tests | sha256sum`, and so on.
const PUBLISHABLE: (&str, &str) = (
    "sb_publishable_tests",
    "8f8c0510c1b0d310c6b1462b2ccf97e01b84f98ada827f80d808f0866954bc93",
);
const SERVICE: (&str, &str) = (
    "sb_secret_tests",
    "6a56408661c696f311c69935dbc197f063d4f913ff1d9f6dd639cbb2bf2ccde3",
);

#[tokio::test]
async fn static_keys_connect_and_join_and_end_when_they_are_withdrawn() {
    let world = World::start().await;
    let publishable = static_key("anon", PUBLISHABLE.1);
    let service = static_key("service_role", SERVICE.1);
    let (one, two) = (publishable.clone(), service.clone());
    world
        .catalog
        .replace(with(move |tokens| tokens.keys = vec![one, two]));
    let role = async |key: &str, token: Option<&str>| {
        let mut client = Client::connect(&world.url_as("2.0.0", key)).await;
        let mut payload = json!({ "config": { "postgres_changes": notes() } });
        if let Some(token) = token {
            payload["access_token"] = token.into();
        }
        client
            .send_json(&json!(["1", "1", "realtime:room", "phx_join", payload]))
            .await;
        let frame = subscribed(&mut client).await;
        (client, frame[4]["role"].as_str().unwrap().to_owned())
    };
    // As supabase-js does at first, and as it does later, and as Python does.
    let (mut plain, said) = role(PUBLISHABLE.0, None).await;
    assert_eq!(said, "anon");
    let (mut repeated, said) = role(PUBLISHABLE.0, Some(PUBLISHABLE.0)).await;
    assert_eq!(said, "anon");
    // A user's token on top, and no more than the publishable key on a service key's socket.
    let user = token("authenticated", "u1");
    let (mut signed_in, said) = role(PUBLISHABLE.0, Some(&user)).await;
    assert_eq!(said, "authenticated");
    let (mut lesser, said) = role(SERVICE.0, Some(PUBLISHABLE.0)).await;
    assert_eq!(said, "anon");
    let (mut trusted, said) = role(SERVICE.0, None).await;
    assert_eq!(said, "service_role");
    // A key that some proxy exchanges for a token: the connection's own identity.
    let (mut exchanged, said) = role(&token("anon", "-"), Some("sb_publishable_other")).await;
    assert_eq!(said, "anon");
    for bad in [
        "sb_publishable_test",
        "sb_publishable_testsx",
        "sb_",
        "SB_publishable_tests",
    ] {
        assert_eq!(
            Client::try_connect(&world.url_as("2.0.0", bad)).await.err(),
            Some(401),
            "{bad}"
        );
    }

    world
        .catalog
        .replace(with(move |tokens| tokens.keys = vec![service]));
    for client in [&mut plain, &mut repeated, &mut signed_in] {
        assert_eq!(closed(client).await.map(|(code, _)| code), Some(4401));
    }
    lesser
        .until("the channel's end", |frame| frame[3] == "phx_close")
        .await;
    world.insert(json!({ "id": 1 })).await;
    for client in [&mut trusted, &mut exchanged] {
        client.until("a row", |frame| is_row(frame, 1)).await;
    }
    lesser
        .send_json(&json!([null, "5", "phoenix", "heartbeat", {}]))
        .await;
    let (_, before) = lesser.until("its socket stays", |frame| frame[1] == "5").await;
    assert!(before.is_empty(), "{before:?}");
}

#[tokio::test]
async fn a_rotated_secret_ends_what_it_signed_and_nothing_else() {
    const OLD: &str = "the secret that was in use before this";
    let world = World::start().await;
    let both = with(|tokens| tokens.secrets.push(Secret::new(OLD)));
    world.catalog.replace(both.clone());
    let old = tokens::mint(OLD, &tokens::user("u1"));
    let mut by_old = Client::connect(&world.url_as("2.0.0", &old)).await;
    let mut client = world.client().await;
    join(&mut client, "old", &old, notes()).await;
    subscribed(&mut client).await;
    join(&mut client, "new", &token("authenticated", "u1"), notes()).await;
    subscribed(&mut client).await;
    // Read anew without a change, and with another order: nothing ends.
    world.catalog.replace(both.clone());
    let mut turned = both;
    turned[0].tokens.as_mut().unwrap().secrets.reverse();
    world.catalog.replace(turned);
    world.insert(json!({ "id": 1 })).await;
    for _ in 0..2 {
        let (_, before) = client.until("a row", |frame| is_row(frame, 1)).await;
        assert!(before.is_empty(), "{before:?}");
    }
    world.catalog.replace(with(|_| {}));
    let (_, before) = client
        .until("the old one's end", |frame| {
            frame[3] == "phx_close" && frame[0] == "old"
        })
        .await;
    assert_eq!(before.len(), 1, "{before:?}");
    assert_eq!(closed(&mut by_old).await.map(|(code, _)| code), Some(4401));
    world.insert(json!({ "id": 2 })).await;
    let (row, before) = client.until("a row", |frame| is_row(frame, 2)).await;
    assert!(before.is_empty() && row[2] == "realtime:new", "{before:?} {row}");
}

#[tokio::test]
async fn a_broken_key_set_file_leaves_the_last_good_keys() {
    let world = World::start().await;
    let k1 = Signer::ed25519(1, "k1");
    world
        .catalog
        .replace(with(|tokens| tokens.jwks = Some(Secret::new(key_set(&[&k1])))));
    let (mut client, _) = world.joined(&user(&k1), notes()).await;
    world
        .catalog
        .replace(with(|tokens| tokens.jwks = Some(Secret::new("{\"keys\":[]}"))));
    world.insert(json!({ "id": 1 })).await;
    client.until("a row", |frame| is_row(frame, 1)).await;
    world.joined(&user(&k1), notes()).await;
    assert!(client.next_within(Duration::ZERO).await.is_none());
}
