//! Who a subscriber is: the role and the verified claims of its token.
//!
//! Must never be shown: claims are private, so nothing here prints them.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// A database role that a token names, checked against the project's list before use.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Role(Arc<str>);

/// The role whose subscribers bypass row security, as REST's BYPASSRLS role does.
pub const SERVICE_ROLE: &str = "service_role";

/// The verified payload of a token, and the role it runs as. Cloning shares the text.
#[derive(Clone)]
pub struct Claims {
    role: Role,
    json: Arc<str>,
    fingerprint: Fingerprint,
}

/// Stands for one `(role, claims)`: equal exactly when both are. A cryptographic digest,
/// because two subscribers who shared a fingerprint by chance would share verdicts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

/// Whose sockets and channels an operator means.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Who {
    /// Those of a user: tokens with this `sub`.
    Subject(Arc<str>),
    /// Those of one sign-in of a user: tokens with this `session_id`.
    Session(Arc<str>),
}

impl Role {
    /// A role by its name in the database.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the role that bypasses row security.
    pub fn is_service(&self) -> bool {
        &*self.0 == SERVICE_ROLE
    }
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Role({})", self.0)
    }
}

impl Claims {
    /// Claims from a role and the token's payload as compact JSON, which becomes
    /// `request.jwt.claims` verbatim.
    pub fn new(role: Role, json: impl Into<Arc<str>>) -> Self {
        let json = json.into();
        let mut digest = Sha256::new();
        // The length keeps (role, claims) pairs apart whose concatenation is the same.
        digest.update((role.as_str().len() as u64).to_le_bytes());
        digest.update(role.as_str().as_bytes());
        digest.update(json.as_bytes());
        Self {
            role,
            json,
            fingerprint: Fingerprint(digest.finalize().into()),
        }
    }

    /// The role.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The token's payload, compact JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// What stands for this role and these claims.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claims({:?})", self.role)
    }
}

impl fmt::Debug for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Subject(_) => "Who(subject)",
            Self::Session(_) => "Who(session)",
        })
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint")
    }
}

#[cfg(test)]
mod tests;
