//! Cross-service tests.
