use realtime_testkit::tokens::{Signer, key_set};
use serde_json::{Value, json};

use super::*;

fn parsed(keys: &[Value]) -> Result<Vec<Key>, KeySetError> {
    parse(&json!({ "keys": keys }).to_string(), Origin::Url, 32)
}

fn with(mut jwk: Value, name: &str, value: Value) -> Value {
    jwk[name] = value;
    jwk
}

#[test]
fn keys_that_cannot_check_signatures_are_passed_over() {
    let good = Signer::ed25519(1, "k").jwk();
    let rsa = Signer::new(Algorithm::RS256, "k").jwk();
    let es = Signer::new(Algorithm::ES256, "k").jwk();
    for bad in [
        json!({}),
        json!(7),
        with(good.clone(), "use", json!("enc")),
        with(good.clone(), "key_ops", json!(["encrypt"])),
        with(good.clone(), "alg", json!("ES256")),
        with(good.clone(), "alg", json!("HS256")),
        with(good.clone(), "alg", json!("none")),
        with(good.clone(), "crv", json!("X25519")),
        with(good.clone(), "x", json!("AAAA")),
        with(es.clone(), "crv", json!("P-384")),
        with(es.clone(), "crv", json!("P-521")),
        with(es.clone(), "y", json!("AAAA")),
        with(rsa.clone(), "alg", json!("RSA-OAEP")),
        with(rsa.clone(), "alg", json!("EdDSA")),
        // 1,032 bits, also behind zeros, and 4,104 bits.
        with(rsa.clone(), "n", json!("q".repeat(172))),
        with(
            rsa.clone(),
            "n",
            json!(format!("{}{}", "A".repeat(172), "q".repeat(172))),
        ),
        with(rsa.clone(), "n", json!("q".repeat(684))),
        json!({ "kty": "oct", "k": "q".repeat(64) }),
    ] {
        assert_eq!(
            parsed(std::slice::from_ref(&bad)),
            Err(KeySetError::Empty),
            "{bad}"
        );
        assert_eq!(parsed(&[bad, good.clone()]).unwrap().len(), 1);
    }
    for fine in [
        with(good.clone(), "use", json!("sig")),
        with(good.clone(), "key_ops", json!(["sign", "verify"])),
        with(good, "unknown", json!({ "a": 1 })),
        rsa,
        es,
    ] {
        assert_eq!(parsed(&[fine]).unwrap().len(), 1);
    }
}

#[test]
fn what_is_no_key_set_is_refused() {
    for text in ["", "{}", "[]", "7", r#"{"keys":7}"#, "<html>"] {
        assert_eq!(
            parse(text, Origin::File, 32),
            Err(KeySetError::Malformed),
            "{text}"
        );
    }
    // From the network it says that every key was withdrawn; a file of one's own without keys is a mistake.
    assert_eq!(parsed(&[]), Ok(Vec::new()));
    assert_eq!(parse(r#"{"keys":[]}"#, Origin::File, 32), Err(KeySetError::Empty));
    let one = Signer::ed25519(1, "k");
    let set = |keys| key_set(&vec![&one; keys]);
    assert_eq!(parse(&set(3), Origin::Url, 3).unwrap().len(), 3);
    assert_eq!(parse(&set(4), Origin::Url, 3), Err(KeySetError::TooMany(3)));
}
