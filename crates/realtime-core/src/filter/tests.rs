use proptest::prelude::*;

use super::*;
use crate::change::Row;
use crate::id::TableRef;
use crate::table::{Collation, ColumnFacts, Comparison, Element, TableFacts};

fn facts() -> TableFacts {
    let column = |name: &str, type_name: &str, compare| ColumnFacts {
        name: name.into(),
        type_name: type_name.into(),
        compare,
        readable: name != "hidden",
        key: name == "id",
    };
    let text = Comparison::Text(Collation::UNKNOWN);
    let array = |type_name: &str, compare| {
        Comparison::Array(Box::new(Element {
            type_name: type_name.into(),
            compare,
        }))
    };
    TableFacts {
        table: TableRef::new("public", "notes"),
        relid: 1,
        columns: [
            column("id", "int8", Comparison::Decimal),
            column("room", "int4", Comparison::Decimal),
            column("done", "bool", Comparison::Bool),
            column("name", "text", text.clone()),
            column("code", "text", Comparison::Text(Collation::C)),
            column("hidden", "text", text.clone()),
            column("meta", "jsonb", Comparison::Jsonb),
            column("doc", "json", Comparison::Veiled),
            column("price", "money", Comparison::Opaque),
            column("fold", "text", Comparison::FoldedText),
            column("pad", "bpchar", Comparison::PaddedText(Collation::C)),
            column(
                "tags",
                "_text",
                array("text", Comparison::Text(Collation::UNKNOWN)),
            ),
            column("grid", "_int4", array("int4", Comparison::Decimal)),
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
fn read(text: &str) -> Vec<(String, String, Vec<String>)> {
    let filter = parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .unwrap();
    let conditions = filter.conditions().iter();
    conditions
        .map(|one| {
            (
                one.column.to_string(),
                format!(
                    "{}{}",
                    if one.negated { "not." } else { "" },
                    one.operator.as_str()
                ),
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
        let operator: &str = operator;
        assert_eq!(
            read(text),
            [(column.to_owned(), operator.to_owned(), values)],
            "{text}"
        );
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
    one("name=like.%a_b\\%", "name", "like", &["%a_b\\%"]);
    one("name=not.ilike.a.b", "name", "not.ilike", &["a.b"]);
    one(r#"name=match."^(a,b)\\d$""#, "name", "match", &[r"^(a,b)\d$"]);
    one("done=is.null", "done", "is", &["null"]);
    one("done=not.is.unknown", "done", "not.is", &["unknown"]);
    one("room=not.in.(1,2)", "room", "not.in", &["1", "2"]);
    one("room=isdistinct.1", "room", "isdistinct", &["1"]);
    one("tags=eq.{a,\"b,c\"}", "tags", "eq", &["{a,\"b,c\"}"]);
    one("name=not.eq.not.eq.1", "name", "not.eq", &["not.eq.1"]);
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
        ("room=not.1", broken(1, Malformed::Form)),
        ("room=not", broken(1, Malformed::Form)),
        ("room=not.in.1", broken(1, Malformed::NotAList)),
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
        ("name=fts.a", "operator fts "),
        ("room=not.not.eq.1", "operator not "),
        ("room=not.cs.1", "operator cs "),
        ("room=foo.1", "this operator "),
        ("room=EQ.1", "this operator "),
        ("room=eq.1,name=plfts.a", "operator plfts "),
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
        pattern_bytes_max: 10_000,
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
    let too_complex = parse("name=match.(a{250}){250}")
        .unwrap()
        .unwrap()
        .bind(&facts())
        .unwrap_err();
    assert_eq!(
        too_complex.to_string(),
        "filter condition 1, column \"name\": match: the regular expression is too complex (at most 10000 bytes once compiled)"
    );
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
            "doc=eq.{}",
            "filter condition 1, column \"doc\": eq does not apply to type json",
        ),
        (
            "price=eq.1",
            "filter condition 1, column \"price\": eq does not apply to type money",
        ),
        (
            "meta=gt.{}",
            "filter condition 1, column \"meta\": gt does not apply to type jsonb",
        ),
        (
            "tags=lte.{}",
            "filter condition 1, column \"tags\": lte does not apply to type _text",
        ),
        (
            "room=like.1",
            "filter condition 1, column \"room\": like does not apply to type int4",
        ),
        (
            "meta=is.null",
            "filter condition 1, column \"meta\": is does not apply to type jsonb",
        ),
        (
            "doc=not.is.null",
            "filter condition 1, column \"doc\": is does not apply to type json",
        ),
        (
            "meta=eq.null",
            "filter condition 1, column \"meta\": the JSON value null cannot be told from SQL's null",
        ),
        (
            "meta=not.isdistinct.null",
            "filter condition 1, column \"meta\": the JSON value null cannot be told from SQL's null",
        ),
        (
            "room=is.true",
            "filter condition 1, column \"room\": is takes null, and on boolean columns true, false and unknown",
        ),
        (
            "done=is.maybe",
            "filter condition 1, column \"done\": is takes null, and on boolean columns true, false and unknown",
        ),
        (
            "fold=eq.a",
            "filter condition 1, column \"fold\": eq does not apply to a column with a nondeterministic collation",
        ),
        (
            "name=ilike.a",
            "filter condition 1, column \"name\": ilike: it needs the collation C, POSIX or the database's own, in a database of encoding UTF8 or LATIN1",
        ),
        (
            r"name=match.\yfoo",
            "filter condition 1, column \"name\": match: a word limit such as \\y is not supported in a regular expression",
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

/// Each operator, and its negation, on a value that passes, one that does not, and null.
#[test]
fn three_valued_logic_is_kept_under_negation() {
    for (condition, passes, fails, null) in [
        ("room=eq.5", "5", "6", None),
        ("room=neq.5", "6", "5", None),
        ("room=gt.5", "6", "5", None),
        ("room=gte.5", "5", "4", None),
        ("room=lt.5", "4", "5", None),
        ("room=lte.5", "5", "6", None),
        ("room=in.(5,6)", "5", "7", None),
        ("room=in.(5)", "5", "7", None),
        ("room=isdistinct.5", "6", "5", Some(true)),
        ("room=is.null", "null", "5", Some(true)),
        ("done=is.true", "true", "false", Some(false)),
        ("done=is.false", "false", "true", Some(false)),
        ("done=is.unknown", "null", "true", Some(true)),
        ("name=like.a%", "\"ab\"", "\"b\"", None),
        ("name=match.^a", "\"ab\"", "\"b\"", None),
        ("code=ilike.A_", "\"aB\"", "\"b\"", None),
        ("code=imatch.A", "\"ba\"", "\"b\"", None),
        ("tags=eq.{a}", "[\"a\"]", "[\"a\",null]", None),
        ("meta=isdistinct.1", "2", "1.0", Some(true)),
    ] {
        let (column, test) = condition.split_once('=').unwrap();
        let negated = format!("{column}=not.{test}");
        let row = |value: &str| format!("{{\"{column}\":{value}}}");
        assert!(
            matches(condition, &row(passes)) && !matches(&negated, &row(passes)),
            "{condition}"
        );
        assert!(
            !matches(condition, &row(fails)) && matches(&negated, &row(fails)),
            "{condition}"
        );
        let of_null = (matches(condition, &row("null")), matches(&negated, &row("null")));
        let expected = null.map_or((false, false), |known| (known, !known));
        assert_eq!(of_null, expected, "{condition} of null");
        // Nothing is known of a row without the column, or with a text that is no value.
        for row in ["{}", "nonsense"] {
            assert!(
                !matches(condition, row) && !matches(&negated, row),
                "{condition} on {row}"
            );
        }
    }
}

#[test]
fn jsonb_and_arrays_are_equal_as_postgresql_says() {
    for (filter, row, expected) in [
        (
            r#"meta=eq.{"b":[1,"x"],"a":1}"#,
            r#"{"a": 1.0, "b": [1, "x"]}"#,
            true,
        ),
        (r#"meta=eq.{"a":1,"a":2}"#, r#"{"a": 2}"#, true),
        (r#"meta=eq.{"a":[1,2]}"#, r#"{"a": [2, 1]}"#, false),
        (r#"meta=eq."\"\u00e9\"""#, r#""é""#, true),
        (r#"meta=eq."1""#, r#""1""#, false),
        ("meta=eq.1e2", "100", true),
        ("meta=neq.null", "1", true),
        ("meta=neq.null", "null", false),
        ("meta=neq.5", "null", false),
        ("meta=eq.[]", "[]", true),
        ("meta=eq.[]", "{}", false),
        ("meta=neq.[[]]", "[[[]]]", true),
        ("tags=eq.{}", "[]", true),
        (
            "tags=eq.{a, \"b c\" ,NULL,\"NULL\",b\\,c}",
            r#"["a","b c",null,"NULL","b,c"]"#,
            true,
        ),
        ("tags=eq.{a,b}", r#"["b","a"]"#, false),
        ("grid=eq.{{1,2},{3,4}}", "[[1,2],[3,4]]", true),
        ("grid=eq.{1,2,3,4}", "[[1,2],[3,4]]", false),
        ("grid=neq.{{1},{2}}", "[[1,2]]", true),
        ("grid=in.(\"{1}\",\"{02}\")", "[2]", true),
        ("pad=eq.ab", "\"ab   \"", true),
        ("pad=like.ab", "\"ab   \"", false),
        ("pad=like.ab___", "\"ab   \"", true),
    ] {
        let (column, _) = filter.split_once('=').unwrap();
        assert_eq!(
            matches(filter, &format!("{{\"{column}\":{row}}}")),
            expected,
            "{filter} on {row}"
        );
    }
    let deep = format!("{{\"meta\":{}1{}}}", "[".repeat(3_000), "]".repeat(3_000));
    assert!(!matches("meta=eq.1", &deep) && matches("meta=neq.1", &deep));
    for filter in [
        "meta=eq.",
        "meta=eq.{a:1}",
        "meta=eq.01",
        "meta=eq.[1,]",
        "meta=eq.1 2",
        r#"meta=eq."\"\\ud800\"""#,
        r#"meta=eq."\"\\u0000\"""#,
        "tags=eq.a",
        "tags=eq.{a",
        "tags=eq.{a,}",
        "tags=eq.{,a}",
        "tags=eq.{a}b",
        "tags=eq.{{}}",
        "tags=eq.[0:0]={a}",
        "grid=eq.{{1},{2,3}}",
        "grid=eq.{1,{2}}",
        "grid=eq.{{{{{{{1}}}}}}}",
        "grid=eq.{x}",
    ] {
        assert!(matches!(bind(filter), Err(FilterError::Value { .. })), "{filter}");
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

#[test]
fn lists_of_columns_are_read() {
    let names =
        |text| column_names(text).map(|names| names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
    assert_eq!(
        names("id, a b ,x"),
        Some(vec!["id".into(), "a b".into(), "x".into()])
    );
    assert_eq!(
        names(r#""a,b","c\"d" , e"#),
        Some(vec!["a,b".into(), "c\"d".into(), "e".into()])
    );
    for broken in ["", ",", "a,", ",a", "a,,b", "\"a", "\"a\"b", "\"\""] {
        assert_eq!(names(broken), None, "{broken}");
    }
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

proptest! {
    #[test]
    fn quoted_text_is_read_back(
        written in proptest::collection::vec(
            ("[^\\x00]{1,12}", 0..13usize, any::<bool>(), proptest::collection::vec("[^\\x00]{0,12}", 1..4)), 1..4),
    ) {
        let print = |(column, operator, negated, values): &(String, usize, bool, Vec<String>)| {
            let operator = Operator::ALL[*operator];
            let not = if *negated { "not." } else { "" };
            let items: Vec<String> = values.iter().map(|value| quote(value)).collect();
            match operator {
                Operator::In => format!("{}={not}in.({})", quote(column), items.join(",")),
                _ => format!("{}={not}{}.{}", quote(column), operator.as_str(), items[0]),
            }
        };
        let text = written.iter().map(print).collect::<Vec<_>>().join(",");
        let expected: Vec<_> = written.into_iter().map(|(column, operator, negated, mut values)| {
            let operator = Operator::ALL[operator];
            if operator != Operator::In { values.truncate(1); }
            (column, format!("{}{}", if negated { "not." } else { "" }, operator.as_str()), values)
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
    fn nothing_is_dropped(text in "(a=(not[.])?(eq|in|gt|like|is)[.][(]?[a-b=.,() ]{0,10}[)]?,?){1,3}") {
        if let Ok(Some(filter)) = parse(&text) {
            let letters = |text: &str| text.bytes().filter(|b| matches!(b, b'a' | b'b')).count();
            let kept: usize = filter.conditions().iter()
                .map(|one| letters(&one.column) + one.values.iter().map(|value| letters(value)).sum::<usize>())
                .sum();
            prop_assert_eq!(kept, letters(&text), "{}", text);
        }
    }
}
