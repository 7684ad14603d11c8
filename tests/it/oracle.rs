//! Our answers against PostgreSQL's own, on random input.
//!
//! Must never take our own reading of the manual for the expected value: PostgreSQL is asked each time.

mod filters;
mod patterns;
mod policies;
