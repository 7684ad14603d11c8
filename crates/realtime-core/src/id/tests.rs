use super::*;

#[test]
fn project_ids_are_labels() {
    for good in ["a", "0", "prj-a", "a--b", &"x".repeat(63)] {
        assert_eq!(ProjectId::parse(good).unwrap().as_str(), good);
    }
    for bad in [
        "",
        "-a",
        "_cluster",
        "A",
        "a.b",
        "a*",
        "a>",
        "a b",
        "ä",
        "x\"; drop table notes; --",
        &"x".repeat(64),
    ] {
        assert_eq!(ProjectId::parse(bad), Err(InvalidProjectId));
    }
}

#[test]
fn binding_ids_are_true_and_exact_in_a_double() {
    assert_eq!(BindingId::from_ordinal(0).unwrap().get(), 1);
    assert_eq!(
        BindingId::from_ordinal((1 << 53) - 2).unwrap().get(),
        (1 << 53) - 1
    );
    assert_eq!(BindingId::from_ordinal((1 << 53) - 1), None);
    assert_eq!(BindingId::from_ordinal(u64::MAX), None);
}
