//! One socket: what it joined, what waits for it, and the two loops that move its bytes.
//!
//! Must never block a feed: a session takes frames into a bounded outbox, or misses them with a notice.

pub mod channel;
pub mod mail;
pub mod outbox;
pub mod socket;
pub mod state;

/// A session within this gateway; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);
