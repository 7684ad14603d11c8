use super::*;

#[test]
fn fingerprints_stand_for_role_and_claims() {
    let of = |role: &str, json: &str| Claims::new(Role::new(role), json).fingerprint();
    assert_eq!(of("a", "{}"), of("a", "{}"));
    assert_ne!(of("a", "{}"), of("b", "{}"));
    assert_ne!(of("a", "{}"), of("a", "{ }"));
    assert_ne!(of("ab", "c"), of("a", "bc"));
}

#[test]
fn nothing_prints_claims() {
    let claims = Claims::new(Role::new("authenticated"), r#"{"sub":"secret"}"#);
    assert_eq!(
        format!("{claims:?} {:?}", claims.fingerprint()),
        "Claims(Role(authenticated)) Fingerprint"
    );
}
