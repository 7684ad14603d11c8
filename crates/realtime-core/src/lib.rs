//! What things **mean**: ids, change events, filters, claims, the subscription index, the way
//! from a verdict to a view, and the wire frames of every face.
//!
//! This crate must never perform I/O, spawn anything, or read a clock (invariant 1): every
//! function is a pure function of its arguments, so that each rule can be tested by itself.

pub mod change;
pub mod claims;
pub mod code;
pub mod envelope;
pub mod filter;
pub mod id;
pub mod index;
pub mod pattern;
pub mod subject;
pub mod table;
pub mod value;
pub mod verdict;
pub mod view;
pub mod wire;
