//! News from a feed to a session: which of its channels are live.
//!
//! Must never lose news nor grow: there is at most one entry per channel, and the latest says it all.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::channel::ChannelKey;

/// A session's mailbox.
#[derive(Debug, Default)]
pub struct Mail {
    live: Mutex<BTreeMap<ChannelKey, u64>>,
    arrived: Notify,
}

impl Mail {
    /// Says that a channel is live under its `generation`-th identity.
    pub fn live(&self, channel: ChannelKey, generation: u64) {
        self.live.lock().insert(channel, generation);
        self.arrived.notify_one();
    }

    /// Waits until there is news, and takes all of it.
    pub async fn take(&self) -> BTreeMap<ChannelKey, u64> {
        loop {
            let news = std::mem::take(&mut *self.live.lock());
            if !news.is_empty() {
                return news;
            }
            self.arrived.notified().await;
        }
    }
}
