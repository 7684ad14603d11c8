//! Tokens and sessions: who a channel is, until when, and what becomes of it then.

use std::time::{Duration, Instant};

use realtime_testkit::tokens;
use realtime_tests::world::{Socket, U1, U2, Who, World, binding};
use serde_json::{Value, json};

/// The claims of [`U1`] that end so many seconds from now.
fn ending(seconds: i64) -> Who {
    let exp = tokens::now() as i64 + seconds;
    Who::claims(json!({ "role": "authenticated", "sub": U1, "exp": exp }))
}

async fn joined(socket: &mut Socket, topic: &str, token: &str) {
    let bindings = [binding("*", "notes")];
    socket.join(topic, &bindings, Some(token)).await.unwrap();
    socket.subscribed(topic).await;
}

/// The ids of the notes that came. The one gap that may stand before them: the channel was silent while it
/// changed hands.
async fn notes_seen(world: &World, socket: &mut Socket) -> Vec<i64> {
    let frames = world.frames(socket).await;
    let mut ids = Vec::new();
    for frame in &frames {
        match frame[3].as_str() {
            Some("postgres_changes") => ids.push(frame[4]["data"]["new"]["id"].as_i64().unwrap()),
            _ => assert_eq!(frame[4]["reason"], "token_changed", "{frames:?}"),
        }
    }
    ids
}

fn on<'a>(frames: &'a [Value], topic: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame[2] == topic).collect()
}

#[tokio::test]
async fn b01_a_token_that_ends_takes_its_channel_with_a_reason_and_nothing_else() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::anon()).await;
    joined(&mut socket, "realtime:long", &Who::u1().token()).await;
    let exp = tokens::now() + 3;
    let short = Who::claims(json!({ "role": "authenticated", "sub": U1, "exp": exp }));
    joined(&mut socket, "realtime:short", &short.token()).await;
    world
        .run(&format!("insert into notes (id, owner) values (1, '{U1}')"))
        .await;
    let frames = world.frames(&mut socket).await;
    assert_eq!(on(&frames, "realtime:short").len(), 1, "{frames:?}");
    assert_eq!(on(&frames, "realtime:long").len(), 1, "{frames:?}");

    let (error, before) = socket
        .client
        .until("the reason", |frame| frame[4]["status"] == "error")
        .await;
    let now = tokens::now();
    assert!((exp..=exp + 1).contains(&now), "{exp} {now}");
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(
        (&error[2], &error[4]["extension"]),
        (&json!("realtime:short"), &json!("system"))
    );
    let message = error[4]["message"].as_str().unwrap();
    assert!(message.starts_with("Token has expired"), "{message}");
    let close = socket.client.next_json().await;
    assert_eq!(
        (&close[2], &close[3]),
        (&json!("realtime:short"), &json!("phx_close"))
    );
    assert_eq!((&close[0], &close[1]), (&error[0], &error[0]));

    world
        .run(&format!("insert into notes (id, owner) values (2, '{U1}')"))
        .await;
    let frames = world.frames(&mut socket).await;
    assert_eq!(on(&frames, "realtime:short").len(), 0, "{frames:?}");
    assert_eq!(on(&frames, "realtime:long").len(), 1, "{frames:?}");
    world.stop().await;
}

#[tokio::test]
async fn b02_a_join_with_the_old_token_is_answered_and_the_next_one_works() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::anon()).await;
    let began = Instant::now();
    let refused = socket
        .join(
            "realtime:test",
            &[binding("*", "notes")],
            Some(&ending(-100).token()),
        )
        .await
        .unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(1));
    let reason = refused["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("InvalidJWTToken: Token has expired 10"),
        "{reason}"
    );
    // The refreshed token, as SDKs push it to a channel that they think is there, and then the join.
    let push = socket
        .push(
            "realtime:test",
            "access_token",
            json!({ "access_token": Who::u1().token() }),
        )
        .await;
    assert_eq!(push.unwrap_err()["reason"], "unmatched topic");
    joined(&mut socket, "realtime:test", &Who::u1().token()).await;
    world
        .run(&format!("insert into notes (id, owner) values (1, '{U1}')"))
        .await;
    assert_eq!(world.changes(&mut socket).await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn b08_a_role_that_is_missing_or_not_allowed_is_an_error_at_once() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::anon()).await;
    let missing = "InvalidJWTToken: Fields `role` and `exp` are required in JWT";
    let unknown = "Unauthorized: The token's role is not allowed in this project";
    let exp = tokens::now() + 60;
    for (claims, expected) in [
        (json!({ "sub": U1, "exp": exp }), missing),
        (json!({ "role": null, "exp": exp }), missing),
        (json!({ "role": "", "exp": exp }), missing),
        (json!({ "role": 5, "exp": exp }), missing),
        (json!({ "role": ["authenticated"], "exp": exp }), missing),
        (json!({ "role": "nobody", "exp": exp }), unknown),
        (json!({ "role": "postgres", "exp": exp }), unknown),
        (json!({ "role": "Authenticated", "exp": exp }), unknown),
        (json!({ "role": "authenticated " , "exp": exp }), unknown),
    ] {
        let began = Instant::now();
        let token = Who::claims(claims.clone()).token();
        let refused = socket
            .join("realtime:test", &[binding("*", "notes")], Some(&token))
            .await
            .unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(refused["reason"], expected, "{claims}");
    }
    // Without an end there is no token either.
    let endless = tokens::mint(
        realtime_tests::stack::JWT_SECRET,
        &json!({ "role": "authenticated", "sub": U1 }),
    );
    let refused = socket
        .join("realtime:test", &[binding("*", "notes")], Some(&endless))
        .await;
    assert_eq!(refused.unwrap_err()["reason"], missing);
    world.stop().await;
}

#[tokio::test]
async fn a09_whoever_is_anonymous_is_told_so_and_becomes_somebody_by_a_token() {
    let world = World::start().await;
    let mut socket = world.socket(&Who::anon()).await;
    socket
        .join("realtime:test", &[binding("*", "notes")], None)
        .await
        .unwrap();
    let live =
        |frame: &Value| frame[2] == "realtime:test" && frame[4]["message"] == "Subscribed to PostgreSQL";
    let (system, _) = socket.client.until("live", live).await;
    assert_eq!(
        (&system[4]["status"], &system[4]["role"]),
        (&json!("ok"), &json!("anon"))
    );
    assert!(
        !system.to_string().contains("exp"),
        "the role, not the claims: {system}"
    );
    world
        .run(&format!("insert into notes (id, owner) values (1, '{U1}')"))
        .await;
    assert_eq!(world.changes(&mut socket).await.len(), 0);

    socket
        .send(
            "realtime:test",
            "access_token",
            json!({ "access_token": Who::u1().token() }),
        )
        .await;
    let (system, _) = socket.client.until("live anew", live).await;
    assert_eq!(system[4]["role"], "authenticated");
    world
        .run(&format!(
            "insert into notes (id, owner) values (2, '{U1}'), (3, '{U2}')"
        ))
        .await;
    assert_eq!(notes_seen(&world, &mut socket).await, [2]);

    // Another user's token from then on, and nobody's again.
    socket
        .send(
            "realtime:test",
            "access_token",
            json!({ "access_token": Who::u2().token() }),
        )
        .await;
    socket.client.until("live as the other", live).await;
    world
        .run(&format!(
            "insert into notes (id, owner) values (4, '{U1}'), (5, '{U2}')"
        ))
        .await;
    assert_eq!(notes_seen(&world, &mut socket).await, [5]);
    socket
        .send("realtime:test", "access_token", json!({ "access_token": null }))
        .await;
    socket.client.until("live as nobody", live).await;
    world
        .run(&format!("insert into notes (id, owner) values (6, '{U2}')"))
        .await;
    assert!(notes_seen(&world, &mut socket).await.is_empty());
    // One that is refused ends the channel with its reason.
    socket
        .send("realtime:test", "access_token", json!({ "access_token": "junk" }))
        .await;
    let frames = world.frames(&mut socket).await;
    assert_eq!(frames.len(), 2, "{frames:?}");
    assert_eq!(frames[0][4]["message"], "The token provided is not a valid JWT");
    assert_eq!(frames[1][3], "phx_close");
    world.stop().await;
}

#[tokio::test]
async fn a15_a_removed_member_gets_nothing_more() {
    let world = World::start().await;
    world
        .run(&format!(
            "create table members (user_id uuid, room int, primary key (user_id, room));
             create table posts (id int primary key, room int);
             alter table posts enable row level security;
             create policy member on posts for select to authenticated
               using (exists (select from members m where m.user_id = auth.uid() and m.room = posts.room));
             insert into members values ('{U1}', 1), ('{U2}', 1)"
        ))
        .await;
    let mut one = world.subscriber(&Who::u1(), &[binding("*", "posts")]).await;
    let mut two = world.subscriber(&Who::u2(), &[binding("*", "posts")]).await;
    world.run("insert into posts values (1, 1)").await;
    assert_eq!(world.changes(&mut one).await.len(), 1);
    assert_eq!(world.changes(&mut two).await.len(), 1);
    world
        .run(&format!("delete from members where user_id = '{U1}'"))
        .await;
    world.run("insert into posts values (2, 1)").await;
    assert_eq!(world.changes(&mut one).await.len(), 0);
    assert_eq!(world.changes(&mut two).await.len(), 1);
    // Within one transaction as well, and back again.
    world
        .run(&format!(
            "begin; insert into members values ('{U1}', 1); insert into posts values (3, 1); commit"
        ))
        .await;
    assert_eq!(world.changes(&mut one).await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a19_a_subject_that_is_no_uuid_is_its_own_affair() {
    let world = World::start().await;
    world
        .run(
            "create table files (id int primary key, owner text);
             alter table files enable row level security;
             create policy own on files for select to authenticated using (owner = auth.jwt() ->> 'sub')",
        )
        .await;
    let third_party = Who::claims(json!({ "role": "authenticated", "sub": "user_2abc" }));
    let bindings = [binding("*", "notes"), binding("*", "files")];
    let mut theirs = world.subscriber(&third_party, &bindings).await;
    let mut ours = world.subscriber(&Who::u1(), &bindings).await;
    world
        .run(&format!("insert into notes (id, owner) values (1, '{U1}')"))
        .await;
    let hint = theirs.hint("policy_error").await;
    assert_eq!(
        (&hint["status"], &hint["sqlstate"]),
        (&json!("ok"), &json!("22P02"))
    );
    assert!(!hint.to_string().contains("user_2abc"), "{hint}");
    assert_eq!(world.changes(&mut ours).await.len(), 1);
    world.run("insert into files values (1, 'user_2abc')").await;
    let seen = world.changes(&mut theirs).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["new"], json!({ "id": 1, "owner": "user_2abc" }));
    assert_eq!(world.changes(&mut ours).await.len(), 0);
    world.stop().await;
}
