use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::change::{KeyColumn, Marker, Position, Row};
use crate::filter::{FilterExpr, FilterLimits};
use crate::table::{Collation, ColumnFacts, Comparison, TableFacts};

fn facts() -> TableFacts {
    let column = |name: &str, type_name: &str, compare| ColumnFacts {
        name: name.into(),
        type_name: type_name.into(),
        compare,
        readable: true,
        key: name == "id",
    };
    TableFacts {
        table: TableRef::new("public", "notes"),
        relid: 1,
        columns: [
            column("id", "int8", Comparison::Decimal),
            column("room", "numeric", Comparison::Decimal),
            column("name", "text", Comparison::Text(Collation::C)),
        ]
        .into(),
        cannot_emit: None,
        delete_events: true,
    }
}

fn filter(text: &str) -> Option<BoundFilter> {
    FilterExpr::parse(text, &FilterLimits::default())
        .unwrap()
        .map(|filter| filter.bind(&facts()).unwrap())
}

fn spec(event: &str, text: &str, service: bool) -> BindingSpec {
    let event = EventFilter::parse(event).unwrap();
    BindingSpec::new(Some("public"), Some("notes"), event, service).with_filter(filter(text))
}

fn event(operation: Operation, row: &str, reference: bool) -> ChangeEvent {
    let row = Row::new(row);
    let key = KeyColumn {
        name: "id".into(),
        type_name: "int8".into(),
    };
    let with_key = reference || operation == Operation::Delete;
    ChangeEvent {
        id: "n".into(),
        relid: 1,
        table: TableRef::new("public", "notes"),
        operation,
        commit_timestamp: "2026-06-04T10:00:00.123Z".into(),
        new: (operation != Operation::Delete).then(|| row.clone()),
        old: (operation != Operation::Insert).then_some(row),
        primary_key: with_key.then(|| [key].into()),
        marker: reference.then_some(Marker::PayloadTooLarge),
        position: Position::default(),
    }
}

fn found(index: &SubscriptionIndex<u64>, event: &ChangeEvent) -> Vec<u64> {
    let mut out = Vec::new();
    index.candidates(event, &mut out);
    let distinct: HashSet<u64> = out.iter().copied().collect();
    assert_eq!(distinct.len(), out.len(), "a binding was named twice");
    out.sort_unstable();
    out
}

fn index_of(specs: &[BindingSpec]) -> SubscriptionIndex<u64> {
    let mut index = SubscriptionIndex::new();
    for (key, spec) in specs.iter().enumerate() {
        assert_eq!(index.insert(key as u64, spec.clone()), None);
    }
    index
}

fn naive(specs: &[BindingSpec], event: &ChangeEvent) -> Vec<u64> {
    (0..)
        .zip(specs)
        .filter(|(_, spec)| spec.admits(event))
        .map(|(key, _)| key)
        .collect()
}

#[test]
fn events_are_named_in_any_case() {
    for (text, expected) in [
        ("*", Some(EventFilter::All)),
        ("INSERT", Some(EventFilter::Only(Operation::Insert))),
        ("update", Some(EventFilter::Only(Operation::Update))),
        ("Delete", Some(EventFilter::Only(Operation::Delete))),
        ("", None),
        ("ALL", None),
        ("TRUNCATE", None),
    ] {
        assert_eq!(EventFilter::parse(text), expected, "{text}");
    }
}

#[test]
fn tables_are_matched_by_name_and_pattern() {
    let specs: Vec<BindingSpec> = [
        (Some("public"), Some("notes")),
        (Some("public"), Some("*")),
        (Some("public"), None),
        (None, None),
        (Some("*"), None),
        (Some("*"), Some("notes")),
        (None, Some("notes")),
        (Some("public"), Some("Notes")),
        (Some("other"), None),
        (Some("*"), Some("other")),
    ]
    .into_iter()
    .map(|(schema, table)| BindingSpec::new(schema, table, EventFilter::All, false))
    .collect();
    let index = index_of(&specs);
    let event = event(Operation::Insert, r#"{"id":1}"#, false);
    assert_eq!(found(&index, &event), [0, 1, 2, 3, 4, 5, 6]);
    let mut on_table = Vec::new();
    index.on_table(&event.table, &mut on_table);
    on_table.sort_unstable();
    assert_eq!(on_table, [0, 1, 2, 3, 4, 5, 6]);
}

/// On a delete, a filter on a column outside the key would tell a row's value to somebody who may
/// not be able to see the row.
#[test]
fn delete_filters_are_for_key_columns() {
    let specs = [
        spec("*", "", false),
        spec("*", "id=eq.1", false),
        spec("DELETE", "id=gte.0", false),
        spec("*", "room=eq.5", false),
        spec("*", "id=eq.1,room=eq.5", false),
        spec("*", "room=eq.5,id=eq.1", false),
        spec("DELETE", "room=neq.4", false),
        spec("*", "room=eq.5", true),
        spec("DELETE", "id=eq.1,room=eq.5", true),
    ];
    let index = index_of(&specs);
    let row = r#"{"id":1,"room":5}"#;
    assert_eq!(
        found(&index, &event(Operation::Delete, row, false)),
        [0, 1, 2, 7, 8]
    );
    assert_eq!(
        found(&index, &event(Operation::Insert, row, false)),
        [0, 1, 3, 4, 5, 7]
    );
    let mut keyless = event(Operation::Delete, row, false);
    for key in [None, Some([].into())] {
        keyless.primary_key = key;
        assert_eq!(
            found(&index, &keyless),
            [0, 7, 8],
            "no key: no filter but service_role's"
        );
    }
}

#[test]
fn filters_on_reference_events_are_for_key_columns() {
    let specs = [
        spec("*", "", false),
        spec("*", "id=eq.1", false),
        spec("*", "room=neq.4", false),
        spec("*", "room=neq.4", true),
        spec("*", "id=eq.1,room=eq.5", true),
        spec("*", "id=eq.1", true),
    ];
    let index = index_of(&specs);
    for operation in [Operation::Insert, Operation::Update, Operation::Delete] {
        // A value beside the key must not be believed even if it is there.
        assert_eq!(
            found(&index, &event(operation, r#"{"id":1,"room":5}"#, true)),
            [0, 1, 5]
        );
        assert_eq!(found(&index, &event(operation, "{}", true)), [0]);
    }
}

#[test]
fn an_update_is_judged_on_the_new_row() {
    let index = index_of(&[
        spec("UPDATE", "room=eq.1", false),
        spec("UPDATE", "room=eq.2", false),
    ]);
    let mut moved = event(Operation::Update, r#"{"id":1,"room":2}"#, false);
    moved.old = Some(Row::new(r#"{"id":1,"room":1}"#));
    assert_eq!(found(&index, &moved), [1]);
}

#[test]
fn equal_values_are_found_however_they_are_spelled() {
    let index = index_of(&[
        spec("*", "room=eq.1", false),
        spec("*", "room=in.(2,1.000)", false),
    ]);
    for row in [r#"{"room":1}"#, r#"{"room":1.00}"#] {
        assert_eq!(found(&index, &event(Operation::Insert, row, false)), [0, 1]);
    }
}

#[test]
fn a_binding_can_be_replaced_and_rebound() {
    let mut index = index_of(&[spec("*", "room=eq.1", false), spec("*", "room=eq.2", false)]);
    let row = event(Operation::Insert, r#"{"id":7,"room":1}"#, false);
    assert_eq!(found(&index, &row), [0]);
    assert!(index.replace_filter(1, filter("id=gt.6")));
    assert_eq!(found(&index, &row), [0, 1]);
    assert!(index.replace_filter(0, None));
    assert_eq!(
        index.insert(1, spec("DELETE", "", false)),
        Some(spec("*", "id=gt.6", false))
    );
    assert_eq!(found(&index, &row), [0]);
    assert_eq!(index.get(1), Some(&spec("DELETE", "", false)));
    assert_eq!(index.remove(0), Some(spec("*", "", false)));
    assert_eq!(index.remove(0), None);
    assert!(!index.replace_filter(0, None));
    assert_eq!((index.len(), found(&index, &row).len()), (1, 0));
}

/// The type of a column changed: what is bound to the old type is no match, beside what is
/// bound to the new one.
#[test]
fn bindings_of_an_outdated_type_are_held_apart() {
    let mut outdated = facts();
    outdated.columns[1].compare = Comparison::Bool;
    outdated.columns[1].type_name = "bool".into();
    let parsed = FilterExpr::parse("room=neq.t", &FilterLimits::default())
        .unwrap()
        .unwrap();
    let outdated = spec("*", "", false).with_filter(Some(parsed.bind(&outdated).unwrap()));
    let mut index = index_of(&[outdated, spec("*", "room=neq.0", false)]);
    let row = event(Operation::Insert, r#"{"room":1}"#, false);
    assert_eq!(found(&index, &row), [1]);
    index.remove(1);
    assert!(found(&index, &row).is_empty());
}

#[test]
fn nothing_is_kept_of_what_was_taken_out() {
    let mut index = SubscriptionIndex::new();
    for round in 0..3 {
        for key in 0..1_000u64 {
            let text = match key % 3 {
                0 => format!("room=eq.{}", key % (1 + round * 7)),
                1 => format!("id=gt.{key},id=lt.{}", 2 * key),
                _ => format!("name=neq.{key}"),
            };
            index.insert(key, spec("*", &text, key % 2 == 0));
        }
        for key in 1..1_000u64 {
            index.remove(key);
        }
        assert_eq!((index.len(), index.scopes.len()), (1, 1));
        let columns: usize = index.scopes.values().map(TableIndex::columns_len).sum();
        assert_eq!(columns, 1);
    }
    index.remove(0);
    assert!(index.scopes.is_empty() && index.entries.is_empty() && index.free.is_empty());
}

/// The work for one event stays near the number of matches, whatever the number of bindings.
#[test]
fn work_follows_matches() {
    let row = event(
        Operation::Insert,
        r#"{"id":500000,"room":3.0,"name":"n7"}"#,
        false,
    );
    let work = |specs: &mut dyn FnMut(u64) -> BindingSpec, bindings: u64| {
        let mut index = SubscriptionIndex::new();
        for key in 0..bindings {
            index.insert(key, specs(key));
        }
        let mut out = Vec::new();
        let looked_at = index.candidates(&row, &mut out);
        (looked_at, out.len())
    };
    type Shape = (&'static str, Box<dyn FnMut(u64) -> BindingSpec>);
    let shapes: [Shape; 16] = [
        ("equality", Box::new(|n| spec("*", &format!("id=eq.{n}"), false))),
        (
            "list",
            Box::new(|n| spec("*", &format!("id=in.({n},{})", n + 1), false)),
        ),
        (
            "above",
            Box::new(|n| spec("*", &format!("id=gt.{}", 499_995 + n), false)),
        ),
        (
            "below",
            Box::new(|n| spec("*", &format!("id=lte.{}", 500_005 - n as i64), false)),
        ),
        ("inequality", Box::new(|_| spec("*", "room=neq.3", false))),
        ("other operation", Box::new(|_| spec("DELETE", "", false))),
        (
            "window",
            Box::new(|n| spec("*", &format!("id=gte.{},id=lt.{}", n * 50, n * 50 + 100), false)),
        ),
        (
            "nested windows",
            Box::new(|n| spec("*", &format!("id=lte.{},id=gte.{n}", 1_000_000 - n), false)),
        ),
        (
            "one low end",
            Box::new(|n| spec("*", &format!("id=gt.0,id=lt.{}", n * 26), false)),
        ),
        // One value shared by all, and one of its own: held by its own, in whatever order they are written.
        (
            "shared first",
            Box::new(|n| spec("*", &format!("room=eq.3,id=eq.{n}"), false)),
        ),
        (
            "shared last",
            Box::new(|n| spec("*", &format!("id=eq.{n},room=eq.3"), false)),
        ),
        ("null", Box::new(|_| spec("*", "room=is.null", false))),
        (
            "not null",
            Box::new(|n| spec("*", &format!("room=not.is.null,id=eq.{n}"), false)),
        ),
        // However many have it, one pattern is tried once.
        ("one pattern", Box::new(|_| spec("*", "name=match.^x", false))),
        (
            "pattern and own",
            Box::new(|n| spec("*", &format!("name=like.n%,id=eq.{n}"), false)),
        ),
        (
            "range and own",
            Box::new(|n| spec("*", &format!("id=gt.0,name=eq.n{n}"), false)),
        ),
    ];
    for (name, mut shape) in shapes {
        let (looked_at, matched) = work(&mut shape, 20_000);
        assert!(
            looked_at <= 2 * matched + 60,
            "{name}: looked at {looked_at} for {matched} matches"
        );
    }
}

fn any_filter() -> impl Strategy<Value = String> {
    let condition = prop_oneof![
        ("(eq|neq|gt|gte|lt|lte)", 0..6i64).prop_map(|(op, value)| format!("id={op}.{value}")),
        ("(eq|neq|gt|gte|lt|lte)", 0..6i64).prop_map(|(op, value)| format!("room={op}.{value}.0")),
        ("(eq|neq|gt|gte|lt|lte)", "[ab]{0,3}").prop_map(|(op, value)| format!("name={op}.{value}")),
        (0..6i64, 0..6i64, "gte?", "lte?")
            .prop_map(|(low, high, above, below)| { format!("room={above}.{low},room={below}.{high}") }),
        ("gte?", "[ab]{0,3}", "lte?", "[ab]{0,3}")
            .prop_map(|(above, low, below, high)| { format!("name={above}.{low},name={below}.{high}") }),
        (proptest::collection::vec(0..6i64, 1..4), "(not[.])?").prop_map(|(items, not)| {
            let items: Vec<String> = items.iter().map(i64::to_string).collect();
            format!("room={not}in.({})", items.join(","))
        }),
        ("(id|room)", "(not[.])?", "(eq|lt|gte|isdistinct)", 0..6i64)
            .prop_map(|(column, not, op, value)| format!("{column}={not}{op}.{value}")),
        ("(id|room|name)", "(not[.])?").prop_map(|(column, not)| format!("{column}={not}is.null")),
        ("(not[.])?", "(i?like[.][ab%_]{0,3}|i?match[.][ab.]{0,3})")
            .prop_map(|(not, pattern)| format!("name={not}{pattern}")),
    ];
    proptest::collection::vec(condition, 0..4).prop_map(|conditions| conditions.join(","))
}

fn any_spec() -> impl Strategy<Value = BindingSpec> {
    let schema = prop_oneof![4 => Just("public"), 1 => Just("*"), 1 => Just("other")];
    let table = prop_oneof![4 => Just("notes"), 1 => Just("*"), 1 => Just("other")];
    (
        schema,
        table,
        "([*]|INSERT|UPDATE|DELETE)",
        any_filter(),
        any::<bool>(),
    )
        .prop_map(|(schema, table, event, text, service)| {
            let event = EventFilter::parse(&event).unwrap();
            BindingSpec::new(Some(schema), Some(table), event, service).with_filter(filter(&text))
        })
}

fn any_event() -> impl Strategy<Value = ChangeEvent> {
    let number = prop_oneof![5 => (0..6i64).prop_map(|n| n.to_string()), 1 => Just("null".to_owned())];
    let name = prop_oneof![5 => "[abc]{0,3}".prop_map(|n| format!("\"{n}\"")), 1 => Just("null".to_owned())];
    let operation = prop_oneof![
        Just(Operation::Insert),
        Just(Operation::Update),
        Just(Operation::Delete)
    ];
    (operation, number.clone(), number, name, any::<bool>(), 0..3u8).prop_map(
        |(operation, id, room, name, reference, key)| {
            let row = format!(r#"{{"id":{id},"room":{room},"name":{name}}}"#);
            let mut event = event(operation, &row, reference && key > 0);
            if key == 2 && event.primary_key.is_some() {
                event.primary_key = Some([].into());
            }
            event
        },
    )
}

proptest! {
    #[test]
    fn index_is_a_naive_scan(
        specs in proptest::collection::vec(any_spec(), 0..60),
        again in proptest::collection::vec((0..60usize, any_spec()), 0..20),
        gone in proptest::collection::vec(0..60u64, 0..20),
        events in proptest::collection::vec(any_event(), 1..8),
    ) {
        let mut index = index_of(&specs);
        let mut left: Vec<Option<BindingSpec>> = specs.into_iter().map(Some).collect();
        for (key, spec) in again {
            if let Some(held) = left.get_mut(key) {
                prop_assert_eq!(index.insert(key as u64, spec.clone()), held.replace(spec));
            }
        }
        for key in gone {
            let held = left.get_mut(key as usize).and_then(Option::take);
            prop_assert_eq!(index.remove(key), held);
        }
        for event in events {
            let expected: Vec<u64> = (0..).zip(&left)
                .filter(|(_, spec)| spec.as_ref().is_some_and(|spec| spec.admits(&event)))
                .map(|(key, _)| key).collect();
            prop_assert_eq!(found(&index, &event), expected);
        }
    }
}

#[test]
fn the_naive_scan_itself_finds_something() {
    let specs = [
        spec("*", "room=gt.1", false),
        spec("INSERT", "name=eq.a", false),
        spec("*", "", true),
    ];
    let row = event(Operation::Insert, r#"{"id":1,"room":2,"name":"b"}"#, false);
    assert_eq!(naive(&specs, &row), [0, 2]);
}
