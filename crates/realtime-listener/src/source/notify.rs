//! LISTEN/NOTIFY: the session's socket is read by a task of its own, whatever the feed does.
//!
//! Must never wait for the feed before it reads on: a listener that does not read fills the server's queue, and then
//! every writer of the cluster fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use realtime_node::postgres::PgConnection;
use realtime_node::tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio_postgres::AsyncMessage;

use super::{Item, Source};

/// How a heartbeat's envelope ends; no other operation's does.
const HEARTBEAT_END: &str = r#","o":"H"}"#;

/// Envelopes of one session, from a bounded queue. Ends with its session: what is still queued then is dropped, for
/// another listener may hold the feed already.
#[derive(Debug)]
pub struct NotifySource {
    queue: mpsc::Receiver<Item>,
    ended: Arc<AtomicBool>,
}

/// The last heartbeat that came back on a session; empty before the first one.
pub type Beats = watch::Receiver<String>;

/// Reads a connection until it ends; at most `capacity` envelopes wait.
pub fn start(connection: PgConnection, capacity: usize, tasks: &Tasks) -> (NotifySource, Beats) {
    let (sender, queue) = mpsc::channel(capacity.max(1));
    let (beat, beats) = watch::channel(String::new());
    let ended = Arc::new(AtomicBool::new(false));
    let source = NotifySource {
        queue,
        ended: Arc::clone(&ended),
    };
    tasks.spawn("feed source", async move {
        let mut intake = Intake {
            queue: sender,
            lost: 0,
        };
        read(connection, &mut intake, beat).await;
        // Before the queue closes with the intake, so that nothing is taken from it afterwards.
        ended.store(true, Ordering::Release);
    });
    (source, beats)
}

impl Source for NotifySource {
    async fn next(&mut self) -> Option<Item> {
        let item = self.queue.recv().await;
        if self.ended.load(Ordering::Acquire) {
            None
        } else {
            item
        }
    }
}

async fn read(mut connection: PgConnection, intake: &mut Intake, beat: watch::Sender<String>) {
    loop {
        let message = tokio::select! {
            message = connection.next_message() => message,
            true = intake.settle() => continue,
        };
        match message {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                // Past the queue: a slow bus must not pass for a dead session.
                if notification.payload().ends_with(HEARTBEAT_END) {
                    beat.send_replace(notification.payload().to_owned());
                } else {
                    intake.take(notification.payload().to_owned());
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::warn!(
                    error = realtime_node::postgres::describe(&error),
                    "a feed's session broke"
                );
                return;
            }
            None => return,
        }
    }
}

/// The near end of the queue: never waits with an envelope in hand.
struct Intake {
    queue: mpsc::Sender<Item>,
    /// Dropped since the queue was last full. While it is not 0, everything is dropped until half of the queue is
    /// free again: each loss makes clients read anew, so one long hole is better than a thousand short ones.
    lost: u64,
}

impl Intake {
    fn take(&mut self, envelope: String) {
        if self.lost > 0 && self.queue.capacity() >= self.room() {
            self.note();
        }
        if self.lost > 0 || self.queue.try_send(Item::Envelope(envelope)).is_err() {
            self.lost += 1;
        }
    }

    /// Notes a loss as soon as half of the queue is free; waits for ever without a loss.
    async fn settle(&mut self) -> bool {
        if self.lost == 0 || self.queue.reserve_many(self.room()).await.is_err() {
            // Nothing to note, or nobody to note it for.
            return std::future::pending().await;
        }
        self.note();
        true
    }

    fn note(&mut self) {
        if self.queue.try_send(Item::Lost(self.lost)).is_ok() {
            self.lost = 0;
        }
    }

    fn room(&self) -> usize {
        (self.queue.max_capacity() / 2).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(text: &str) -> Item {
        Item::Envelope(text.to_owned())
    }

    #[tokio::test]
    async fn a_full_queue_drops_until_half_of_it_is_free_and_says_so_in_place() {
        let (queue, mut out) = mpsc::channel(4);
        let mut intake = Intake { queue, lost: 0 };
        let took = |out: &mut mpsc::Receiver<Item>, count| {
            let items: Vec<Item> = std::iter::from_fn(|| out.try_recv().ok()).take(count).collect();
            items
        };
        for text in ["a", "b", "c", "d", "e", "f"] {
            intake.take(text.to_owned());
        }
        assert_eq!(took(&mut out, 1), [envelope("a")]);
        intake.take("g".to_owned());
        assert_eq!(took(&mut out, 1), [envelope("b")]);
        // "e", "f" and "g" had no room; "h" goes behind the note of that.
        intake.take("h".to_owned());
        assert_eq!(
            took(&mut out, 9),
            [envelope("c"), envelope("d"), Item::Lost(3), envelope("h")]
        );
        for text in ["i", "j", "k", "l", "m"] {
            intake.take(text.to_owned());
        }
        assert_eq!(took(&mut out, 2), [envelope("i"), envelope("j")]);
        assert!(intake.settle().await);
        assert_eq!(took(&mut out, 9), [envelope("k"), envelope("l"), Item::Lost(1)]);
    }
}
