//! Tokens and keys: who a key or an access token says its bearer is.
//!
//! Must never accept an algorithm that the project did not choose, nor put a token or a claim
//! into an error (invariant 10). Reads no clock: the time is an argument.

pub mod jwks;
pub mod keys;
pub mod projects;

use std::fmt;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode_header};
use realtime_core::claims::{Claims, Role, Who};
use realtime_core::code::Code;
use realtime_core::id::ProjectId;
use realtime_node::catalog::{StaticKey, TokenConfig};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use jwks::Refresh;
use keys::{Key, KeyId, KeySetError, Origin};

/// What keys of the newer kind begin with. Clients send them as access tokens too.
const STATIC_KEY_PREFIX: &str = "sb_";

/// Public keys of an algorithm that one token is tried on: each try costs, and anybody may cause it. Shared secrets are
/// not counted: a try costs next to nothing, and how many there are is the operator's word alone.
const TRIES_MAX: usize = 4;

/// Checks the tokens and keys of one project, as it is configured and with the key set that was
/// fetched last. Never changes: other keys mean another verifier.
pub struct Verifier {
    /// Whose verifier it is; `None` only in tests of what has nothing to do with projects.
    project: Option<ProjectId>,
    keys: Vec<Key>,
    static_keys: Vec<StaticKey>,
    /// The algorithms that count; empty: all that the keys allow.
    algorithms: Vec<Algorithm>,
    issuers: Vec<Box<str>>,
    audiences: Vec<Box<str>>,
    leeway_ms: u64,
    roles: Vec<Role>,
    token_bytes_max: usize,
    /// Whether keys that are not known yet may be fetched.
    fetches: bool,
}

/// Who a verified token speaks for, and until when.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Role and claims.
    pub claims: Claims,
    /// When it ends, in milliseconds since 1970, leeway included; `u64::MAX` of a static key, which does not.
    pub expires_at_ms: u64,
    /// What vouches for it.
    pub voucher: Voucher,
}

/// What vouches for an identity: it counts for as long as this does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voucher {
    /// A signature.
    Signed(KeyId, Algorithm),
    /// A static key.
    Static(KeyId),
}

/// Why a token is refused: a code that SDKs know, and a sentence without any part of the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct TokenError {
    /// The code. [`Code::KeysUnavailable`]: the key that signed it may be known once the
    /// project's key set was fetched anew.
    pub code: Code,
    /// The sentence, as it stands alone in a `system` frame.
    pub message: String,
}

/// The project's keys cannot be used. Shows the field and what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKeys {
    /// The file that `jwks_file` names.
    #[error("tokens.jwks_file: {0}")]
    KeySet(KeySetError),
    /// `jwt_secret`, or one of the previous ones.
    #[error("tokens.jwt_secret: cannot be used as an HMAC key")]
    Secret,
}

/// The claims that are looked at. A claim that is there twice is refused: which of the two the
/// database would see is nobody's guess.
#[derive(Deserialize)]
struct Looked<'a> {
    #[serde(borrow, default)]
    role: Option<&'a RawValue>,
    #[serde(borrow, default)]
    exp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    nbf: Option<&'a RawValue>,
    #[serde(borrow, default)]
    iss: Option<&'a RawValue>,
    #[serde(borrow, default)]
    aud: Option<&'a RawValue>,
    #[serde(borrow, default)]
    sub: Option<&'a RawValue>,
    #[serde(borrow, default)]
    session_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "ref")]
    reference: Option<&'a RawValue>,
    #[serde(borrow, default)]
    project: Option<&'a RawValue>,
}

/// `aud`: one or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Verifier {
    /// A verifier by a project's `tokens` and `roles`, with the keys that were fetched, of tokens
    /// up to `token_bytes_max` bytes. `keys_max`: of one key set.
    ///
    /// # Errors
    /// A secret or the key set's file cannot be used.
    pub fn new(
        tokens: &TokenConfig,
        roles: &[Role],
        fetched: &[Key],
        token_bytes_max: u32,
        keys_max: u32,
    ) -> Result<Self, BadKeys> {
        let secrets = tokens.secrets.iter();
        let secrets = secrets.map(|secret| Key::hmac(secret.expose().as_bytes()).ok_or(BadKeys::Secret));
        let mut keys = secrets.collect::<Result<Vec<Key>, BadKeys>>()?;
        if let Some(set) = &tokens.jwks {
            let set = keys::parse(set.expose(), Origin::File, keys_max as usize);
            keys.extend(set.map_err(BadKeys::KeySet)?);
        }
        keys.extend_from_slice(fetched);
        let algorithms: Vec<Algorithm> = tokens
            .algorithms
            .iter()
            .filter_map(|name| keys::algorithm(name))
            .collect();
        if !algorithms.is_empty() {
            keys.retain_mut(|key| key.restrict(&algorithms));
        }
        Ok(Self {
            project: None,
            keys,
            static_keys: tokens.keys.clone(),
            algorithms,
            issuers: tokens.issuers.clone(),
            audiences: tokens.audiences.clone(),
            leeway_ms: tokens.leeway_seconds * 1_000,
            roles: roles.to_vec(),
            token_bytes_max: token_bytes_max as usize,
            fetches: tokens.jwks_url.is_some(),
        })
    }

    /// The same for tokens of one project: several may have one issuer, and keys in common.
    #[must_use]
    pub fn of(self, project: &ProjectId) -> Self {
        Self {
            project: Some(project.clone()),
            ..self
        }
    }

    /// Checks a token or a static key at a time, given in milliseconds since 1970.
    ///
    /// # Errors
    /// The token is too long, malformed, not signed by this project, lacks `role` or `exp`, is past its
    /// end or before its start, is of another issuer, project or for another audience, or names a role
    /// that the project does not let tokens name; or a text that begins with `sb_` is no key of
    /// the project ([`Code::InvalidApiKey`]).
    pub fn verify(&self, token: &str, now_ms: u64) -> Result<Identity, TokenError> {
        self.check_length(token)?;
        if let Some(identity) = self.static_identity(token) {
            return Ok(identity);
        }
        if token.starts_with(STATIC_KEY_PREFIX) {
            return Err(TokenError {
                code: Code::InvalidApiKey,
                message: "The API key is not known".into(),
            });
        }
        let token: String = token.split_whitespace().collect();
        let header = decode_header(&token).map_err(|error| refusal(error.kind()))?;
        let (algorithm, kid) = (header.alg, header.kid.as_deref());
        let mut validation = Validation::new(algorithm);
        // Times and claims are checked below, against the caller's clock.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let mut tried = false;
        for key in self.answering(algorithm, kid) {
            tried = true;
            match jsonwebtoken::decode::<Box<RawValue>>(&token, key.decoding(), &validation) {
                Ok(decoded) => {
                    let identity = self.judge(decoded.claims.get(), Voucher::Signed(key.id(), algorithm))?;
                    return identity.current(now_ms, self.leeway_ms);
                }
                Err(error) => match refusal(error.kind()) {
                    // The signature of another key, perhaps.
                    error if error.code == Code::JwtSignatureError => {}
                    error => return Err(error),
                },
            }
        }
        let named = |kid| {
            self.keys
                .iter()
                .any(|key| key.checks(algorithm) && key.is_named(kid))
        };
        if self.may_fetch_for(algorithm) && !kid.map_or(tried, named) {
            return Err(unknown_key());
        }
        Err(signature())
    }

    /// Refuses a token that is too long to be looked at, or kept until it can be.
    ///
    /// # Errors
    /// It is longer than the limit.
    pub fn check_length(&self, token: &str) -> Result<(), TokenError> {
        if token.len() > self.token_bytes_max {
            let message = format!("The token is longer than {} bytes", self.token_bytes_max);
            return Err(invalid(&message));
        }
        Ok(())
    }

    /// Whether an identity that was verified earlier would be by this verifier, times apart: its
    /// key may have been withdrawn, its role, issuer or audience be no longer let in. Gives when it ends.
    ///
    /// # Errors
    /// It would not be.
    pub fn still(&self, identity: &Identity) -> Result<u64, TokenError> {
        match identity.voucher {
            Voucher::Static(id) => {
                let role = identity.claims.role();
                let mut kept = self.static_keys.iter();
                let kept = kept.any(|key| KeyId::of_digest(&key.sha256) == id && key.role == *role);
                if kept { Ok(u64::MAX) } else { Err(withdrawn()) }
            }
            Voucher::Signed(id, algorithm) => {
                let mut keys = self.keys.iter();
                if !keys.any(|key| key.id() == id && key.checks(algorithm)) {
                    return Err(withdrawn());
                }
                Ok(self
                    .judge(identity.claims.json(), identity.voucher)?
                    .identity
                    .expires_at_ms)
            }
        }
    }

    /// The keys that a token is tried on: first those that it names, whatever their place in the list.
    fn answering(&self, algorithm: Algorithm, kid: Option<&str>) -> impl Iterator<Item = &Key> {
        let is_named = move |key: &Key| kid.is_some_and(|kid| key.is_named(kid));
        let named = self.keys.iter().filter(move |key| is_named(key));
        let others = self.keys.iter();
        let others = others.filter(move |key| !is_named(key) && key.answers(kid));
        let tries_max = if keys::is_public(algorithm) {
            TRIES_MAX
        } else {
            usize::MAX
        };
        let checking = named.chain(others).filter(move |key| key.checks(algorithm));
        checking.take(tries_max)
    }

    /// Whether a key set fetched anew may hold the key of a token of this algorithm.
    fn may_fetch_for(&self, algorithm: Algorithm) -> bool {
        let counts = self.algorithms.is_empty() || self.algorithms.contains(&algorithm);
        self.fetches && counts && keys::is_public(algorithm)
    }

    fn static_identity(&self, token: &str) -> Option<Identity> {
        if self.static_keys.is_empty() {
            return None;
        }
        let digest = static_digest(token);
        let mut keys = self.static_keys.iter();
        let key = keys.find(|key| equal(&key.sha256, &digest))?;
        let claims = serde_json::json!({ "role": key.role.as_str() }).to_string();
        Some(Identity {
            claims: Claims::new(key.role.clone(), claims),
            expires_at_ms: u64::MAX,
            voucher: Voucher::Static(KeyId::of_digest(&key.sha256)),
        })
    }

    /// Checks the claims of a token whose signature was checked; its times are the caller's to check.
    fn judge(&self, claims: &str, voucher: Voucher) -> Result<Judged, TokenError> {
        let looked: Looked<'_> = serde_json::from_str(claims).map_err(|_| malformed())?;
        let role = looked.role.and_then(text).filter(|role| !role.is_empty());
        let (Some(role), Some(exp)) = (role, looked.exp) else {
            return Err(invalid("Fields `role` and `exp` are required in JWT"));
        };
        let exp = milliseconds(exp).ok_or_else(|| invalid("Token expiration time is invalid"))?;
        let nbf = looked
            .nbf
            .map(milliseconds)
            .map(|nbf| nbf.ok_or_else(|| invalid("Token start time is invalid")));
        let not_before_ms = nbf.transpose()?.unwrap_or(0);
        if !self.issuers.is_empty() {
            let issuer = looked.iss.and_then(text);
            let known = issuer.is_some_and(|issuer| self.issuers.iter().any(|known| **known == *issuer));
            if !known {
                return Err(invalid("The token's issuer is not one of this project's"));
            }
        }
        if !self.audiences.is_empty() && !looked.aud.is_some_and(|aud| self.is_meant(aud)) {
            return Err(invalid("The token's audience is not one of this project's"));
        }
        let named = looked.reference.and_then(text).or(looked.project.and_then(text));
        let own = self.project.as_ref().map(ProjectId::as_str);
        if named.zip(own).is_some_and(|(named, own)| named != own) {
            return Err(invalid("The token is another project's"));
        }
        let role = self.roles.iter().find(|known| known.as_str() == role);
        let role = role.ok_or_else(|| TokenError {
            code: Code::Unauthorized,
            message: "The token's role is not allowed in this project".into(),
        })?;
        let identity = Identity {
            claims: Claims::new(role.clone(), claims),
            expires_at_ms: exp + self.leeway_ms,
            voucher,
        };
        Ok(Judged {
            identity,
            not_before_ms,
        })
    }

    fn is_meant(&self, aud: &RawValue) -> bool {
        let known = |name: &String| self.audiences.iter().any(|known| **known == **name);
        match serde_json::from_str(aud.get()) {
            Ok(Audience::One(name)) => known(&name),
            Ok(Audience::Several(names)) => names.iter().any(known),
            Err(_) => false,
        }
    }
}

/// An identity whose times are not checked yet.
struct Judged {
    identity: Identity,
    not_before_ms: u64,
}

impl Judged {
    fn current(self, now_ms: u64, leeway_ms: u64) -> Result<Identity, TokenError> {
        if let Some(error) = self.identity.expiry(now_ms) {
            return Err(error);
        }
        if now_ms + leeway_ms < self.not_before_ms {
            return Err(invalid("Token is not valid yet"));
        }
        Ok(self.identity)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, roles) = (self.keys.len() + self.static_keys.len(), self.roles.len());
        write!(f, "Verifier({keys} keys, {roles} roles)")
    }
}

impl Identity {
    /// The error of a token that has ended, or nothing while it holds.
    pub fn expiry(&self, now_ms: u64) -> Option<TokenError> {
        (now_ms >= self.expires_at_ms).then(|| expired(self.expires_at_ms, now_ms))
    }

    /// Whether this is whom an operator means.
    pub fn is(&self, who: &Who) -> bool {
        let Ok(looked) = serde_json::from_str::<Looked<'_>>(self.claims.json()) else {
            return false;
        };
        let (claim, asked) = match who {
            Who::Subject(subject) => (looked.sub, subject),
            Who::Session(session) => (looked.session_id, session),
        };
        claim.and_then(text).is_some_and(|claim| *claim == **asked)
    }
}

impl TokenError {
    /// The error of a token that was checked again after the key set was asked for: a key that is
    /// not in the set of that moment signed nothing of this project's.
    pub fn after(self, refresh: Refresh) -> Self {
        match (self.code, refresh) {
            (Code::KeysUnavailable, Refresh::Fetched) => signature(),
            _ => self,
        }
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

fn static_digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.trim().as_bytes()).into()
}

/// Compares in a time that does not depend on where the digests differ.
fn equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differing) == 0
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

fn signature() -> TokenError {
    TokenError {
        code: Code::JwtSignatureError,
        message: "Failed to validate JWT signature".into(),
    }
}

fn withdrawn() -> TokenError {
    TokenError {
        code: Code::JwtSignatureError,
        message: "The key behind the token is no longer valid".into(),
    }
}

fn unknown_key() -> TokenError {
    TokenError {
        code: Code::KeysUnavailable,
        message: "The token's key is not known just now, try again later".into(),
    }
}

fn refusal(kind: &ErrorKind) -> TokenError {
    match kind {
        ErrorKind::InvalidSignature
        | ErrorKind::InvalidAlgorithm
        | ErrorKind::InvalidEcdsaKey
        | ErrorKind::InvalidEddsaKey
        | ErrorKind::InvalidKeyFormat => signature(),
        _ => malformed(),
    }
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
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
