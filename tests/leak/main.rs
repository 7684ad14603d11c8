//! Attacks that were tried on rows, columns, filter values, tokens and the feed itself, one named
//! test each, whether or not the attack ever found anything. A module per target.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod api;
mod columns;
mod feed;
mod filters;
mod payload;
mod rows;
mod support;
mod tokens;
mod wire;
