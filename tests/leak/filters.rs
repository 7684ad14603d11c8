//! Filters as oracles over what their subscriber may not see.

use realtime_tests::world::{Socket, U1, U2, Who, World, binding, filtered};
use serde_json::{Value, json};

use crate::support::{HUSH, brief, half_open, nothing_hidden};

/// Joins with one filter on `docs`; the reason where that is refused.
async fn try_filter(socket: &mut Socket, filter: &str) -> Option<String> {
    let joined = socket
        .join("realtime:test", &[filtered("*", "docs", filter)], None)
        .await;
    joined
        .err()
        .map(|response| response["reason"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_column_that_may_not_be_read_is_answered_as_one_that_is_not_there() {
    let world = World::start().await;
    half_open(&world).await;
    let mut one = world.socket(&Who::u1()).await;
    for condition in [
        "eq.x",
        "neq.x",
        "gt.x",
        "gte.x",
        "lt.x",
        "lte.x",
        "in.(x)",
        "in.(x,y)",
        "is.null",
        "like.*x*",
        "ilike.x%",
        "match.^x",
        "imatch.x",
        "isdistinct.x",
        "not.eq.x",
        "not.in.(x)",
        "not.is.null",
        "eq.",
        "foo.x",
    ] {
        let hidden = try_filter(&mut one, &format!("secret={condition}"))
            .await
            .expect(condition);
        let absent = try_filter(&mut one, &format!("nosuch={condition}"))
            .await
            .expect(condition);
        assert_eq!(hidden.replace("secret", "nosuch"), absent, "{condition}");
    }
    world.stop().await;
}

#[tokio::test]
async fn spellings_of_a_column_that_may_not_be_read() {
    let world = World::start().await;
    half_open(&world).await;
    let mut one = world.socket(&Who::u1()).await;
    for filter in [
        "\"secret\"=eq.x",
        " secret=eq.x",
        "secret =eq.x",
        "SECRET=eq.x",
        "docs.secret=eq.x",
        "public.docs.secret=eq.x",
        "secret::text=eq.x",
        "secret->>a=eq.x",
        "word=eq.a,secret=eq.x",
        "secret=eq.x,word=eq.a",
        "word=eq.a,\"secret\"=neq.x",
        "(secret)=eq.x",
        "*=eq.x",
        "docs=eq.x",
        "ctid=eq.(0,1)",
        "xmin=gt.0",
        "tableoid=gt.0",
        "\"sec\\ret\"=eq.x",
    ] {
        assert!(try_filter(&mut one, filter).await.is_some(), "{filter}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_filter_whose_column_is_withdrawn_after_the_join() {
    let world = World::start().await;
    half_open(&world).await;
    world.run("grant select (secret) on docs to authenticated").await;
    let mut one = world.socket(&Who::u1()).await;
    assert_eq!(try_filter(&mut one, &format!("secret=eq.{HUSH}")).await, None);
    one.subscribed("realtime:test").await;
    world
        .run(&format!("insert into docs values (1, 'a', '{HUSH}')"))
        .await;
    assert_eq!(brief(&world.frames(&mut one).await), ["INSERT docs 1"]);
    world
        .run("revoke select (secret) on docs from authenticated")
        .await;
    let mut seen = Vec::new();
    for value in [HUSH, "other", HUSH, "another"] {
        let n = seen.len() + 2;
        world
            .run(&format!("insert into docs values ({n}, 'a', '{value}')"))
            .await;
        let frames = nothing_hidden(&world, &mut one).await;
        seen.push(brief(&frames));
    }
    assert!(seen.iter().all(Vec::is_empty), "{seen:?}");
    world.stop().await;
}

/// The filter was good when the row was written, and is not when it is shown.
#[tokio::test]
async fn a_filter_whose_column_is_withdrawn_by_the_transaction_that_matches_it() {
    let world = World::start().await;
    half_open(&world).await;
    world.run("grant select (secret) on docs to authenticated").await;
    let mut one = world.socket(&Who::u1()).await;
    assert_eq!(try_filter(&mut one, &format!("secret=eq.{HUSH}")).await, None);
    one.subscribed("realtime:test").await;
    world
        .run(&format!("insert into docs values (1, 'a', '{HUSH}')"))
        .await;
    assert_eq!(brief(&world.frames(&mut one).await), ["INSERT docs 1"]);
    world
        .run(&format!(
            "begin; insert into docs values (2, 'a', '{HUSH}'); revoke select (secret) on docs from authenticated; commit"
        ))
        .await;
    let frames = nothing_hidden(&world, &mut one).await;
    assert_eq!(
        brief(&frames),
        Vec::<String>::new(),
        "that it came tells the value"
    );
    world.stop().await;
}

#[tokio::test]
async fn deletes_behind_every_kind_of_filter_that_is_not_the_keys() {
    let world = World::start().await;
    world
        .run(
            "create table docs (id int primary key, code int unique, word text, secret text);
             create table loose (id int, word text);
             alter table docs enable row level security; alter table loose enable row level security",
        )
        .await;
    let on = |table: &str, filter: &str| filtered("DELETE", table, filter);
    let any = |table: &str, filter: &str| filtered("*", table, filter);
    world
        .run("create policy p on docs using (true); create policy p on loose using (true)")
        .await;
    let bindings = [
        on("docs", &format!("word=eq.{HUSH}")),
        on("docs", &format!("id=eq.1,word=eq.{HUSH}")),
        on("docs", "id=in.(1,2),word=neq.x"),
        on("docs", &format!("word=in.({HUSH},x)")),
        on("docs", "code=eq.7"),
        on("docs", "code=gt.0,id=gt.0"),
        any("docs", &format!("word=eq.{HUSH}")),
        on("loose", "id=eq.1"),
        any("loose", &format!("word=eq.{HUSH}")),
    ];
    let mut one = world.subscriber(&Who::u1(), &bindings).await;
    let insert =
        format!("insert into docs values (1, 7, '{HUSH}', 's'); insert into loose values (1, '{HUSH}')");
    world.run(&insert).await;
    world.frames(&mut one).await;
    world.run("delete from docs; delete from loose").await;
    assert_eq!(nothing_hidden(&world, &mut one).await, Vec::<Value>::new());
    world.stop().await;
}

#[tokio::test]
async fn rows_too_large_to_be_filtered() {
    let world = World::start().await;
    let bindings = [
        filtered("*", "notes", &format!("title=eq.{HUSH}")),
        filtered("*", "notes", "room=eq.5"),
        filtered("*", "notes", "id=eq.1,room=eq.5"),
    ];
    let mut one = world.subscriber(&Who::u1(), &bindings).await;
    let mut service = world.subscriber(&Who::service(), &bindings).await;
    world
        .run(&format!(
            "insert into notes (id, owner, room, title, tags) values (1, '{U1}', 5, '{HUSH}', array_fill('x'::text, array[3000]));
             update notes set amount = 1; update notes set room = 6, amount = 2"
        ))
        .await;
    for socket in [&mut one, &mut service] {
        assert_eq!(brief(&nothing_hidden(&world, socket).await), Vec::<String>::new());
    }
    world.stop().await;
}

#[tokio::test]
async fn refusals_repeat_no_value() {
    let world = World::start().await;
    let mut one = world.socket(&Who::u1()).await;
    let long = format!("title=in.({})", vec![HUSH; 2_000].join(","));
    let bytes = format!("title=eq.{HUSH}{}", "x".repeat(20_000));
    for filter in [
        format!("id=eq.{HUSH}"),
        format!("owner=eq.{HUSH}"),
        format!("room=in.(1,{HUSH})"),
        format!("done=eq.{HUSH}"),
        format!("amount=gt.{HUSH}"),
        format!("at=lt.{HUSH}"),
        format!("tags=gt.{{{HUSH}}}"),
        format!("meta=gt.\"{HUSH}\""),
        format!("title=eq.\"{HUSH}"),
        format!("title=in.({HUSH}"),
        format!("title=in.(\"{HUSH}\"x)"),
        format!("title=in.({HUSH},,)"),
        format!("title=match.({HUSH}"),
        long,
        bytes,
    ] {
        let refused = one
            .join("realtime:test", &[filtered("*", "notes", &filter)], None)
            .await;
        let response = refused.expect_err(&filter);
        assert!(!response.to_string().contains(HUSH), "{filter}: {response}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_table_without_the_privilege_tells_nothing_of_its_columns() {
    let world = World::start().await;
    world.run("revoke select on notes from authenticated, anon").await;
    for who in [Who::u1(), Who::anon()] {
        let mut answers = Vec::new();
        for filter in ["title=eq.x", "nosuch=eq.x", "room=eq.abc"] {
            let mut socket = world.socket(&who).await;
            let joined = socket
                .join("realtime:test", &[filtered("*", "notes", filter)], None)
                .await;
            let mut answer = joined
                .map(|mut ok| ok["postgres_changes"][0]["filter"].take())
                .is_ok()
                .to_string();
            for frame in socket.subscribed("realtime:test").await {
                answer += frame[4]["code"].as_str().unwrap_or_default();
            }
            answers.push(answer);
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn sql_in_filters_and_names_is_only_text() {
    let world = World::start().await;
    let mut one = world.socket(&Who::u1()).await;
    let tricks = [
        "'; drop table notes; --",
        "x' or '1'='1",
        "$1",
        "\\'; select pg_sleep(9); --",
        "\u{0}",
        "%s %I %L",
        "{}",
    ];
    for trick in tricks {
        for filter in [
            format!("title=eq.{trick}"),
            format!("title=in.(\"{}\")", trick.replace('\\', "\\\\")),
            format!("{trick}=eq.1"),
        ] {
            let _ = one
                .join("realtime:test", &[filtered("*", "notes", &filter)], None)
                .await;
        }
        let names = json!({ "event": "*", "schema": trick, "table": trick });
        let _ = one
            .join("realtime:test", &[names, binding("*", trick)], None)
            .await;
    }
    // Each filter is a text that such a row has, and none matches every row.
    let bindings: Vec<Value> = ["x' or '1'='1", "'; drop table notes; --"]
        .map(|trick| filtered("INSERT", "notes", &format!("title=eq.{trick}")))
        .to_vec();
    one.join("realtime:test", &bindings, None).await.unwrap();
    one.subscribed("realtime:test").await;
    let insert = "insert into notes (id, owner, title) values ($1, $2::text::uuid, $3)";
    for (id, title) in [(1_i64, "x"), (2, "x' or '1'='1"), (3, "'; drop table notes; --")] {
        world.sql.execute(insert, &[&id, &U1, &title]).await.unwrap();
    }
    assert_eq!(
        brief(&world.frames(&mut one).await),
        ["INSERT notes 2", "INSERT notes 3"]
    );
    world.stop().await;
}

/// Whether a hidden row makes the policy fail is told to nobody by way of a filter.
#[tokio::test]
async fn a_policy_that_fails_on_rows_behind_a_filter() {
    let world = World::start().await;
    world
        .run(
            "create table sums (id int primary key, owner uuid, n int); alter table sums enable row level security;
             create policy own on sums for select to authenticated using (owner = auth.uid() or 1 / n > 5)",
        )
        .await;
    let mut two = world
        .subscriber(&Who::u2(), &[filtered("*", "sums", "n=eq.0")])
        .await;
    world
        .run(&format!(
            "insert into sums values (1, '{U1}', 0), (2, '{U1}', 3), (3, '{U2}', 0)"
        ))
        .await;
    assert_eq!(brief(&world.frames(&mut two).await), ["INSERT sums 3"]);
    world.run("update sums set n = 0 where id = 2").await;
    assert_eq!(world.frames(&mut two).await, Vec::<Value>::new());
    world.stop().await;
}

/// A loss behind the match is told to every channel with a binding on the table, so that whoever hears of it does not
/// know whose filter the row matched. That no notice comes where nobody's filter matched is all that is left to know.
#[tokio::test]
async fn the_notice_of_a_loss_says_not_whose_filter_matched() {
    let world = World::start().await;
    world
        .run(
            "create function fails() returns boolean language plpgsql as
               $$ begin if current_user <> 'postgres' then raise 'x'; end if; return true; end $$;
             create domain sly as int check (fails());
             create table docs (id int primary key, word text, d sly); alter table docs enable row level security;
             create policy p on docs for select to authenticated using (d > 0 and word = 'never')",
        )
        .await;
    let mut matched = world
        .subscriber(&Who::u1(), &[filtered("*", "docs", "word=eq.right")])
        .await;
    let mut other = world
        .subscriber(&Who::u2(), &[filtered("*", "docs", "word=eq.wrong")])
        .await;
    world.run("insert into docs values (1, 'right', 1)").await;
    let gaps = [matched.hint("gap").await, other.hint("gap").await];
    assert_eq!(gaps[0]["reason"], "row_unreadable");
    assert_eq!(gaps[0], gaps[1]);
    world.run("insert into docs values (2, 'neither', 1)").await;
    for socket in [&mut matched, &mut other] {
        assert_eq!(world.frames(socket).await, Vec::<Value>::new());
    }
    world.stop().await;
}

/// A pattern that costs more than a row is worth, while others wait for theirs.
#[tokio::test]
async fn patterns_that_never_end() {
    let world = World::start().await;
    let mut victim = world.subscriber(&Who::u1(), &[binding("*", "notes")]).await;
    let mut attacker = world.socket(&Who::u2()).await;
    let patterns = [
        "title=match.(a+)+$",
        "title=match.(a|a)*b",
        "title=match.(.*)*x",
        "title=imatch.((a{1,30}){1,30}){1,30}",
        "title=match.(?=a)a",
        "title=match.\\1",
        "title=like.%a%a%a%a%a%a%a%a%a%a%a%a%b",
        "title=ilike.%a%a%a%a%a%a%a%a%a%a%a%a%b",
        "title=match.a{999999}",
        "title=match.[[:alpha:]]*[[:digit:]]*x$",
    ];
    let mut taken = 0;
    for (n, pattern) in patterns.iter().enumerate() {
        let topic = format!("realtime:{n}");
        if attacker
            .join(&topic, &vec![filtered("*", "notes", pattern); 20], None)
            .await
            .is_ok()
        {
            attacker.subscribed(&topic).await;
            taken += 1;
        }
    }
    assert!(
        taken > 0,
        "none of the patterns is served: the test tries nothing"
    );
    let started = std::time::Instant::now();
    world
        .run(&format!(
            "insert into notes (id, owner, title) select n, '{U1}', repeat('a', 7000) from generate_series(1, 20) n"
        ))
        .await;
    assert_eq!(world.changes(&mut victim).await.len(), 20);
    let took = started.elapsed();
    assert!(
        took < std::time::Duration::from_secs(15),
        "others waited {took:?}"
    );
    world.stop().await;
}

/// Null is told from nothing only where the row is seen.
#[tokio::test]
async fn operators_that_match_what_is_not_there() {
    let world = World::start().await;
    let filters = [
        "title=is.null",
        "title=not.eq.x",
        "title=isdistinct.x",
        "title=not.is.null",
        "title=not.in.(x,y)",
        "title=not.like.x*",
        "room=is.null",
        "done=is.unknown",
        "done=not.is.true",
        "tags=is.null",
    ];
    let mut bindings = Vec::new();
    for filter in filters {
        bindings.push(filtered("*", "notes", filter));
        bindings.push(filtered("DELETE", "notes", filter));
    }
    let mut two = world.subscriber(&Who::u2(), &bindings).await;
    world
        .run(&format!(
            "insert into notes (id, owner) values (1, '{U1}'), (2, null); update notes set room = 1; update notes set title = '{HUSH}', room = null;
             insert into notes (id, owner, title) values (3, '{U1}', repeat('{HUSH}', 1000)); update notes set amount = 1; delete from notes"
        ))
        .await;
    let frames: Vec<_> = nothing_hidden(&world, &mut two)
        .await
        .into_iter()
        .filter(|frame| frame[4]["code"] != "gap")
        .collect();
    assert_eq!(frames, Vec::<Value>::new());
    world.stop().await;
}
