//! Where a project's envelopes come from.
//!
//! One trait, so that a durable source can stand beside NOTIFY. A source must always take what its session sends, and
//! must say in place what it could not keep.

mod notify;

use std::future::Future;

pub use notify::{Beats, NotifySource, start};

/// What a source yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// The text of one envelope.
    Envelope(String),
    /// So many envelopes were dropped at this place, because the feed took them too slowly.
    Lost(u64),
}

/// A source of envelopes, in commit order.
pub trait Source: Send {
    /// The next item; `None` once the session behind it has ended. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<Item>> + Send;
}
