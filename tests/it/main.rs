//! Tests that no single crate can hold: the bus on both its implementations, the workspace's own
//! rules, the oracles, and the services as processes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bus;
mod case_list;
mod clients;
mod cold;
mod config_table;
mod consumers;
mod dev;
mod feed;
mod layers;
mod logins;
mod management;
mod oracle;
mod oversized;
mod postgres18;
mod project_file;
mod readme;
mod restart;
mod secrets;
mod telemetry;
