use jsonwebtoken::{EncodingKey, Header, encode};
use realtime_node::secret::Secret;
use realtime_testkit::tokens::{Signer, key_set};
use serde_json::{Value, json};

use super::*;

const NOW_MS: u64 = 1_780_000_000_000;
const SECRET: &str = "a secret of at least thirty-two bytes";

fn verifier() -> Verifier {
    by(TokenConfig::by_secret(Secret::new(SECRET)))
}

fn by(tokens: TokenConfig) -> Verifier {
    by_fetched(tokens, &[])
}

fn by_fetched(tokens: TokenConfig, fetched: &[Key]) -> Verifier {
    let roles = [Role::new("anon"), Role::new("authenticated")];
    Verifier::new(&tokens, &roles, fetched, 4_096, 32).unwrap()
}

/// The verifier of a project whose file names this key set.
fn by_set(set: &str) -> Verifier {
    by(TokenConfig {
        jwks: Some(Secret::new(set)),
        ..TokenConfig::default()
    })
}

fn sign(algorithm: Algorithm, secret: impl AsRef<[u8]>, claims: &Value) -> String {
    encode(
        &Header::new(algorithm),
        claims,
        &EncodingKey::from_secret(secret.as_ref()).unwrap(),
    )
    .unwrap()
}

fn refused(claims: Value) -> String {
    verifier()
        .verify(&sign(Algorithm::HS256, SECRET, &claims), NOW_MS)
        .unwrap_err()
        .to_string()
}

const LATER: u64 = NOW_MS / 1_000 + 60;

#[test]
fn each_hmac_algorithm_is_accepted_with_the_claims_text() {
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        let token = sign(
            algorithm,
            SECRET,
            &json!({"role": "anon", "exp": LATER, "n": 9007199254740993u64}),
        );
        let identity = verifier().verify(&format!(" {token}\n"), NOW_MS).unwrap();
        assert_eq!(identity.claims.role().as_str(), "anon");
        assert!(identity.claims.json().contains("9007199254740993"));
        assert_eq!(identity.expires_at_ms, LATER * 1_000);
        assert_eq!(identity.expiry(NOW_MS), None);
        assert!(
            identity
                .expiry(LATER * 1_000 + 2_500)
                .unwrap()
                .message
                .ends_with("expired 2 seconds ago")
        );
    }
}

#[test]
fn a_token_without_a_signature_or_of_another_secret_is_refused() {
    let other = sign(
        Algorithm::HS256,
        b"another secret of thirty-two bytes!",
        &json!({"role": "anon", "exp": LATER}),
    );
    let expected = "JwtSignatureError: Failed to validate JWT signature";
    assert_eq!(
        verifier().verify(&other, NOW_MS).unwrap_err().to_string(),
        expected
    );
    // {"alg":"none"} and {"role":"service_role","exp":9999999999}
    let none = "eyJhbGciOiJub25lIn0.eyJyb2xlIjoic2VydmljZV9yb2xlIiwiZXhwIjo5OTk5OTk5OTk5fQ.";
    assert!(verifier().verify(none, NOW_MS).is_err());
    for junk in ["", "junk", "a.b", "a.b.c", "....", "sb"] {
        assert_eq!(
            verifier().verify(junk, NOW_MS).unwrap_err().code,
            Code::MalformedJwt,
            "{junk}"
        );
    }
}

#[test]
fn an_asymmetric_algorithm_in_the_header_is_refused() {
    // The header of RS256 before an HMAC signature by the same secret.
    let token = sign(
        Algorithm::HS256,
        SECRET.as_bytes(),
        &json!({"role": "anon", "exp": LATER}),
    );
    let (_, rest) = token.split_once('.').unwrap();
    let forged = format!("eyJhbGciOiJSUzI1NiJ9.{rest}");
    assert_eq!(
        verifier().verify(&forged, NOW_MS).unwrap_err().code,
        Code::JwtSignatureError
    );
}

#[test]
fn role_and_exp_are_required_and_checked() {
    let required = "InvalidJWTToken: Fields `role` and `exp` are required in JWT";
    assert_eq!(refused(json!({"exp": LATER})), required);
    assert_eq!(refused(json!({"role": "anon"})), required);
    assert_eq!(refused(json!({"role": 5, "exp": LATER})), required);
    assert_eq!(refused(json!({"role": ["anon"], "exp": LATER})), required);
    assert_eq!(refused(json!({"role": "", "exp": LATER})), required);
    assert_eq!(
        refused(json!({"role": "anon", "exp": "soon"})),
        "InvalidJWTToken: Token expiration time is invalid"
    );
    assert_eq!(
        refused(json!({"role": "anon", "exp": NOW_MS / 1_000 - 3})),
        "InvalidJWTToken: Token has expired 3 seconds ago"
    );
    assert_eq!(
        refused(json!({"role": "anon", "exp": LATER, "nbf": LATER - 1})),
        "InvalidJWTToken: Token is not valid yet"
    );
    assert_eq!(
        refused(json!({"role": "nobody", "exp": LATER})),
        "Unauthorized: The token's role is not allowed in this project"
    );
}

#[test]
fn fractional_times_are_taken_to_the_millisecond() {
    let exp = (NOW_MS + 500) as f64 / 1_000.0;
    let token = sign(
        Algorithm::HS256,
        SECRET.as_bytes(),
        &json!({"role": "anon", "exp": exp}),
    );
    let identity = verifier().verify(&token, NOW_MS).unwrap();
    assert!(identity.expires_at_ms.abs_diff(NOW_MS + 500) <= 1);
}

#[test]
fn a_duplicated_claim_is_no_claim() {
    // serde refuses a second `role`: which of two the database would see is nobody's guess.
    let text = format!(r#"{{"role":"anon","role":"authenticated","exp":{LATER}}}"#);
    let claims: Box<RawValue> = serde_json::from_str(&text).unwrap();
    let token = encode(
        &Header::default(),
        &claims,
        &EncodingKey::from_secret(SECRET.as_bytes()).unwrap(),
    )
    .unwrap();
    assert_eq!(
        verifier().verify(&token, NOW_MS).unwrap_err().code,
        Code::MalformedJwt
    );
}

#[test]
fn a_key_names_its_project() {
    let named = |claims| {
        named_project(&sign(
            Algorithm::HS256,
            b"any key at all, thirty-two bytes..",
            &claims,
        ))
    };
    assert_eq!(named(json!({"ref": "a"})).as_deref(), Some("a"));
    assert_eq!(named(json!({"project": "b"})).as_deref(), Some("b"));
    assert_eq!(named(json!({})), None);
    assert_eq!(named_project("junk"), None);
}

#[test]
fn a_token_beyond_the_limit_is_refused_before_anything_of_it_is_read() {
    let claims = |padding: usize| json!({ "role": "anon", "exp": 4_000, "x": "x".repeat(padding) });
    let token = |padding| sign(Algorithm::HS256, SECRET, &claims(padding));
    assert!(verifier().verify(&token(2_900), 0).is_ok());
    let error = verifier().verify(&token(3_100), 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "InvalidJWTToken: The token is longer than 4096 bytes"
    );
}

fn anon() -> Value {
    json!({ "role": "anon", "exp": LATER })
}

fn code(verifier: &Verifier, token: &str) -> Option<Code> {
    verifier.verify(token, NOW_MS).err().map(|error| error.code)
}

const PUBLIC: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

#[test]
fn each_public_algorithm_is_accepted_by_a_key_of_its_own_and_by_no_other() {
    let signers = PUBLIC.map(|algorithm| Signer::new(algorithm, &format!("{algorithm:?}")));
    for signer in &signers {
        let verifier = by_set(&key_set(&[signer]));
        for other in &signers {
            let expected = (signer.jwk() != other.jwk()).then_some(Code::JwtSignatureError);
            assert_eq!(code(&verifier, &other.sign(&anon())), expected);
            // Neither does a name help.
            let nameless = other.clone().nameless();
            assert_eq!(code(&verifier, &nameless.sign(&anon())), expected);
        }
        assert!(code(&verifier, &sign(Algorithm::HS256, SECRET, &anon())).is_some());
    }
}

#[test]
fn a_key_without_an_algorithm_checks_those_of_its_kind() {
    let mut jwk = Signer::new(Algorithm::RS256, "k").jwk();
    jwk.as_object_mut().unwrap().remove("alg");
    let verifier = by_set(&json!({ "keys": [jwk] }).to_string());
    for algorithm in PUBLIC {
        let good = format!("{algorithm:?}").contains("S5")
            || format!("{algorithm:?}").contains("RS")
            || format!("{algorithm:?}").contains("PS");
        let got = code(&verifier, &Signer::new(algorithm, "k").sign(&anon()));
        assert_eq!(got.is_none(), good, "{algorithm:?}");
    }
}

#[test]
fn a_public_key_is_no_shared_secret() {
    // The classic: the public key, which everybody has, as the secret of an HMAC.
    for algorithm in [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA] {
        let signer = Signer::new(algorithm, "k");
        let set = key_set(&[&signer]);
        let verifier = by_set(&set);
        let jwk = signer.jwk();
        let mut secrets = vec![set.clone(), jwk.to_string()];
        secrets.extend(
            ["n", "x", "y"]
                .iter()
                .filter_map(|name| jwk[name].as_str().map(str::to_owned)),
        );
        for secret in secrets {
            for hmac in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                let mut header = Header::new(hmac);
                header.kid = Some("k".into());
                let key = EncodingKey::from_secret(secret.as_bytes()).unwrap();
                let token = encode(&header, &anon(), &key).unwrap();
                assert_eq!(code(&verifier, &token), Some(Code::JwtSignatureError));
            }
        }
    }
}

#[test]
fn a_name_picks_among_keys_of_the_algorithm_only() {
    let (ed1, ed2) = (Signer::ed25519(1, "same"), Signer::ed25519(2, "same"));
    let es = Signer::new(Algorithm::ES256, "same");
    let verifier = by_set(&key_set(&[&ed1, &es]));
    for good in [&ed1, &es] {
        assert_eq!(code(&verifier, &good.sign(&anon())), None);
    }
    assert_eq!(code(&verifier, &ed2.sign(&anon())), Some(Code::JwtSignatureError));
    // Two keys of one name, as while one replaces the other.
    let both = by_set(&key_set(&[&ed1, &ed2]));
    assert_eq!(code(&both, &ed2.sign(&anon())), None);
    // A good key under a name that the set does not have.
    let renamed = Signer::ed25519(1, "other").sign(&anon());
    assert_eq!(code(&verifier, &renamed), Some(Code::JwtSignatureError));
}

#[test]
fn shared_secrets_come_from_files_only() {
    let k = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"; // 0123456789…, 32 bytes
    let oct = json!({ "kty": "oct", "kid": "s", "k": k }).to_string();
    let set = format!("{{\"keys\":[{oct}]}}");
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("s".into());
    let key = EncodingKey::from_secret(b"01234567890123456789012345678901").unwrap();
    let token = encode(&header, &anon(), &key).unwrap();
    assert_eq!(code(&by_set(&set), &token), None);
    let fetched = keys::parse(&set, Origin::Url, 32);
    assert_eq!(fetched.unwrap_err(), KeySetError::Empty);
    // One that is too short is none.
    let short = set.replace(k, &k[..40]);
    assert_eq!(
        keys::parse(&short, Origin::File, 32).unwrap_err(),
        KeySetError::Empty
    );
}

#[test]
fn previous_secrets_count_beside_the_one_in_use() {
    let previous = "the secret that was in use before this";
    let mut tokens = TokenConfig::by_secret(Secret::new(SECRET));
    tokens.secrets.push(Secret::new(previous));
    let both = by(tokens);
    let old = sign(Algorithm::HS256, previous.as_bytes(), &anon());
    let identity = both.verify(&old, NOW_MS).unwrap();
    assert_eq!(both.still(&identity), Ok(identity.expires_at_ms));
    assert_eq!(code(&verifier(), &old), Some(Code::JwtSignatureError));
    assert_eq!(
        verifier().still(&identity).unwrap_err().to_string(),
        "JwtSignatureError: The key behind the token is no longer valid"
    );
}

#[test]
fn only_the_algorithms_of_the_list_count() {
    let mut tokens = TokenConfig::by_secret(Secret::new(SECRET));
    tokens.algorithms = vec!["HS512".into(), "ES256".into()];
    let restricted = by(tokens);
    let [good, bad] = [Algorithm::HS512, Algorithm::HS256].map(|a| sign(a, SECRET, &anon()));
    assert_eq!(code(&restricted, &good), None);
    assert_eq!(code(&restricted, &bad), Some(Code::JwtSignatureError));
    let identity = verifier().verify(&bad, NOW_MS).unwrap();
    assert!(restricted.still(&identity).is_err());
}

#[test]
fn issuer_and_audience_are_checked_where_the_project_names_them() {
    let strict = by(TokenConfig {
        issuers: vec!["https://id.example".into()],
        audiences: vec!["authenticated".into(), "b".into()],
        ..TokenConfig::by_secret(Secret::new(SECRET))
    });
    let with = |iss: Value, aud: Value| {
        let claims = json!({ "role": "anon", "exp": LATER, "iss": iss, "aud": aud });
        let token = sign(Algorithm::HS256, SECRET, &claims);
        assert_eq!(code(&verifier(), &token), None, "without a list nothing is asked");
        strict
            .verify(&token, NOW_MS)
            .map(|_| ())
            .map_err(|error| error.message)
    };
    let good = json!("https://id.example");
    for aud in [json!("b"), json!(["x", "authenticated"])] {
        assert_eq!(with(good.clone(), aud), Ok(()));
    }
    for aud in [
        json!("x"),
        json!([]),
        json!(null),
        json!(["x"]),
        json!({ "b": 1 }),
        json!([1, "b"]),
    ] {
        let said = with(good.clone(), aud).unwrap_err();
        assert_eq!(said, "The token's audience is not one of this project's");
    }
    for iss in [
        json!("https://id.example/"),
        json!(null),
        json!(["https://id.example"]),
    ] {
        let said = with(iss, json!("b")).unwrap_err();
        assert_eq!(said, "The token's issuer is not one of this project's");
    }
    let none = sign(Algorithm::HS256, SECRET, &anon());
    assert_eq!(code(&strict, &none), Some(Code::InvalidJwtToken));
    let identity = verifier().verify(&none, NOW_MS).unwrap();
    assert!(
        strict.still(&identity).is_err(),
        "the rules hold for those that are in already"
    );
}

#[test]
fn leeway_moves_both_ends_and_nothing_without_it_does() {
    let lenient = by(TokenConfig {
        leeway_seconds: 10,
        ..TokenConfig::by_secret(Secret::new(SECRET))
    });
    let token = |exp: u64, nbf: u64| {
        let claims = json!({ "role": "anon", "exp": exp, "nbf": nbf });
        sign(Algorithm::HS256, SECRET, &claims)
    };
    let now = NOW_MS / 1_000;
    for (exp, nbf, strictly, leniently) in [
        (now + 1, now, true, true),
        (now, now, false, true),
        (now - 9, 0, false, true),
        (now - 10, 0, false, false),
        (LATER, now + 10, false, true),
        (LATER, now + 11, false, false),
    ] {
        let token = token(exp, nbf);
        assert_eq!(code(&verifier(), &token).is_none(), strictly, "{exp} {nbf}");
        assert_eq!(code(&lenient, &token).is_none(), leniently, "{exp} {nbf}");
    }
    let identity = lenient.verify(&token(now + 1, 0), NOW_MS).unwrap();
    assert_eq!(identity.expires_at_ms, NOW_MS + 11_000);
}

fn static_keys(keys: &[(&str, &str)]) -> Verifier {
    let keys = keys.iter().map(|(role, key)| StaticKey {
        role: Role::new(*role),
        sha256: static_digest(key),
    });
    by(TokenConfig {
        keys: keys.collect(),
        ..TokenConfig::default()
    })
}

#[test]
fn a_static_key_stands_for_its_role_and_does_not_end() {
    let keys = [
        ("anon", "sb_publishable_abc"),
        ("authenticated", "any.text.at all"),
    ];
    let verifier = static_keys(&keys);
    for (role, key) in keys {
        let identity = verifier.verify(&format!(" {key}\n"), NOW_MS).unwrap();
        assert_eq!(identity.claims.role().as_str(), role);
        assert_eq!(identity.claims.json(), format!("{{\"role\":\"{role}\"}}"));
        assert_eq!(identity.expiry(u64::MAX - 1), None);
        assert_eq!(verifier.still(&identity), Ok(u64::MAX));
        // Withdrawn, or given another role.
        assert!(static_keys(&[]).still(&identity).is_err());
        let swapped = static_keys(&[("anon", keys[1].1), ("authenticated", keys[0].1)]);
        assert!(swapped.still(&identity).is_err());
    }
    assert_eq!(code(&verifier, "sb_publishable_abd"), Some(Code::InvalidApiKey));
    assert_eq!(code(&verifier, "sb_publishable_ab"), Some(Code::InvalidApiKey));
    assert_eq!(code(&verifier, "any.text.at"), Some(Code::MalformedJwt));
}

#[test]
fn a_key_that_may_be_fetched_is_told_from_one_that_signed_nothing() {
    let (known, unknown) = (Signer::ed25519(1, "k1"), Signer::ed25519(2, "k2"));
    let fetched = keys::parse(&key_set(&[&known]), Origin::Url, 32).unwrap();
    let tokens = TokenConfig {
        jwks_url: Some("https://id.example/keys".parse().unwrap()),
        ..TokenConfig::by_secret(Secret::new(SECRET))
    };
    let empty = by(tokens.clone());
    let verifier = by_fetched(tokens.clone(), &fetched);
    assert_eq!(code(&empty, &known.sign(&anon())), Some(Code::KeysUnavailable));
    assert_eq!(code(&verifier, &known.sign(&anon())), None);
    assert_eq!(
        code(&verifier, &unknown.sign(&anon())),
        Some(Code::KeysUnavailable)
    );
    // A name that is known, under a signature of another key: no set makes that good.
    let forged = Signer::ed25519(2, "k1").sign(&anon());
    assert_eq!(code(&verifier, &forged), Some(Code::JwtSignatureError));
    // Shared secrets are not fetched, nor are algorithms that do not count.
    let foreign = sign(Algorithm::HS256, b"another secret of thirty-two bytes!", &anon());
    assert_eq!(code(&verifier, &foreign), Some(Code::JwtSignatureError));
    let restricted = by(TokenConfig {
        algorithms: vec!["HS256".into()],
        ..tokens
    });
    assert_eq!(
        code(&restricted, &known.sign(&anon())),
        Some(Code::JwtSignatureError)
    );
    let error = verifier.verify(&unknown.sign(&anon()), NOW_MS).unwrap_err();
    assert_eq!(
        error.clone().after(Refresh::Fetched).code,
        Code::JwtSignatureError
    );
    for refresh in [Refresh::Failed, Refresh::NotNow] {
        assert_eq!(error.clone().after(refresh), error);
    }
}

#[test]
fn the_same_key_under_another_name_still_vouches() {
    let fetched = |signer: &Signer| keys::parse(&key_set(&[signer]), Origin::Url, 32).unwrap();
    let before = by_fetched(TokenConfig::default(), &fetched(&Signer::ed25519(1, "old")));
    let identity = before
        .verify(&Signer::ed25519(1, "old").sign(&anon()), NOW_MS)
        .unwrap();
    let renamed = by_fetched(TokenConfig::default(), &fetched(&Signer::ed25519(1, "new")));
    assert!(renamed.still(&identity).is_ok());
    let replaced = by_fetched(TokenConfig::default(), &fetched(&Signer::ed25519(2, "old")));
    assert!(replaced.still(&identity).is_err());
}

#[test]
fn subjects_and_sessions_are_told_apart_by_their_claims() {
    let claims = json!({ "role": "anon", "exp": LATER, "sub": "u1", "session_id": "s1" });
    let token = sign(Algorithm::HS256, SECRET, &claims);
    let identity = verifier().verify(&token, NOW_MS).unwrap();
    let (subject, session) = (|s: &str| Who::Subject(s.into()), |s: &str| Who::Session(s.into()));
    assert!(identity.is(&subject("u1")) && identity.is(&session("s1")));
    assert!(!identity.is(&subject("s1")) && !identity.is(&session("u1")) && !identity.is(&subject("u")));
    let nobody = verifier()
        .verify(&sign(Algorithm::HS256, SECRET, &anon()), NOW_MS)
        .unwrap();
    assert!(!nobody.is(&subject("")) && !nobody.is(&session("null")));
}

#[test]
fn nothing_shows_a_key_or_a_claim() {
    let verifier = by(TokenConfig {
        jwks: Some(Secret::new(key_set(&[&Signer::ed25519(1, "kid-marker")]))),
        ..TokenConfig::by_secret(Secret::new(SECRET))
    });
    let claims = json!({ "role": "anon", "exp": LATER, "sub": "sub-marker" });
    let token = Signer::ed25519(1, "kid-marker").sign(&claims);
    let identity = verifier.verify(&token, NOW_MS).unwrap();
    let refused = verifier
        .verify(&Signer::ed25519(9, "kid-marker").sign(&claims), NOW_MS)
        .unwrap_err();
    let keys = keys::parse(&key_set(&[&Signer::ed25519(1, "kid-marker")]), Origin::Url, 32);
    let shown = format!("{verifier:?} {identity:?} {refused} {refused:?} {keys:?}");
    assert!(
        !shown.contains("marker") && !shown.contains("secret of"),
        "{shown}"
    );
}

#[test]
fn a_token_is_tried_on_few_keys_and_found_by_its_name() {
    let signers: Vec<Signer> = (1..=9).map(|n| Signer::ed25519(n, &format!("k{n}"))).collect();
    let verifier = by_set(&key_set(&signers.iter().collect::<Vec<_>>()));
    for (n, signer) in signers.iter().enumerate() {
        assert_eq!(code(&verifier, &signer.sign(&anon())), None);
        let nameless = code(&verifier, &signer.clone().nameless().sign(&anon()));
        assert_eq!(nameless.is_none(), n < TRIES_MAX, "{n}");
    }
}

#[test]
fn keys_that_a_token_brings_along_are_not_looked_at() {
    let (known, intruder) = (Signer::ed25519(1, "k1"), Signer::ed25519(2, "k1"));
    let verifier = by_set(&key_set(&[&known]));
    let token = intruder.sign(&anon());
    let (_, rest) = token.split_once('.').unwrap();
    let jwk = intruder.jwk();
    for header in [
        json!({ "alg": "EdDSA", "kid": "k1", "jwk": jwk }),
        json!({ "alg": "EdDSA", "jku": "https://intruder.example/keys", "x5u": "https://intruder.example/c" }),
        json!({ "alg": "EdDSA", "kid": "../../dev/null" }),
        json!({ "alg": "EdDSA", "kid": "k1' or 1=1 --", "crit": ["exp"] }),
        json!({ "alg": "EdDSA", "kid": "k1", "b64": false, "crit": ["b64"] }),
        json!({ "alg": "none" }),
        json!({ "alg": "None", "kid": "k1" }),
        json!({ "alg": "" }),
        json!({ "alg": ["EdDSA"] }),
        json!({ "kid": "k1" }),
    ] {
        let head = base64url(header.to_string().as_bytes());
        for forged in [
            format!("{head}.{rest}"),
            format!("{head}.{}.", rest.split_once('.').unwrap().0),
        ] {
            assert!(code(&verifier, &forged).is_some(), "{header}");
        }
    }
}

/// The encoding of a token's parts.
fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * place)) as usize & 63]));
        }
    }
    text
}

#[test]
fn a_token_that_names_another_project_is_none_of_this_one() {
    let of = |name: &str| verifier().of(&ProjectId::parse(name).unwrap());
    for (claim, name) in [("ref", "a"), ("project", "a")] {
        let token = sign(
            Algorithm::HS256,
            SECRET,
            &json!({ "role": "anon", "exp": LATER, claim: name }),
        );
        assert_eq!(code(&of("a"), &token), None);
        assert_eq!(code(&of("b"), &token), Some(Code::InvalidJwtToken));
    }
}

#[test]
fn keys_that_a_token_names_come_before_any_number_without_a_name() {
    let mut signers: Vec<Signer> = (1..=6).map(|n| Signer::ed25519(n, "-").nameless()).collect();
    signers.push(Signer::ed25519(7, "k7"));
    let verifier = by_set(&key_set(&signers.iter().collect::<Vec<_>>()));
    assert_eq!(code(&verifier, &signers[6].sign(&anon())), None);
    // One that is named like that and is another is tried on few all the same.
    let other = Signer::ed25519(6, "k7").sign(&anon());
    assert_eq!(code(&verifier, &other), Some(Code::JwtSignatureError));
}

#[test]
fn shared_secrets_are_all_tried() {
    let mut tokens = TokenConfig::by_secret(Secret::new(SECRET));
    let previous = |n: usize| format!("the secret number {n} of those before this one");
    tokens.secrets.extend((0..8).map(|n| Secret::new(previous(n))));
    let verifier = by(tokens);
    for n in 0..8 {
        let token = sign(Algorithm::HS256, previous(n).as_bytes(), &anon());
        assert_eq!(code(&verifier, &token), None, "{n}");
    }
}
