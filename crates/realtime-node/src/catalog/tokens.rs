//! How a project's tokens are verified: the `[tokens]` section of a gateway's project file.
//!
//! Must never show a secret, nor hold a publishable or secret key itself: keys stand in the file
//! by their SHA-256 only, so that whoever reads the file cannot use them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use realtime_core::claims::Role;
use serde::Deserialize;

use crate::fetch::FetchUrl;
use crate::secret::Secret;

/// Length of the shortest secret in bytes: RFC 7518 asks for as many bits as the digest has.
pub const SECRET_BYTES_MIN: usize = 32;

/// Longest leeway in seconds: beyond that a clock is wrong, not late.
pub const LEEWAY_SECONDS_MAX: u64 = 600;

/// The algorithms that tokens may be signed by.
pub const ALGORITHMS: [&str; 12] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
    "EdDSA",
];

/// How tokens are verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenConfig {
    /// Shared secrets of HMAC tokens: the one in use first, then those that still count while
    /// secrets are rotated.
    pub secrets: Vec<Secret>,
    /// A JSON Web Key Set, as text: it may hold secrets too.
    pub jwks: Option<Secret>,
    /// Where another set of public keys is fetched from.
    pub jwks_url: Option<FetchUrl>,
    /// The authorities that are believed there; the system's without one.
    pub jwks_ca_file: Option<PathBuf>,
    /// The algorithms that count, of [`ALGORITHMS`]; all that the keys allow where it is empty.
    pub algorithms: Vec<Box<str>>,
    /// The issuers that count (`iss`); any where it is empty.
    pub issuers: Vec<Box<str>>,
    /// The audiences of which a token must name one (`aud`); any where it is empty.
    pub audiences: Vec<Box<str>>,
    /// How much later than its `exp`, and earlier than its `nbf`, a token counts, in seconds.
    pub leeway_seconds: u64,
    /// Keys that are no tokens.
    pub keys: Vec<StaticKey>,
}

/// A key that is no token: any text, which stands for a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticKey {
    /// The role.
    pub role: Role,
    /// The SHA-256 of the key.
    pub sha256: [u8; 32],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    jwt_secret: Option<Secret>,
    #[serde(default)]
    previous_jwt_secrets: Vec<Secret>,
    jwks_file: Option<PathBuf>,
    jwks_url: Option<Secret>,
    jwks_ca_file: Option<PathBuf>,
    #[serde(default)]
    algorithms: Vec<Box<str>>,
    #[serde(default)]
    issuers: Vec<Box<str>>,
    #[serde(default)]
    audiences: Vec<Box<str>>,
    #[serde(default)]
    leeway_seconds: u64,
    #[serde(default)]
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    role: String,
    sha256: Secret,
}

impl TokenConfig {
    /// Tokens by one shared secret.
    pub fn by_secret(secret: Secret) -> Self {
        Self {
            secrets: vec![secret],
            ..Self::default()
        }
    }
}

impl Section {
    /// The file that the section names beside the project's own.
    pub(super) fn jwks_path(&self, folder: &Path) -> Option<PathBuf> {
        Some(folder.join(self.jwks_file.as_ref()?))
    }

    /// Checks the section. `jwks`: the text of the key set's file; `folder`: what paths in the
    /// section are relative to.
    ///
    /// # Errors
    /// The field and the rule that it breaks, without its value.
    pub(super) fn check(
        self,
        roles: &[Role],
        jwks: Option<Secret>,
        folder: &Path,
    ) -> Result<TokenConfig, String> {
        if self.jwt_secret.is_none() && !self.previous_jwt_secrets.is_empty() {
            return Err("tokens.previous_jwt_secrets: needs jwt_secret beside it".into());
        }
        for (field, secret) in [("jwt_secret", self.jwt_secret.as_slice())]
            .into_iter()
            .chain([("previous_jwt_secrets", self.previous_jwt_secrets.as_slice())])
            .flat_map(|(field, secrets)| secrets.iter().map(move |secret| (field, secret)))
        {
            if secret.expose().len() < SECRET_BYTES_MIN {
                return Err(format!(
                    "tokens.{field}: must be at least {SECRET_BYTES_MIN} bytes"
                ));
            }
        }
        let jwks_url = self.jwks_url.map(|text| text.expose().parse::<FetchUrl>());
        let jwks_url = jwks_url
            .transpose()
            .map_err(|error| format!("tokens.jwks_url: {error}"))?;
        if self.jwks_ca_file.is_some() && jwks_url.is_none() {
            return Err("tokens.jwks_ca_file: needs jwks_url beside it".into());
        }
        if !self.algorithms.iter().all(|name| ALGORITHMS.contains(&&**name)) {
            return Err(format!("tokens.algorithms: must be of {}", ALGORITHMS.join(", ")));
        }
        if self.leeway_seconds > LEEWAY_SECONDS_MAX {
            return Err(format!(
                "tokens.leeway_seconds: must be at most {LEEWAY_SECONDS_MAX}"
            ));
        }
        let keys = keys(self.keys, roles)?;
        let secrets: Vec<Secret> = self
            .jwt_secret
            .into_iter()
            .chain(self.previous_jwt_secrets)
            .collect();
        if secrets.is_empty() && jwks.is_none() && jwks_url.is_none() && keys.is_empty() {
            return Err("tokens: needs jwt_secret, jwks_file, jwks_url or keys".into());
        }
        Ok(TokenConfig {
            secrets,
            jwks,
            jwks_url,
            jwks_ca_file: self.jwks_ca_file.map(|path| folder.join(path)),
            algorithms: self.algorithms,
            issuers: self.issuers,
            audiences: self.audiences,
            leeway_seconds: self.leeway_seconds,
            keys,
        })
    }
}

fn keys(keys: Vec<Key>, roles: &[Role]) -> Result<Vec<StaticKey>, String> {
    let mut seen = BTreeSet::new();
    let mut checked = Vec::with_capacity(keys.len());
    for (index, key) in keys.into_iter().enumerate() {
        let role = Role::new(key.role);
        if !roles.contains(&role) {
            return Err(format!(
                "tokens.keys[{index}].role: must be one of the project's roles"
            ));
        }
        let Some(sha256) = digest(key.sha256.expose()) else {
            return Err(format!(
                "tokens.keys[{index}].sha256: must be the key's SHA-256 as 64 hex digits"
            ));
        };
        if !seen.insert(sha256) {
            return Err(format!("tokens.keys[{index}].sha256: is there twice"));
        }
        checked.push(StaticKey { role, sha256 });
    }
    Ok(checked)
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(0..) {
        *byte = u8::from_str_radix(hex.get(2 * pair..2 * pair + 2)?, 16).ok()?;
    }
    Some(digest)
}
