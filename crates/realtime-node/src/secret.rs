//! A text that must never be printed.

use std::fmt;
use std::sync::Arc;

/// A password, token secret or the like. `Debug` shows nothing of it; there is no `Display`.
#[derive(Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "String")]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// 128 random bits from the system, as 32 hex digits.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn random() -> anyhow::Result<Self> {
        let mut bytes = [0u8; 16];
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut bytes)
            .map_err(|_| anyhow::anyhow!("the system gives no randomness"))?;
        Ok(Self::new(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        ))
    }

    /// The text itself, for the one call that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
