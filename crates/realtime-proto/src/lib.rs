//! How meaning **travels between our processes**: generated messages and services, and the
//! conversions between them and `realtime_core`.
//!
//! Must never decide anything: a message that does not convert is an error, and nothing is
//! filled in by guesswork.

#[cfg(feature = "convert")]
pub mod convert;

/// The generated messages and services of `anvilbase.realtime.v1`.
#[allow(missing_docs, clippy::all, clippy::unwrap_used, clippy::expect_used)]
pub mod v1 {
    include!("gen/anvilbase.realtime.v1.rs");
}
