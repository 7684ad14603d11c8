//! What waits to be written to one socket.
//!
//! Must never grow without bound nor lose a change silently: when it is full, changes are
//! dropped until half of it is written, and then each channel that missed some gets one notice.
//! Must never take a change for a channel that is over, or for an identity that it gave back: the
//! session says so here at once, and the feed hears of it when it comes to it.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use parking_lot::Mutex;
use realtime_core::code::GapReason;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::channel::{ChannelKey, ChannelTag};

/// Replies and notices that may wait; a client that asks for more without reading is cut off.
const CONTROL_FRAMES_MAX: usize = 1_024;

/// A socket's queues: control frames in a lane of their own, ahead of changes.
pub struct Outbox {
    limits: OutboxLimits,
    queues: Mutex<Queues>,
    filled: Notify,
}

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub struct OutboxLimits {
    /// Change frames.
    pub frames_max: usize,
    /// Their bytes, and apart from them those of replies and notices.
    pub bytes_max: usize,
}

/// What became of a change frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It waits.
    Queued,
    /// There was no room: the channel is owed a notice.
    Dropped,
    /// The channel is over, suspended, or goes on under another identity than this was decided for.
    Stale,
    /// The session is over.
    Closed,
}

/// Why the server ends a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseReason {
    /// The WebSocket close code; never 1000 or 1001, after which some clients stay away.
    pub code: u16,
    /// A sentence.
    pub reason: &'static str,
}

/// What to write next.
#[derive(Debug, Default)]
pub struct Batch {
    /// Frames in their order.
    pub frames: Vec<Utf8Bytes>,
    /// The socket ends after them.
    pub close: Option<CloseReason>,
}

#[derive(Default)]
struct Queues {
    control: VecDeque<Utf8Bytes>,
    control_bytes: usize,
    data: VecDeque<Entry>,
    data_bytes: usize,
    /// Full, and not yet half empty again.
    paused: bool,
    /// Channels that take changes, each with the oldest of its identities that they may be decided for: as many as a
    /// socket may have channels.
    open: FxHashMap<ChannelKey, u64>,
    /// Channels that missed changes since.
    owed: Vec<(Arc<ChannelTag>, GapReason)>,
    close: Option<CloseReason>,
}

struct Entry {
    channel: ChannelKey,
    frame: Utf8Bytes,
}

impl Outbox {
    /// An empty outbox.
    pub fn new(limits: OutboxLimits) -> Self {
        Self {
            limits,
            queues: Mutex::default(),
            filled: Notify::new(),
        }
    }

    /// Adds a reply or a notice, which goes out ahead of waiting changes. A client that
    /// lets too many pile up is closed with 1013.
    pub fn push_control(&self, frame: Utf8Bytes) {
        let mut queues = self.queues.lock();
        if queues.close.is_none() {
            let bytes = queues.control_bytes + frame.len();
            // A reply larger than the whole limit still passes an empty queue, as a change does.
            let fits = queues.control.is_empty() || bytes <= self.limits.bytes_max;
            if fits && queues.control.len() < CONTROL_FRAMES_MAX {
                queues.control_bytes = bytes;
                queues.control.push_back(frame);
            } else {
                queues.end(CloseReason {
                    code: 1013,
                    reason: "replies are not read: try again later",
                });
            }
        }
        drop(queues);
        self.filled.notify_one();
    }

    /// Takes changes for a channel from now on: those decided for its identity of this generation, or a later one.
    pub fn open(&self, channel: ChannelKey, generation: u64) {
        self.queues.lock().open.insert(channel, generation);
    }

    /// Takes nothing for a channel until it is opened again, and takes back what waits: it is over, or suspended.
    pub fn shut(&self, channel: ChannelKey) {
        let mut queues = self.queues.lock();
        queues.open.remove(&channel);
        queues.purge(channel);
    }

    /// Adds a change, or a notice that must keep its place among changes, that was decided for the channel's identity
    /// of this generation.
    pub fn push_data(&self, channel: &Arc<ChannelTag>, generation: u64, frame: Utf8Bytes) -> Pushed {
        let mut queues = self.queues.lock();
        let pushed = queues.push(&self.limits, channel, generation, frame);
        drop(queues);
        self.filled.notify_one();
        pushed
    }

    /// Adds a gap notice in its place among changes. While changes are being dropped the
    /// channel is owed a notice anyway, and this one merges with it.
    pub fn push_gap(&self, channel: &Arc<ChannelTag>, reason: GapReason) {
        let mut queues = self.queues.lock();
        if queues.close.is_none() && queues.open.contains_key(&channel.key) {
            if queues.paused {
                queues.owe(channel, reason);
            } else {
                queues.queue(channel.key, channel.gap(reason));
            }
        }
        drop(queues);
        self.filled.notify_one();
    }

    /// Takes back what waits for a channel. Returns how many frames that were.
    pub fn purge(&self, channel: ChannelKey) -> usize {
        self.queues.lock().purge(channel)
    }

    /// Ends the socket after the control frames that wait. The first reason stands.
    pub fn close(&self, reason: CloseReason) {
        let mut queues = self.queues.lock();
        queues.end(reason);
        drop(queues);
        self.filled.notify_one();
    }

    /// Waits for something to write, and takes it: all control frames, then changes up to
    /// `frames_max` frames and about `bytes_max` bytes. For one caller only.
    pub async fn next(&self, frames_max: usize, bytes_max: usize) -> Batch {
        loop {
            let batch = self.queues.lock().take(&self.limits, frames_max, bytes_max);
            if !batch.frames.is_empty() || batch.close.is_some() {
                return batch;
            }
            self.filled.notified().await;
        }
    }

    /// How many frames and bytes of changes wait.
    pub fn waiting(&self) -> (usize, usize) {
        let queues = self.queues.lock();
        (queues.data.len(), queues.data_bytes)
    }
}

impl Queues {
    fn push(
        &mut self,
        limits: &OutboxLimits,
        channel: &Arc<ChannelTag>,
        generation: u64,
        frame: Utf8Bytes,
    ) -> Pushed {
        if self.close.is_some() {
            return Pushed::Closed;
        }
        let oldest = self.open.get(&channel.key);
        if oldest.is_none_or(|oldest| generation < *oldest) {
            return Pushed::Stale;
        }
        let full = self.data.len() >= limits.frames_max || self.data_bytes + frame.len() > limits.bytes_max;
        // One frame larger than the whole limit still passes an empty queue: it could never pass otherwise.
        if self.paused || (full && !self.data.is_empty()) {
            self.paused = true;
            self.owe(channel, GapReason::SlowReader);
            return Pushed::Dropped;
        }
        self.queue(channel.key, frame);
        Pushed::Queued
    }

    fn queue(&mut self, channel: ChannelKey, frame: Utf8Bytes) {
        self.data_bytes += frame.len();
        self.data.push_back(Entry { channel, frame });
    }

    fn purge(&mut self, channel: ChannelKey) -> usize {
        let before = self.data.len();
        self.data.retain(|entry| entry.channel != channel);
        self.data_bytes = self.data.iter().map(|entry| entry.frame.len()).sum();
        self.owed.retain(|(tag, _)| tag.key != channel);
        before - self.data.len()
    }

    fn owe(&mut self, channel: &Arc<ChannelTag>, reason: GapReason) {
        if !self.owed.iter().any(|(tag, _)| tag.key == channel.key) {
            self.owed.push((Arc::clone(channel), reason));
        }
    }

    fn end(&mut self, reason: CloseReason) {
        self.close.get_or_insert(reason);
        self.data.clear();
        self.data_bytes = 0;
        self.owed.clear();
    }

    fn take(&mut self, limits: &OutboxLimits, frames_max: usize, bytes_max: usize) -> Batch {
        let mut frames: Vec<Utf8Bytes> = self.control.drain(..).collect();
        self.control_bytes = 0;
        let mut bytes = 0;
        while frames.len() < frames_max && bytes < bytes_max {
            let Some(entry) = self.data.pop_front() else { break };
            bytes += entry.frame.len();
            self.data_bytes -= entry.frame.len();
            frames.push(entry.frame);
        }
        let half_empty = self.data.len() <= limits.frames_max / 2 && self.data_bytes <= limits.bytes_max / 2;
        if self.paused && half_empty {
            self.paused = false;
            for (tag, reason) in std::mem::take(&mut self.owed) {
                self.queue(tag.key, tag.gap(reason));
            }
        }
        Batch {
            frames,
            close: self.close,
        }
    }
}

/// Frames are private: only the counts are shown.
impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (frames, bytes) = self.waiting();
        write!(f, "Outbox({frames} frames, {bytes} bytes)")
    }
}

#[cfg(test)]
mod tests;
