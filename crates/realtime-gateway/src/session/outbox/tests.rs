use realtime_core::wire::phoenix::{Ref, Serializer};

use super::*;

fn channel(key: u64) -> Arc<ChannelTag> {
    let topic = format!("realtime:c{key}").into();
    Arc::new(ChannelTag {
        key: ChannelKey(key),
        topic,
        join_ref: Ref::text("1"),
        serializer: Serializer::V2,
    })
}

fn outbox(frames_max: usize, bytes_max: usize) -> Outbox {
    let outbox = Outbox::new(OutboxLimits {
        frames_max,
        bytes_max,
    });
    outbox.open(ChannelKey(1), 0);
    outbox.open(ChannelKey(2), 0);
    outbox
}

async fn texts(outbox: &Outbox, frames_max: usize) -> Vec<String> {
    let batch = outbox.next(frames_max, usize::MAX).await;
    assert!(batch.close.is_none());
    batch
        .frames
        .iter()
        .map(|frame| frame.as_str().to_owned())
        .collect()
}

fn is_gap(frame: &str, reason: &str) -> bool {
    frame.contains("\"code\":\"gap\"") && frame.contains(&format!("\"reason\":\"{reason}\""))
}

#[tokio::test]
async fn control_frames_pass_the_backlog() {
    let outbox = outbox(1_000, 1 << 20);
    let a = channel(1);
    for n in 0..500 {
        assert_eq!(
            outbox.push_data(&a, 0, format!("change {n}").into()),
            Pushed::Queued
        );
    }
    assert_eq!(texts(&outbox, 2).await, ["change 0", "change 1"]);
    outbox.push_control("heartbeat".into());
    assert_eq!(texts(&outbox, 2).await, ["heartbeat", "change 2"]);
}

#[tokio::test]
async fn a_full_outbox_drops_until_half_empty_and_then_says_so_once_per_channel() {
    let outbox = outbox(8, 1 << 20);
    let (a, b) = (channel(1), channel(2));
    for n in 0..8 {
        assert_eq!(outbox.push_data(&a, 0, format!("a{n}").into()), Pushed::Queued);
    }
    for _ in 0..3 {
        assert_eq!(outbox.push_data(&a, 0, "lost".into()), Pushed::Dropped);
        assert_eq!(outbox.push_data(&b, 0, "lost".into()), Pushed::Dropped);
    }
    // Some written: not yet half empty, and what comes now is lost too.
    assert_eq!(texts(&outbox, 3).await, ["a0", "a1", "a2"]);
    assert_eq!(outbox.push_data(&a, 0, "lost".into()), Pushed::Dropped);
    assert_eq!(texts(&outbox, 1).await, ["a3"]);
    // Half empty: the notices stand behind what waited and before what comes.
    assert_eq!(outbox.push_data(&a, 0, "after".into()), Pushed::Queued);
    let rest = texts(&outbox, 10).await;
    assert_eq!(
        [rest[0].as_str(), rest[3].as_str(), rest[6].as_str()],
        ["a4", "a7", "after"]
    );
    assert!(is_gap(&rest[4], "slow_reader") && rest[4].contains("realtime:c1"));
    assert!(is_gap(&rest[5], "slow_reader") && rest[5].contains("realtime:c2"));
    assert_eq!(rest.len(), 7);
    assert_eq!(outbox.waiting(), (0, 0));
}

#[tokio::test]
async fn bytes_are_bounded_but_one_large_frame_passes_an_empty_queue() {
    let outbox = outbox(100, 10);
    let a = channel(1);
    assert_eq!(
        outbox.push_data(&a, 0, "longer than ten bytes".into()),
        Pushed::Queued
    );
    assert_eq!(outbox.push_data(&a, 0, "x".into()), Pushed::Dropped);
    assert_eq!(texts(&outbox, 1).await, ["longer than ten bytes"]);
    assert!(is_gap(&texts(&outbox, 9).await[0], "slow_reader"));
}

#[tokio::test]
async fn a_gap_during_an_overflow_merges_with_the_notice_that_is_owed() {
    let outbox = outbox(2, 1 << 20);
    let a = channel(1);
    outbox.push_gap(&a, GapReason::Deadline);
    outbox.push_data(&a, 0, "a".into());
    outbox.push_data(&a, 0, "lost".into());
    outbox.push_gap(&a, GapReason::Deadline);
    let first = texts(&outbox, 9).await;
    assert!(is_gap(&first[0], "deadline") && first[1] == "a" && first.len() == 2);
    let rest = texts(&outbox, 9).await;
    assert!(is_gap(&rest[0], "slow_reader") && rest.len() == 1);
}

#[tokio::test]
async fn what_waits_for_a_closed_channel_is_taken_back() {
    let outbox = outbox(3, 1 << 20);
    let (a, b) = (channel(1), channel(2));
    for frame in ["1", "2"] {
        outbox.push_data(&a, 0, frame.into());
    }
    outbox.push_data(&b, 0, "3".into());
    outbox.push_data(&a, 0, "lost".into());
    assert_eq!(outbox.purge(a.key), 2);
    assert_eq!(outbox.waiting(), (1, 1));
    // Its notice went with it; the other channel goes on.
    assert_eq!(texts(&outbox, 9).await, ["3"]);
    assert_eq!(outbox.push_data(&b, 0, "4".into()), Pushed::Queued);
    assert_eq!(texts(&outbox, 9).await, ["4"]);
}

#[tokio::test]
async fn a_close_lets_control_frames_go_first_and_changes_not_at_all() {
    let outbox = outbox(10, 1 << 20);
    let a = channel(1);
    outbox.push_data(&a, 0, "change".into());
    outbox.push_control("reply".into());
    outbox.close(CloseReason {
        code: 1012,
        reason: "restart",
    });
    outbox.close(CloseReason {
        code: 1013,
        reason: "later",
    });
    assert_eq!(outbox.push_data(&a, 0, "change".into()), Pushed::Closed);
    let batch = outbox.next(9, usize::MAX).await;
    assert_eq!((batch.frames.len(), batch.close.unwrap().code), (1, 1012));
}

#[tokio::test]
async fn replies_that_nobody_reads_end_the_socket() {
    let outbox = outbox(10, 1 << 20);
    for _ in 0..=CONTROL_FRAMES_MAX {
        outbox.push_control("reply".into());
    }
    let batch = outbox.next(9, usize::MAX).await;
    assert_eq!(
        (batch.frames.len(), batch.close.unwrap().code),
        (CONTROL_FRAMES_MAX, 1013)
    );
}

#[tokio::test]
async fn replies_that_are_not_read_are_limited_by_their_bytes_too() {
    let outbox = outbox(1_000, 100_000);
    // One that is larger than the limit by itself is the client's own doing, and passes.
    outbox.push_control("x".repeat(150_000).into());
    assert_eq!(texts(&outbox, 10).await.len(), 1);
    for _ in 0..4 {
        outbox.push_control("x".repeat(25_000).into());
    }
    assert_eq!(texts(&outbox, 10).await.len(), 4);
    for _ in 0..5 {
        outbox.push_control("x".repeat(25_000).into());
    }
    let batch = outbox.next(10, usize::MAX).await;
    assert_eq!(
        (batch.frames.len(), batch.close.map(|close| close.code)),
        (4, Some(1013))
    );
}

#[tokio::test]
async fn nothing_comes_for_a_channel_that_is_over_or_an_identity_that_it_gave_back() {
    let outbox = outbox(8, 1 << 20);
    let (a, b) = (channel(1), channel(2));
    // The session says that it is over before the feed has heard.
    outbox.push_data(&a, 0, "waits".into());
    outbox.shut(a.key);
    assert_eq!(outbox.push_data(&a, 7, "late".into()), Pushed::Stale);
    outbox.push_gap(&a, GapReason::SlowReader);
    // Opened again for another identity, while the feed still delivers to the first.
    outbox.open(a.key, 2);
    assert_eq!(outbox.push_data(&a, 1, "of the first".into()), Pushed::Stale);
    assert_eq!(outbox.push_data(&a, 2, "of the second".into()), Pushed::Queued);
    // Another identity of the same role.
    outbox.push_data(&b, 0, "decided before".into());
    outbox.open(b.key, 1);
    assert_eq!(
        outbox.push_data(&b, 0, "decided for the old".into()),
        Pushed::Stale
    );
    assert_eq!(outbox.push_data(&b, 1, "sentinel".into()), Pushed::Queued);
    assert_eq!(
        texts(&outbox, 9).await,
        ["of the second", "decided before", "sentinel"]
    );
}
