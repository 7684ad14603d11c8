//! Tests that need more than one crate, or a real database or bus.

mod oracle;
