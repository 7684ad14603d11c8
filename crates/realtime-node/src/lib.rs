//! What every **process** needs: arguments, telemetry, metrics, the admin server, tasks and
//! drain, the bus, PostgreSQL connections, the project catalog.
//!
//! Must never know what a message means: that is `realtime_core`, and how it is laid out
//! between processes is `realtime_proto`.

pub mod admin;
pub mod args;
pub mod backoff;
pub mod bus;
pub mod catalog;
pub mod fetch;
pub mod metrics;
pub mod postgres;
pub mod process;
pub mod secret;
pub mod tasks;
pub mod telemetry;
mod tls;
