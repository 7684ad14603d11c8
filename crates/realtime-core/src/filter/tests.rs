use proptest::prelude::*;

use super::*;
use crate::change::Row;
use crate::id::TableRef;
use crate::table::{ColumnFacts, Comparison, TableFacts};

fn facts() -> TableFacts {
    let column = |name: &str, type_name: &str, compare| ColumnFacts {
        name: name.into(),
        type_name: type_name.into(),
        compare,
        readable: name != "hidden",
        key: name == "id",
    };
    let text = Comparison::Text {
        ordered_by_bytes: false,
    };
    TableFacts {
        table: TableRef::new("public", "notes"),
        relid: 1,
        columns: [
            column("id", "int8", Comparison::Decimal),
            column("room", "int4", Comparison::Decimal),
            column("done", "bool", Comparison::Bool),
            column("name", "text", text.clone()),
            column(
                "code",
                "text",
                Comparison::Text {
                    ordered_by_bytes: true,
                },
            ),
            column("hidden", "text", text.clone()),
            column("meta", "jsonb", Comparison::Opaque),
            column("a=b", "int4", Comparison::Decimal),
            column("a.b", "int4", Comparison::Decimal),
            column("a\"b", "int4", Comparison::Decimal),
            column("a,b", "int4", Comparison::Decimal),
            column(" x ", "int4", Comparison::Decimal),
            column("日付", "date", Comparison::Date),
        ]
        .into(),
        cannot_emit: None,
        delete_events: true,
    }
}

fn parse(text: &str) -> Result<Option<FilterExpr>, FilterError> {
    FilterExpr::parse(text, &FilterLimits::default())
}

/// What a filter was read as: column, operator, values.
fn read(text: &str) -> Vec<(String, &'static str, Vec<String>)> {
    let filter = parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .unwrap();
    let conditions = filter.conditions().iter();
    conditions
        .map(|one| {
            (
                one.column.to_string(),
                one.operator.as_str(),
                one.values.iter().map(|v| v.to_string()).collect(),
            )
        })
        .collect()
}

fn bind(text: &str) -> Result<BoundFilter, FilterError> {
    parse(text)?.unwrap().bind(&facts())
}

fn matches(filter: &str, row: &str) -> bool {
    bind(filter)
        .unwrap_or_else(|error| panic!("{filter}: {error}"))
        .matches(&Row::new(row))
}

#[test]
fn filters_are_read() {
    let one = |text, column: &str, operator, values: &[&str]| {
        let values = values.iter().map(|value| value.to_string()).collect();
        assert_eq!(read(text), [(column.to_owned(), operator, values)], "{text}");
    };
    one("room=eq.1", "room", "eq", &["1"]);
    one("  room=eq.1  ", "room", "eq", &["1"]);
    one("room=neq.", "room", "neq", &[""]);
    one("name=eq. a b ", "name", "eq", &[" a b"]);
    one(
        r#"name=eq." a, b=eq.\"1\" \\ ""#,
        "name",
        "eq",
        &[r#" a, b=eq."1" \ "#],
    );
    one(r#"name=eq."\x00""#, "name", "eq", &[r"\x00"]);
    one("name=eq.x=y.z", "name", "eq", &["x=y.z"]);
    one("name=eq.say \"hi\"", "name", "eq", &["say \"hi\""]);
    one(
        "at=gte.2026-01-01T00:00:00.5+02:00",
        "at",
        "gte",
        &["2026-01-01T00:00:00.5+02:00"],
    );
    one("room=in.(1)", "room", "in", &["1"]);
    one("room=in.( 1 , 2 ) ", "room", "in", &["1", "2"]);
    one(
        r#"name=in.("a,b", "c\"(" ,d e,"")"#,
        "name",
        "in",
        &["a,b", "c\"(", "d e", ""],
    );
    one(r#""a=b"=eq.1"#, "a=b", "eq", &["1"]);
    one("a.b=eq.1", "a.b", "eq", &["1"]);
    one("a\"b=eq.1", "a\"b", "eq", &["1"]);
    one(r#""\"x\\"=eq.1"#, "\"x\\", "eq", &["1"]);
    one("日付=eq.2026-01-01", "日付", "eq", &["2026-01-01"]);
    assert_eq!(parse("").unwrap(), None);
    assert_eq!(parse(" \t\n").unwrap(), None);
}

#[test]
fn a_comma_ends_a_raw_value_only_before_another_condition() {
    let conditions = |text| {
        read(text)
            .into_iter()
            .map(|(column, _, values)| (column, values.join("|")))
            .collect::<Vec<_>>()
    };
    let pairs = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect::<Vec<_>>()
    };
    for (text, expected) in [
        ("room=eq.1,done=eq.false", &[("room", "1"), ("done", "false")][..]),
        ("room=eq.1 , done=eq.false", &[("room", "1"), ("done", "false")]),
        ("name=eq.Smith, John", &[("name", "Smith, John")]),
        ("name=eq.a,b=c", &[("name", "a,b=c")]),
        ("name=eq.a,b=1.5", &[("name", "a,b=1.5")]),
        ("name=eq.a,=eq.1", &[("name", "a,=eq.1")]),
        (
            "name=eq.f(x,b=eq.1),c=eq.2",
            &[("name", "f(x,b=eq.1)"), ("c", "2")],
        ),
        ("name=eq.:(", &[("name", ":(")]),
        ("name=eq.a),b=eq.1", &[("name", "a)"), ("b", "1")]),
        ("name=eq.\"a\",\"x,y\"=eq.1", &[("name", "a"), ("x,y", "1")]),
        ("name=eq.a, b,\"x,y\"=eq.1", &[("name", "a, b"), ("x,y", "1")]),
        (
            "room=in.(1,2),name=in.(\"x,y=eq.1\",z),id=gt.5",
            &[("room", "1|2"), ("name", "x,y=eq.1|z"), ("id", "5")],
        ),
    ] {
        assert_eq!(conditions(text), pairs(expected), "{text}");
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    use FilterError::{EmptySegment, Malformed as Broken};
    let broken = |condition, rule| Broken { condition, rule };
    for (text, expected) in [
        (",", EmptySegment),
        ("room=eq.1,", EmptySegment),
        (",room=eq.1", EmptySegment),
        ("room=eq.1,,id=eq.2", EmptySegment),
        ("room=in.(1), ", EmptySegment),
        ("room", broken(1, Malformed::Form)),
        ("room=1", broken(1, Malformed::Form)),
        ("room=eq", broken(1, Malformed::Form)),
        ("=eq.1", broken(1, Malformed::Form)),
        ("\"\"=eq.1", broken(1, Malformed::Form)),
        ("a,b=eq.1", broken(1, Malformed::Form)),
        ("room=.1", broken(1, Malformed::Form)),
        ("room=eq.1,x=in.(1),y", broken(3, Malformed::Form)),
        ("name=eq.\"a", broken(1, Malformed::OpenQuote)),
        ("name=eq.\"a\\\"", broken(1, Malformed::OpenQuote)),
        ("\"room=eq.1", broken(1, Malformed::OpenQuote)),
        ("name=eq.\"a\" b", broken(1, Malformed::TextAfterQuote)),
        ("name=eq.\"a\",b", broken(2, Malformed::Form)),
        ("name=eq.f(a,b=eq.1", broken(1, Malformed::OpenParenthesis)),
        ("name=eq.((a,b=eq.1)", broken(1, Malformed::OpenParenthesis)),
        ("room=in.1,2", broken(1, Malformed::NotAList)),
        ("room=in.(1,2", broken(1, Malformed::NotAList)),
        ("room=in.(1,", broken(1, Malformed::NotAList)),
        ("room=in.(", broken(1, Malformed::NotAList)),
        ("room=in.()", broken(1, Malformed::EmptyList)),
        ("room=in.( )", broken(1, Malformed::EmptyList)),
        ("room=in.(1,)", broken(1, Malformed::EmptyItem)),
        ("room=in.(,1)", broken(1, Malformed::EmptyItem)),
        ("room=in.(a(b),c)", broken(1, Malformed::ParenthesisInItem)),
        ("room=in.(\"a\"b)", broken(1, Malformed::TextAfterQuote)),
        ("room=in.(1)2", broken(1, Malformed::TextAfterList)),
    ] {
        assert_eq!(parse(text), Err(expected), "{text}");
    }
}

#[test]
fn unknown_operators_are_refused() {
    for (text, name) in [
        ("name=like.a", "operator like "),
        ("name=is.null", "operator is "),
        ("room=not.eq.1", "operator not "),
        ("room=isdistinct.1", "operator isdistinct "),
        ("room=foo.1", "this operator "),
        ("room=EQ.1", "this operator "),
        ("room=eq.1,name=ilike.a", "operator ilike "),
        ("name=eq.a,s3cret=foo.1", "this operator "),
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            matches!(error, FilterError::UnknownOperator { .. }),
            "{text}: {error}"
        );
        assert!(
            error.to_string().contains(&format!("{name}is not supported")),
            "{text}: {error}"
        );
    }
    let error = parse("email=jane.doe").unwrap_err();
    assert!(!format!("{error} {error:?}").contains("jane"), "{error}");
}

#[test]
fn limits_are_named() {
    let limits = FilterLimits {
        bytes_max: 40,
        conditions_max: 2,
        items_max: 3,
    };
    let parse = |text: &str| FilterExpr::parse(text, &limits);
    assert!(parse("room=in.(1,2,3),id=eq.1").is_ok());
    let error = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(
        error("room=in.(1,2,3,4)"),
        "filter condition 1, column \"room\": more than 3 list items"
    );
    assert_eq!(error("a=eq.1,b=eq.1,c=eq.1"), "filter: more than 2 conditions");
    assert_eq!(
        error(&format!("name=eq.{}", "é".repeat(17))),
        "filter: longer than 40 bytes"
    );
    assert!(parse(&format!("name=eq.{}", "é".repeat(16))).is_ok());
}

#[test]
fn binding_names_condition_column_and_rule() {
    for (text, expected) in [
        (
            "room=eq.1,nope=eq.1",
            "filter condition 2: invalid column \"nope\"",
        ),
        ("hidden=eq.1", "filter condition 1: invalid column \"hidden\""),
        ("Room=eq.1", "filter condition 1: invalid column \"Room\""),
        ("hidden=gt.1", "filter condition 1: invalid column \"hidden\""),
        (
            "meta=eq.{}",
            "filter condition 1, column \"meta\": eq does not apply to type jsonb",
        ),
        (
            "room=eq.abc",
            "filter condition 1, column \"room\": the value must be a whole number",
        ),
        (
            "room=in.(1,2147483648)",
            "filter condition 1, column \"room\": the value is out of range for int4",
        ),
        (
            "name=gt.a",
            "filter condition 1, column \"name\": gt needs a collation that orders by bytes (C or POSIX)",
        ),
    ] {
        assert_eq!(bind(text).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn unknown_never_matches() {
    for filter in [
        "room=eq.5",
        "room=neq.5",
        "room=lt.5",
        "room=lte.5",
        "room=gt.5",
        "room=in.(5,6)",
        "room=gte.0",
    ] {
        for row in [
            r#"{"room":null}"#,
            "{}",
            r#"{"Room":5}"#,
            "nonsense",
            r#"{"room":"x"}"#,
            r#"{"room":5"#,
        ] {
            assert!(!matches(filter, row), "{filter} on {row}");
        }
    }
    assert!(matches("name=eq.null", r#"{"name":"null"}"#));
    assert!(!matches("name=eq.null", r#"{"name":null}"#));
}

#[test]
fn every_operator_matches_what_it_says() {
    for (filter, below, at, above) in [
        ("room=eq.5", false, true, false),
        ("room=neq.5", true, false, true),
        ("room=gt.5", false, false, true),
        ("room=gte.5", false, true, true),
        ("room=lt.5", true, false, false),
        ("room=lte.5", true, true, false),
        ("room=in.(5,6)", false, true, true),
        ("room=in.(4,5,4)", true, true, false),
        ("room=gt.4,room=lt.6", false, true, false),
        ("room=gt.4,done=eq.t", false, false, false),
    ] {
        for (value, expected) in [(4, below), (5, at), (6, above)] {
            let row = format!(r#"{{"id":1,"room":{value},"done":null}}"#);
            assert_eq!(matches(filter, &row), expected, "{filter} on {row}");
        }
    }
}

#[test]
fn odd_names_are_exact() {
    let row = r#"{"a=b":1,"a.b":2,"a\"b":3,"a,b":4," x ":5,"日付":"2026-01-01"}"#;
    for filter in [
        r#""a=b"=eq.1"#,
        "a.b=eq.2",
        "a\"b=eq.3",
        r#""a\"b"=eq.3"#,
        r#""a,b"=eq.4"#,
        r#"" x "=eq.5"#,
        "日付=eq.2026-01-01",
    ] {
        assert!(matches(filter, row), "{filter}");
    }
}

#[test]
fn spelling_does_not_make_filters_differ() {
    assert_eq!(bind("room=eq.1").unwrap(), bind("room=in.(01,1)").unwrap());
    assert_eq!(bind("room=in.(1,2)").unwrap(), bind("room=in.( 2 , 1 )").unwrap());
    assert_ne!(bind("room=gt.1").unwrap(), bind("room=gte.1").unwrap());
    assert_ne!(bind("room=eq.1").unwrap(), bind("id=eq.1").unwrap());
}

#[test]
fn key_columns_can_be_told_apart() {
    let filter = bind("id=eq.1,room=eq.2").unwrap();
    assert!(filter.only_on(|column| column == "id" || column == "room"));
    assert!(!filter.only_on(|column| column == "id"));
}

#[test]
fn debug_never_shows_a_value() {
    let expr = parse("name=eq.s3cret,code=in.(s3cret)").unwrap().unwrap();
    let bound = expr.bind(&facts()).unwrap();
    assert_eq!(format!("{expr:?}"), r#"["name"=eq.[1], "code"=in.[1]]"#);
    assert_eq!(format!("{bound:?}"), r#"["name", "code"]"#);
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

proptest! {
    #[test]
    fn quoted_text_is_read_back(
        written in proptest::collection::vec(
            ("[^\\x00]{1,12}", 0..7usize, proptest::collection::vec("[^\\x00]{0,12}", 1..4)), 1..4),
    ) {
        let print = |(column, operator, values): &(String, usize, Vec<String>)| {
            let operator = Operator::ALL[*operator];
            let items: Vec<String> = values.iter().map(|value| quote(value)).collect();
            match operator {
                Operator::In => format!("{}=in.({})", quote(column), items.join(",")),
                _ => format!("{}={}.{}", quote(column), operator.as_str(), items[0]),
            }
        };
        let text = written.iter().map(print).collect::<Vec<_>>().join(",");
        let expected: Vec<_> = written.into_iter().map(|(column, operator, mut values)| {
            let operator = Operator::ALL[operator];
            if operator != Operator::In { values.truncate(1); }
            (column, operator.as_str(), values)
        }).collect();
        prop_assert_eq!(read(&text), expected);
    }

    #[test]
    fn nothing_panics(text in "[a-c=.,()\"\\\\ é]{0,40}", row in ".{0,20}") {
        if let Ok(Some(filter)) = parse(&text) {
            prop_assert!(!filter.conditions().is_empty());
            let _ = filter.bind(&facts()).map(|filter| filter.matches(&Row::new(row)));
        }
    }

    /// Each part of a text that was accepted stands in some condition: nothing is dropped.
    #[test]
    fn nothing_is_dropped(text in "(a=(eq|in|gt|like)[.][(]?[a-b=.,() ]{0,10}[)]?,?){1,3}") {
        if let Ok(Some(filter)) = parse(&text) {
            let letters = |text: &str| text.bytes().filter(|b| matches!(b, b'a' | b'b')).count();
            let kept: usize = filter.conditions().iter()
                .map(|one| letters(&one.column) + one.values.iter().map(|value| letters(value)).sum::<usize>())
                .sum();
            prop_assert_eq!(kept, letters(&text), "{}", text);
        }
    }
}
