//! The frames of every face, to and from the bytes on the wire.
//!
//! Must never take a row from anywhere but a [`View`](crate::view::View): without a verdict
//! there is nothing to encode (invariant 2).

pub mod phoenix;
