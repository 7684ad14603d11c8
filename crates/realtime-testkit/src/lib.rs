//! Real PostgreSQL and NATS processes for tests, a WebSocket client with sentinels, tokens, and
//! the built binaries of the services.
//!
//! Must never stand in for a part: what a test names is started for real. Every wait here is for
//! a condition, with a deadline.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken fixture ends the test that asked for it"
)]

pub mod jwks;
pub mod nats;
pub mod pgbouncer;
pub mod postgres;
pub mod process;
pub mod tokens;
pub mod wait;
pub mod ws;
