//! Tokens: who a key or an access token says its bearer is.
//!
//! Must never accept an algorithm that the project did not choose, nor put a token or a claim
//! into an error (invariant 10). Reads no clock: the time is an argument.

use std::fmt;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{AlgorithmFamily, DecodingKey, Validation};
use realtime_core::claims::{Claims, Role};
use realtime_core::code::Code;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Checks the tokens of one project: HMAC signatures (HS256, HS384, HS512) by its secret, roles
/// by its list.
pub struct Verifier {
    key: DecodingKey,
    validation: Validation,
    roles: Vec<Role>,
    token_bytes_max: usize,
}

/// Who a verified token speaks for, and until when.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Role and claims.
    pub claims: Claims,
    /// When the token ends, in milliseconds since 1970.
    pub expires_at_ms: u64,
}

/// Why a token is refused: a code that SDKs know, and a sentence without any part of the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct TokenError {
    /// The code.
    pub code: Code,
    /// The sentence, as it stands alone in a `system` frame.
    pub message: String,
}

/// The project's secret cannot be a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("jwt_secret: cannot be used as an HMAC key")]
pub struct BadSecret;

#[derive(Deserialize)]
struct Required<'a> {
    #[serde(borrow, default)]
    role: Option<&'a RawValue>,
    #[serde(borrow, default)]
    exp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    nbf: Option<&'a RawValue>,
}

impl Verifier {
    /// A verifier by a project's secret and the roles that its tokens may name, of tokens up to
    /// `token_bytes_max` bytes.
    pub fn new(secret: &[u8], roles: &[Role], token_bytes_max: u32) -> Result<Self, BadSecret> {
        let mut validation = Validation::new_for_family(AlgorithmFamily::Hmac);
        // Times and claims are checked below, against the caller's clock.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let key = DecodingKey::from_secret(secret).map_err(|_| BadSecret)?;
        Ok(Self {
            key,
            validation,
            roles: roles.to_vec(),
            token_bytes_max: token_bytes_max as usize,
        })
    }

    /// Checks a token at a time, given in milliseconds since 1970.
    ///
    /// # Errors
    /// The token is too long, malformed, not signed by this project, lacks `role` or `exp`, is past its
    /// end, or names a role that the project does not let tokens name.
    pub fn verify(&self, token: &str, now_ms: u64) -> Result<Identity, TokenError> {
        if token.len() > self.token_bytes_max {
            let message = format!("The token is longer than {} bytes", self.token_bytes_max);
            return Err(invalid(&message));
        }
        let token: String = token.split_whitespace().collect();
        let decoded = jsonwebtoken::decode::<Box<RawValue>>(&token, &self.key, &self.validation);
        let claims = decoded.map_err(|error| refusal(error.kind()))?.claims;
        let required: Required<'_> = serde_json::from_str(claims.get()).map_err(|_| malformed())?;
        let role: Option<String> = required.role.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let (Some(role), Some(exp)) = (role.filter(|role| !role.is_empty()), required.exp) else {
            return Err(invalid("Fields `role` and `exp` are required in JWT"));
        };
        let expires_at_ms = milliseconds(exp).ok_or_else(|| invalid("Token expiration time is invalid"))?;
        if now_ms >= expires_at_ms {
            return Err(expired(expires_at_ms, now_ms));
        }
        if let Some(nbf) = required.nbf {
            let from_ms = milliseconds(nbf).ok_or_else(|| invalid("Token start time is invalid"))?;
            if now_ms < from_ms {
                return Err(invalid("Token is not valid yet"));
            }
        }
        let role = self
            .roles
            .iter()
            .find(|known| known.as_str() == role)
            .ok_or_else(|| TokenError {
                code: Code::Unauthorized,
                message: "The token's role is not allowed in this project".into(),
            })?;
        Ok(Identity {
            claims: Claims::new(role.clone(), claims.get()),
            expires_at_ms,
        })
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({} roles)", self.roles.len())
    }
}

impl Identity {
    /// The error of a token that has ended, or nothing while it holds.
    pub fn expiry(&self, now_ms: u64) -> Option<TokenError> {
        (now_ms >= self.expires_at_ms).then(|| expired(self.expires_at_ms, now_ms))
    }
}

/// The project that a key names by its `ref` or `project` claim. Not verified: it only decides
/// whose secret the key is then checked by.
pub fn named_project(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default, rename = "ref")]
        reference: Option<String>,
        #[serde(default)]
        project: Option<String>,
    }
    let token: String = token.split_whitespace().collect();
    let named = jsonwebtoken::dangerous::insecure_decode::<Named>(&token)
        .ok()?
        .claims;
    named.reference.or(named.project)
}

fn expired(expires_at_ms: u64, now_ms: u64) -> TokenError {
    let ago = now_ms.saturating_sub(expires_at_ms) / 1_000;
    invalid(&format!("Token has expired {ago} seconds ago"))
}

fn invalid(message: &str) -> TokenError {
    TokenError {
        code: Code::InvalidJwtToken,
        message: message.into(),
    }
}

fn malformed() -> TokenError {
    TokenError {
        code: Code::MalformedJwt,
        message: "The token provided is not a valid JWT".into(),
    }
}

fn refusal(kind: &ErrorKind) -> TokenError {
    match kind {
        ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => TokenError {
            code: Code::JwtSignatureError,
            message: "Failed to validate JWT signature".into(),
        },
        _ => malformed(),
    }
}

/// Seconds since 1970, perhaps fractional, as milliseconds. `None` where they are no such number.
fn milliseconds(raw: &RawValue) -> Option<u64> {
    let seconds: f64 = serde_json::from_str(raw.get()).ok()?;
    // Up to the year 9999: beyond that the number is a mistake, such as milliseconds.
    (0.0..253_402_300_800.0)
        .contains(&seconds)
        .then_some((seconds * 1_000.0) as u64)
}

#[cfg(test)]
mod tests;
