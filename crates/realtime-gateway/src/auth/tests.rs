use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;

const NOW_MS: u64 = 1_780_000_000_000;
const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

fn verifier() -> Verifier {
    Verifier::new(SECRET, &[Role::new("anon"), Role::new("authenticated")], 4_096).unwrap()
}

fn sign(algorithm: Algorithm, secret: &[u8], claims: &Value) -> String {
    encode(
        &Header::new(algorithm),
        claims,
        &EncodingKey::from_secret(secret).unwrap(),
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
    for junk in ["", "junk", "a.b", "a.b.c", "sb_publishable_x"] {
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
    let token = sign(Algorithm::HS256, SECRET, &json!({"role": "anon", "exp": LATER}));
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
    let token = sign(Algorithm::HS256, SECRET, &json!({"role": "anon", "exp": exp}));
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
        &EncodingKey::from_secret(SECRET).unwrap(),
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
