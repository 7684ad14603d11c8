//! The provisioning SQL and the listener, against real PostgreSQL and a real bus.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken fixture ends its test"
)]

mod attack;
mod budget;
mod ddl;
mod feed;
mod fidelity;
mod hardening;
mod provision;
mod refusals;
mod replicas;
mod support;
mod write_path;
mod writes;
