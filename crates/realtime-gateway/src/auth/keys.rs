//! The keys that signatures are checked by.
//!
//! Must never let a key check an algorithm that is not its own: a public key is no HMAC secret,
//! whatever a token's header says, and each key carries the closed list of its algorithms.

use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use realtime_node::catalog::SECRET_BYTES_MIN;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// RSA keys shorter than this are broken, in bytes.
const RSA_BYTES_MIN: usize = 2_048 / 8;

/// RSA keys longer than this cost too much to check by, in bytes.
const RSA_BYTES_MAX: usize = 4_096 / 8;

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];
const HMAC: [Algorithm; 3] = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];

/// Stands for a key: equal exactly for equal key material. Says nothing about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; 32]);

/// A key, and what it may check.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    kid: Option<Box<str>>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// Where a key set came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The project's own folder: it may hold shared secrets.
    File,
    /// The network, which shared secrets never come from.
    Url,
}

/// Why a key set cannot be used. Shows nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// Not JSON, or without a list of keys.
    #[error("the key set is not a JSON object with a list of keys")]
    Malformed,
    /// None of its keys is one that signatures can be checked by.
    #[error("the key set has no usable key")]
    Empty,
    /// Too many keys: a token without `kid` is tried on each.
    #[error("the key set has more than {0} keys")]
    TooMany(usize),
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<serde_json::Value>,
}

impl Key {
    /// A shared secret; `None` where it is empty.
    pub fn hmac(secret: &[u8]) -> Option<Self> {
        Some(Self {
            id: KeyId::of("hmac", &[secret]),
            kid: None,
            algorithms: HMAC.to_vec(),
            key: DecodingKey::from_secret(secret).ok()?,
        })
    }

    /// What stands for the key.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The key itself.
    pub fn decoding(&self) -> &DecodingKey {
        &self.key
    }

    /// Whether the key may check this algorithm.
    pub fn checks(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Whether the key is by name the one that a token asks for.
    pub fn is_named(&self, kid: &str) -> bool {
        self.kid.as_deref() == Some(kid)
    }

    /// Whether a token may be tried on this key: where both have a name, it must be the same.
    pub fn answers(&self, kid: Option<&str>) -> bool {
        match (&self.kid, kid) {
            (Some(own), Some(asked)) => **own == *asked,
            _ => true,
        }
    }

    /// Leaves only these algorithms. `false`: none is left.
    pub fn restrict(&mut self, to: &[Algorithm]) -> bool {
        self.algorithms.retain(|algorithm| to.contains(algorithm));
        !self.algorithms.is_empty()
    }
}

/// Reads a JSON Web Key Set; keys that cannot check signatures are passed over, as the standard asks. From the
/// network an empty list is a set too: whoever withdraws every key says so by it.
///
/// # Errors
/// The text is no key set, has more than `keys_max` keys, or none that can be used.
pub fn parse(text: &str, origin: Origin, keys_max: usize) -> Result<Vec<Key>, KeySetError> {
    let set: Set = serde_json::from_str(text).map_err(|_| KeySetError::Malformed)?;
    if set.keys.len() > keys_max {
        return Err(KeySetError::TooMany(keys_max));
    }
    if set.keys.is_empty() && origin == Origin::Url {
        return Ok(Vec::new());
    }
    let jwks = set.keys.into_iter();
    let keys: Vec<Key> = jwks
        .filter_map(|jwk| key(&serde_json::from_value(jwk).ok()?, origin))
        .collect();
    if keys.is_empty() {
        return Err(KeySetError::Empty);
    }
    Ok(keys)
}

fn key(jwk: &Jwk, origin: Origin) -> Option<Key> {
    let common = &jwk.common;
    let signs = common
        .public_key_use
        .as_ref()
        .is_none_or(|usage| *usage == PublicKeyUse::Signature);
    let verifies = common
        .key_operations
        .as_ref()
        .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    if !signs || !verifies {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    let (algorithms, id): (&[Algorithm], KeyId) = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) => (rsa_algorithms(&key)?, KeyId::of("rsa", &[&rsa.n, &rsa.e])),
        AlgorithmParameters::EllipticCurve(ec) => {
            let (algorithms, length): (&[Algorithm], usize) = match ec.curve {
                EllipticCurve::P256 => (&[Algorithm::ES256], 1 + 2 * 32),
                EllipticCurve::P384 => (&[Algorithm::ES384], 1 + 2 * 48),
                _ => return None,
            };
            let point = key.try_get_as_bytes().ok()?;
            if point.len() != length {
                return None;
            }
            (algorithms, KeyId::of("ec", &[point]))
        }
        AlgorithmParameters::OctetKeyPair(pair) => {
            let point = key.try_get_as_bytes().ok()?;
            if pair.curve != EllipticCurve::Ed25519 || point.len() != 32 {
                return None;
            }
            (&[Algorithm::EdDSA], KeyId::of("ed", &[point]))
        }
        AlgorithmParameters::OctetKey(_) => {
            let secret = key.try_get_as_bytes().ok()?;
            if origin == Origin::Url || secret.len() < SECRET_BYTES_MIN {
                return None;
            }
            (&HMAC, KeyId::of("hmac", &[secret]))
        }
        _ => return None,
    };
    // A key that names its algorithm checks no other.
    let algorithms = match common.key_algorithm {
        None => algorithms.to_vec(),
        Some(named) => vec![only(named, algorithms)?],
    };
    Some(Key {
        id,
        kid: common.key_id.as_deref().map(Box::from),
        algorithms,
        key,
    })
}

fn only(named: KeyAlgorithm, of: &[Algorithm]) -> Option<Algorithm> {
    let named = Algorithm::try_from(named).ok()?;
    of.contains(&named).then_some(named)
}

fn rsa_algorithms(key: &DecodingKey) -> Option<&'static [Algorithm]> {
    let DecodingKeyKind::RsaModulusExponent { n, .. } = key.kind() else {
        return None;
    };
    let length = n.len() - n.iter().take_while(|byte| **byte == 0).count();
    (RSA_BYTES_MIN..=RSA_BYTES_MAX).contains(&length).then_some(&RSA)
}

/// The algorithm of a name that a project's file may give.
pub fn algorithm(name: &str) -> Option<Algorithm> {
    name.parse().ok()
}

/// Whether tokens of this algorithm are checked by a public key.
pub fn is_public(algorithm: Algorithm) -> bool {
    algorithm.family() != AlgorithmFamily::Hmac
}

impl KeyId {
    /// What stands for a static key by its digest.
    pub fn of_digest(digest: &[u8; 32]) -> Self {
        Self::of("static", &[digest])
    }

    fn of<T: AsRef<[u8]> + ?Sized>(kind: &str, parts: &[&T]) -> Self {
        let mut digest = Sha256::new();
        digest.update(kind.as_bytes());
        for part in parts {
            let bytes: &[u8] = (*part).as_ref();
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        }
        Self(digest.finalize().into())
    }
}

/// Equal where they say yes to the same tokens.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.id, &self.kid, &self.algorithms) == (other.id, &other.kid, &other.algorithms)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyId")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.algorithms)
    }
}

#[cfg(test)]
mod tests;
