//! Keys that tokens are signed by, of every kind that a project may use. They are of tests only.

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

/// The fixed beginning of an Ed25519 private key in PKCS #8: its 32 bytes follow.
const ED25519_PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A private key, with the name that its tokens and its key set give it.
#[derive(Clone)]
pub struct Signer {
    algorithm: Algorithm,
    key: EncodingKey,
    kid: Option<String>,
}

impl Signer {
    /// A key of an algorithm, under a name. All of an RSA or EC algorithm share one key.
    pub fn new(algorithm: Algorithm, kid: &str) -> Self {
        let key = match algorithm {
            Algorithm::ES256 => EncodingKey::from_ec_der(include_bytes!("p256.pkcs8.der")),
            Algorithm::ES384 => EncodingKey::from_ec_der(include_bytes!("p384.pkcs8.der")),
            Algorithm::EdDSA => return Self::ed25519(1, kid),
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => {
                panic!("tokens by a shared secret are minted: {algorithm:?}")
            }
            _ => EncodingKey::from_rsa_der(include_bytes!("rsa-2048.pkcs1.der")),
        };
        Self {
            algorithm,
            key,
            kid: Some(kid.into()),
        }
    }

    /// One of 256 Ed25519 keys, under a name.
    pub fn ed25519(number: u8, kid: &str) -> Self {
        let der = [&ED25519_PKCS8[..], &[number; 32]].concat();
        Self {
            algorithm: Algorithm::EdDSA,
            key: EncodingKey::from_ed_der(&der),
            kid: Some(kid.into()),
        }
    }

    /// The same key without a name.
    pub fn nameless(mut self) -> Self {
        self.kid = None;
        self
    }

    /// A token over exactly these claims.
    pub fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = self.kid.clone();
        encode(&header, claims, &self.key).unwrap()
    }

    /// The public key as a key set shows it.
    pub fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = self.kid.clone();
        serde_json::to_value(jwk).unwrap()
    }
}

/// A key set of these keys.
pub fn key_set(signers: &[&Signer]) -> String {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    json!({ "keys": keys }).to_string()
}
