//! Tokens as a project's own sign-in would make them.

mod signer;

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

pub use jsonwebtoken::Algorithm;
pub use signer::{Signer, key_set};

/// An HS256 token over exactly these claims.
pub fn mint(secret: &str, claims: &Value) -> String {
    encode(
        &Header::new(Algorithm::HS256),
        claims,
        &EncodingKey::from_secret(secret.as_bytes()).unwrap(),
    )
    .unwrap()
}

/// Claims of a role, an hour from expiry.
pub fn claims(role: &str) -> Value {
    json!({ "role": role, "exp": now() + 3600 })
}

/// A signed-in user's claims, an hour from expiry.
pub fn user(sub: &str) -> Value {
    json!({ "role": "authenticated", "sub": sub, "exp": now() + 3600 })
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
