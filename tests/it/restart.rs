//! Unmodified SDKs over the end of a gateway.

use std::path::Path;
use std::process::Stdio;

use realtime_testkit::wait::within;
use realtime_tests::stack::{JWT_SECRET, Stack};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// `printf %s sb_publishable_restart | sha256sum`
const KEY_SHA256: &str = "517c7a7a91c2fb682a50f2948b52b40a9c6f8fd7b4815b26ec44906905da6998";
const KEY: &str = "sb_publishable_restart";

/// An SDK that follows a table, in a process of its own.
struct Follower {
    name: &'static str,
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(name: &'static str, program: &str, script: &str, port: u16) -> Self {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let mut child = Command::new(program)
            .arg(clients.join(script))
            .arg("followed")
            .env("ANVILBASE_URL", format!("http://127.0.0.1:{port}"))
            .env("ANVILBASE_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            name,
            _child: child,
            lines,
        }
    }

    /// Reads until the SDK says this, and gives what it said before.
    async fn until(&mut self, line: &str) -> Vec<String> {
        let mut before = Vec::new();
        within(&format!("{}: {line}", self.name), async {
            loop {
                let said = self.lines.next_line().await.unwrap();
                let said = said.unwrap_or_else(|| panic!("{} ended: {before:?}", self.name));
                if said == line {
                    return;
                }
                before.push(said);
            }
        })
        .await;
        before
    }
}

#[tokio::test]
async fn i12_sdks_come_back_after_a_gateway_was_replaced_and_get_the_next_change() {
    let mut stack = Stack::start(1).await;
    stack.set_tokens(&format!(
        "[tokens]\njwt_secret = \"{JWT_SECRET}\"\n[[tokens.keys]]\nrole = \"anon\"\nsha256 = \"{KEY_SHA256}\"\n"
    ));
    let client = stack.postgres.connect("postgres").await;
    client
        .batch_execute(
            "create table followed (id int primary key);
             alter table followed enable row level security;
             create policy everybody on followed for select to anon using (true)",
        )
        .await
        .unwrap();
    let port = stack.gateways[0].port;
    stack.wait_for_key(KEY).await;
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    // A key of the newer kind, as their users have it: SDKs send it as access token too.
    let mut followers = [
        Follower::start("supabase-js", "node", "js/follow.mjs", port),
        Follower::start("realtime-py", python.to_str().unwrap(), "python/follow.py", port),
    ];
    for follower in &mut followers {
        follower.until("live").await;
    }
    for (id, signal) in [(1, "TERM"), (2, "KILL")] {
        client
            .execute("insert into followed values ($1)", &[&(10 * id)])
            .await
            .unwrap();
        for follower in &mut followers {
            follower.until(&format!("row {}", 10 * id)).await;
        }
        stack.replace_gateway(0, signal).await;
        for follower in &mut followers {
            follower.until("live").await;
        }
        client
            .execute("insert into followed values ($1)", &[&(10 * id + 1)])
            .await
            .unwrap();
        for follower in &mut followers {
            let before = follower.until(&format!("row {}", 10 * id + 1)).await;
            assert!(
                !before.iter().any(|line| line.starts_with("row")),
                "{}: {before:?}",
                follower.name
            );
        }
    }
    drop(followers);
    stack.stop(&[KEY]).await;
}
