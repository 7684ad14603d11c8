use super::*;
use proptest::prelude::*;

fn project() -> ProjectId {
    ProjectId::parse("prj-a").unwrap()
}

#[test]
fn names_cannot_add_tokens_or_wildcards() {
    let table = TableRef::new("My Types", "a.b*>ü");
    assert_eq!(
        change(&project(), &table),
        "anvilbase.rt.prj-a.cdc.My%20Types.a%2Eb%2A%3E%C3%BC"
    );
    assert_eq!(control(&project()), "anvilbase.rt.prj-a.ctl");
    assert_eq!(project_all(&project()), "anvilbase.rt.prj-a.>");
}

#[test]
fn subjects_say_what_they_carry() {
    let table = TableRef::new("public", "ctl");
    assert_eq!(kind(&project(), &change(&project(), &table)), Kind::Change);
    assert_eq!(kind(&project(), &control(&project())), Kind::Control);
    assert_eq!(kind(&project(), "anvilbase.rt.prj-a.inv.public.t"), Kind::Other);
    assert_eq!(kind(&project(), "anvilbase.rt.prj-ab.ctl"), Kind::Other);
    assert_eq!(interest_project(&interest(&project())), Some(project()));
    assert_eq!(interest_project("anvilbase.rt._cluster.attach"), None);
}

proptest! {
    #[test]
    fn encoding_is_injective_and_one_token(a in ".{0,16}", b in ".{0,16}") {
        let (mut x, mut y) = (String::new(), String::new());
        push_token(&mut x, &a);
        push_token(&mut y, &b);
        prop_assert_eq!(a == b, x == y);
        prop_assert!(!x.is_empty() && !x.contains(['.', '*', '>', ' ']) && x.is_ascii());
    }
}
