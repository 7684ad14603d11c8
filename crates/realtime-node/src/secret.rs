//! A text that must never be printed.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

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

    /// Whether a text that somebody sent is this one. How long it takes tells nothing of where they differ:
    /// digests are compared, and whoever guesses cannot steer those.
    pub fn is(&self, sent: &str) -> bool {
        let (own, sent) = (Sha256::digest(self.0.as_bytes()), Sha256::digest(sent.as_bytes()));
        own.iter()
            .zip(sent.iter())
            .fold(0, |differing, (a, b)| differing | (a ^ b))
            == 0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_text_is_the_secret() {
        let secret = Secret::new("hunter2");
        assert!(secret.is("hunter2"));
        for other in ["", "hunter", "hunter22", "Hunter2", "hunter2\0"] {
            assert!(!secret.is(other), "{other:?}");
        }
    }
}
