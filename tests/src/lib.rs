//! What cross-service tests and the load generator share.
//!
//! Must never stand in for a part: the services run as their own binaries ([`stack`]), or as tasks of
//! the test's process by the same code ([`world`]).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends what asked for it, and its tasks give back what they did"
)]

pub mod cluster;
pub mod random;
pub mod stack;
pub mod world;
