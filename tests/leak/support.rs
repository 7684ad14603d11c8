//! What the attacks share.

use realtime_tests::world::{Socket, Who, World, binding};
use serde_json::{Value, json};

/// What every hidden row carries: it must be in no frame of anybody who may not see it.
pub const HUSH: &str = "hush-7d1f";

/// A socket with one unfiltered binding on a table.
pub async fn follow(world: &World, who: &Who, table: &str) -> Socket {
    world.subscriber(who, &[binding("*", table)]).await
}

/// A table of which `authenticated` may read `id` and `word` but not `secret`, and what U1 gets of it.
pub async fn half_open(world: &World) -> Socket {
    world
        .run(
            "create table docs (id int primary key, word text, secret text); alter table docs enable row level security;
             create policy p on docs for select using (true);
             revoke select on docs from authenticated; grant select (id, word) on docs to authenticated",
        )
        .await;
    follow(world, &Who::u1(), "docs").await
}

/// All frames before a sentinel. None of them may hold [`HUSH`].
pub async fn nothing_hidden(world: &World, socket: &mut Socket) -> Vec<Value> {
    let frames = world.frames(socket).await;
    for frame in &frames {
        assert!(!frame.to_string().contains(HUSH), "a hidden value: {frame}");
    }
    frames
}

/// The changes among frames: type, table and the `id` of the row.
pub fn brief(frames: &[Value]) -> Vec<String> {
    let changes = frames.iter().filter(|frame| frame[3] == "postgres_changes");
    changes
        .map(|frame| {
            let data = &frame[4]["data"];
            let row = if data["new"].is_null() {
                &data["old"]
            } else {
                &data["new"]
            };
            format!(
                "{} {} {}",
                data["type"].as_str().unwrap(),
                data["table"].as_str().unwrap(),
                row["id"]
            )
        })
        .collect()
}

/// That the frames are no more than gap notices.
pub fn only_gaps(frames: &[Value]) {
    for frame in frames {
        assert_eq!(frame[3], "system", "{frame}");
        assert_eq!(frame[4]["code"], json!("gap"), "{frame}");
    }
}
