//! Holds one database session per project and turns its notifications into events on the bus.
//!
//! Must never publish a project's event except while the session that it came from holds that project's lock
//! (invariant 5), and must never name a table, a role or a value of a project in a log line.

pub mod provision;
