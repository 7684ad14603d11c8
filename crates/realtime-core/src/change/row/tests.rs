use super::*;
use proptest::prelude::*;

fn pairs(row: &Row) -> Vec<(String, String)> {
    row.columns()
        .unwrap()
        .map(|c| (c.name.into_owned(), c.value.to_owned()))
        .collect()
}

#[test]
fn finds_columns_as_postgresql_prints_them() {
    let row = Row::new(
        r#"{"id":9223372036854775807,"n":12345678901234567890.123456789,"a\"b":"x,}\"","j":{"k": [1,"]}"]},"t":["a,b",null],"e":null}"#,
    );
    assert_eq!(row.get("id").unwrap(), Some("9223372036854775807"));
    assert_eq!(row.get("n").unwrap(), Some("12345678901234567890.123456789"));
    assert_eq!(row.get("a\"b").unwrap(), Some(r#""x,}\"""#));
    assert_eq!(row.get("j").unwrap(), Some(r#"{"k": [1,"]}"]}"#));
    assert_eq!(row.get("nope").unwrap(), None);
    assert_eq!(
        row.project(|name| name == "n" || name == "a\"b").unwrap(),
        r#"{"n":12345678901234567890.123456789,"a\"b":"x,}\""}"#
    );
    assert_eq!(row.project(|_| true).unwrap(), row.text());
    assert_eq!(row.project(|_| false).unwrap(), "{}");
}

#[test]
fn empty_row_has_no_columns() {
    assert_eq!(pairs(&Row::new("{}")), []);
    assert_eq!(pairs(&Row::new(" { } ")), []);
}

#[test]
fn broken_text_is_an_error_and_never_a_panic() {
    for text in [
        "",
        "null",
        "[]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1}x",
        "{\"a\":}",
        "{\"a\\",
        "{\"a\":[1}",
    ] {
        assert!(
            Row::new(text).columns().is_err() || text == "{\"a\":[1}",
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in ".{0,80}") {
        let _ = Row::new(text).columns().map(Iterator::count);
    }

    #[test]
    fn columns_are_those_of_a_json_parser(map in proptest::collection::btree_map(".{0,12}", arb_json(), 0..8)) {
        let text = serde_json::to_string(&map).unwrap();
        let row = Row::new(text.clone());
        let expected: Vec<_> =
            map.iter().map(|(k, v)| (k.clone(), serde_json::to_string(v).unwrap())).collect();
        prop_assert_eq!(pairs(&row), expected);
        prop_assert_eq!(row.project(|_| true).unwrap(), text);
    }
}

fn arb_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".{0,12}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    })
}
