//! What becomes of a login's password.
//!
//! Must never let a clear text reach the database: it computes the verifier here.

use std::fmt;

use super::ProvisionError;

/// A login's password, as the caller of `provision` gives it.
#[derive(Default)]
pub enum Password {
    /// Leave it as it is; a new role has none and cannot log in with one.
    #[default]
    Keep,
    /// A `SCRAM-SHA-256$…` verifier.
    Verifier(String),
    /// Make one of 244 random bits; the report carries it.
    Generate,
}

pub(super) struct Resolved {
    pub(super) verifier: String,
    pub(super) clear: Option<String>,
}

impl Password {
    /// The verifier of a clear text.
    pub fn of(clear: &str) -> Self {
        Self::Verifier(postgres_protocol::password::scram_sha_256(clear.as_bytes()))
    }

    /// `random` becomes the password where one is to be made.
    pub(super) fn resolve(self, random: String) -> Result<Option<Resolved>, ProvisionError> {
        match self {
            Self::Keep => Ok(None),
            Self::Verifier(verifier) if is_verifier(&verifier) => Ok(Some(Resolved {
                verifier,
                clear: None,
            })),
            Self::Verifier(_) => Err(ProvisionError::NotAVerifier),
            Self::Generate => {
                let verifier = postgres_protocol::password::scram_sha_256(random.as_bytes());
                Ok(Some(Resolved {
                    verifier,
                    clear: Some(random),
                }))
            }
        }
    }
}

/// The form that PostgreSQL stores; nothing in it can end a quoted literal.
fn is_verifier(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"$:+/=-".contains(&b);
    text.starts_with("SCRAM-SHA-256$") && text.bytes().all(allowed)
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::Verifier(_) => "Verifier(..)",
            Self::Generate => "Generate",
        })
    }
}
