//! The provisioning SQL and the listener, against real PostgreSQL and a real bus.

mod attack;
mod ddl;
mod feed;
mod fidelity;
mod provision;
mod support;
mod write_path;
