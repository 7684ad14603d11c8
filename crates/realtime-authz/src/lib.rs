//! Who may see which row: judges events for subjects under the database's own row-level
//! security, and tells what a table is. Owns every connection that asks on behalf of a subscriber.
//!
//! Must never deliver without an answer: whatever is late, lost, refused or strange is a drop with
//! its reason. And must never be reachable by anybody but gateways: off loopback only with
//! mutual TLS.

pub mod args;
pub mod check;
pub mod gate;
pub mod metrics;
pub mod policy;
pub mod pools;
pub mod probe;
pub mod projects;
pub mod server;
pub mod service;
pub mod settings;
pub mod tables;

pub use args::{AuthzArgs, LimitArgs};
pub use server::{AuthzServer, run};
