use std::cmp::Ordering::{self, Equal, Greater, Less};

use proptest::prelude::*;

use super::*;
use crate::table::Collation;

fn column(type_name: &str) -> ColumnFacts {
    let compare = match type_name {
        "int2" | "int4" | "int8" | "oid" | "numeric" => Comparison::Decimal,
        "float4" => Comparison::Float4,
        "float8" => Comparison::Float8,
        "bool" => Comparison::Bool,
        "text" | "name" | "char" => Comparison::Text(Collation::C),
        "bpchar" => Comparison::PaddedText(Collation::C),
        "uuid" => Comparison::Uuid,
        "date" => Comparison::Date,
        "time" => Comparison::Time,
        "timestamp" => Comparison::Timestamp,
        "timestamptz" => Comparison::TimestampTz,
        "bytea" => Comparison::Bytea,
        "mood" => Comparison::Enum(["sad", "ok", "happy"].map(Box::from).into()),
        _ => Comparison::Opaque,
    };
    ColumnFacts {
        name: "c".into(),
        type_name: type_name.into(),
        compare,
        readable: true,
        key: false,
    }
}

fn bind(type_name: &str, text: &str) -> Result<Constant, ValueError> {
    Constant::bind(&column(type_name), text)
}

/// How a row's value stands to a constant.
fn compare(type_name: &str, row_json: &str, constant: &str) -> Option<Ordering> {
    bind(type_name, constant).unwrap().compare(row_json)
}

#[test]
fn values_compare_as_postgresql_compares_them() {
    let cases = [
        ("int8", "9007199254740992", "9007199254740993", Less),
        ("int8", "-2", "-10", Greater),
        ("int8", "0", "-0", Equal),
        ("int4", "7", " +007\n", Equal),
        ("oid", "\"4294967295\"", "4294967295", Equal),
        ("numeric", "1.0000", "1", Equal),
        ("numeric", "10", "9.99", Greater),
        ("numeric", "-0.00", "0", Equal),
        ("numeric", "100", "1e2", Equal),
        ("numeric", "0.001", "1.0E-3", Equal),
        ("numeric", "-12", "-123", Greater),
        ("numeric", "-1.2", "-1.23", Greater),
        ("numeric", "12", "123", Less),
        (
            "numeric",
            "123456789012345678901234567890.1",
            "123456789012345678901234567890.2",
            Less,
        ),
        ("numeric", "\"NaN\"", "nan", Equal),
        ("numeric", "\"NaN\"", "Infinity", Greater),
        ("numeric", "\"Infinity\"", "1e131071", Greater),
        ("numeric", "\"-Infinity\"", "-1e131071", Less),
        ("float8", "\"NaN\"", "NaN", Equal),
        ("float8", "\"NaN\"", "inf", Greater),
        ("float8", "-0", "0", Equal),
        ("float8", "-1.5", "-1.25", Less),
        ("float8", "0.1", "0.1000000000000000055511151231257827", Equal),
        ("float4", "0.1", "0.1", Equal),
        ("float4", "1.6777216e+07", "16777217", Equal),
        ("float4", "\"-Infinity\"", "-3e38", Less),
        ("bool", "true", "T", Equal),
        ("bool", "false", "of", Equal),
        ("bool", "false", "yes", Less),
        ("text", r#""a\"\\\n\u0001é""#, "a\"\\\n\u{1}é", Equal),
        ("text", r#""B""#, "a", Less),
        ("text", r#""é""#, "z", Greater),
        ("text", r#""a ""#, "a", Greater),
        ("text", r#""""#, "", Equal),
        ("bpchar", r#""ab   ""#, "ab", Equal),
        ("bpchar", r#""ab   ""#, "ab ", Equal),
        (
            "uuid",
            r#""a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11""#,
            "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
            Equal,
        ),
        (
            "uuid",
            r#""a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11""#,
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a12",
            Less,
        ),
        ("date", r#""2026-02-28""#, "2026-03-01", Less),
        ("date", r#""0044-03-15 BC""#, "0043-01-01 BC", Less),
        ("date", r#""infinity""#, "5874897-12-31", Greater),
        ("date", r#""10000-01-01""#, "9999-12-31", Greater),
        ("time", r#""24:00:00""#, "23:59:59.9999999", Equal),
        ("time", r#""12:30:00.5""#, "12:30:00.500", Equal),
        (
            "timestamp",
            r#""2026-06-04T10:00:00""#,
            "2026-06-04 10:00+02",
            Equal,
        ),
        ("timestamp", r#""2026-06-04T00:00:00""#, "2026-06-04", Equal),
        ("timestamp", r#""-infinity""#, "4714-11-24 00:00:00 BC", Less),
        (
            "timestamptz",
            r#""2026-06-04T10:00:00.123+00:00""#,
            "2026-06-04T12:00:00.123+02",
            Equal,
        ),
        (
            "timestamptz",
            r#""2026-06-04T10:00:00+00:00""#,
            "2026-06-04T04:15:00-0545",
            Equal,
        ),
        (
            "timestamptz",
            r#""2026-06-04T10:00:00+00:00""#,
            "2026-06-04T10:00:00.000001Z",
            Less,
        ),
        (
            "timestamptz",
            r#""0044-03-15T12:00:00+00:00 BC""#,
            "0044-03-15 13:00:00+01:00 BC",
            Equal,
        ),
        ("bytea", r#""\\x00ff""#, r"\x00FF", Equal),
        ("bytea", r#""\\x00ff""#, r"\x00ff00", Less),
        ("mood", r#""happy""#, "sad", Greater),
        ("mood", r#""ok""#, "ok", Equal),
    ];
    for (type_name, row, constant, expected) in cases {
        assert_eq!(
            compare(type_name, row, constant),
            Some(expected),
            "{type_name}: {row} to {constant}"
        );
    }
}

#[test]
fn null_and_what_is_no_value_of_the_type_are_unknown() {
    for (type_name, constant) in [
        ("int4", "1"),
        ("text", "null"),
        ("bool", "f"),
        ("uuid", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
        ("mood", "ok"),
    ] {
        for row in ["null", "{}", "[1]", "", "\"", "\"zzz", "tru"] {
            assert_eq!(compare(type_name, row, constant), None, "{type_name}: {row}");
        }
    }
    assert_eq!(
        compare("mood", r#""angry""#, "ok"),
        None,
        "a label that was added later"
    );
}

#[test]
fn constants_are_refused_where_postgresql_refuses_them() {
    let malformed = [
        ("int4", "1.5"),
        ("int4", ""),
        ("int4", "1 2"),
        ("int8", "1e3"),
        ("numeric", "."),
        ("numeric", "1e"),
        ("numeric", "--1"),
        ("numeric", "+nan"),
        ("float8", "1.0f"),
        ("bool", "o"),
        ("bool", ""),
        ("bool", "truely"),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1"),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-"),
        ("uuid", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("uuid", " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("date", "2026-02"),
        ("timestamp", "10:00"),
        ("timestamptz", "2026-01-01T10:00:00+"),
        ("bytea", r"\x0"),
        ("bytea", r"\x0g"),
        ("mood", "OK"),
        ("text", "a\0b"),
    ];
    for (type_name, text) in malformed {
        let result = bind(type_name, text);
        assert!(
            matches!(result, Err(ValueError::Malformed { .. })),
            "{type_name}: {text:?}: {result:?}"
        );
    }
    let out_of_range = [
        ("int2", "32768"),
        ("int4", "-2147483649"),
        ("int8", "9223372036854775808"),
        ("int8", "99999999999999999999999999999999999999999999"),
        ("oid", "4294967296"),
        ("numeric", "1e131072"),
        ("numeric", "1e-16384"),
        ("float8", "1e400"),
        ("float8", "1e-400"),
        ("float4", "1e39"),
        ("float4", "1e-60"),
        ("date", "2026-02-29"),
        ("date", "0000-01-01"),
        ("date", "5874898-01-01"),
        ("date", "4714-11-23 BC"),
        ("time", "24:00:01"),
        ("timestamp", "294277-01-01"),
        ("timestamptz", "2026-01-01 10:00+16"),
        ("timestamptz", "294276-12-31 23:59:59-01"),
    ];
    for (type_name, text) in out_of_range {
        let result = bind(type_name, text);
        assert!(
            matches!(result, Err(ValueError::OutOfRange { .. })),
            "{type_name}: {text:?}: {result:?}"
        );
    }
    assert_eq!(bind("int4range", "[1,2)"), Err(ValueError::NotComparable));
}

/// The list of the module's documentation.
#[test]
fn constants_are_refused_on_purpose() {
    let refused = [
        ("int4", "0x1F"),
        ("int4", "1_000"),
        ("numeric", "1_000.5"),
        ("numeric", "1e 5"),
        ("oid", "-1"),
        ("oid", "010"),
        ("float8", "0x1p3"),
        ("float8", "nan(1)"),
        (
            "name",
            "a234567890123456789012345678901234567890123456789012345678901234",
        ),
        ("char", "ab"),
        ("date", "January 8, 1999"),
        ("date", "20260101"),
        ("date", "now"),
        ("date", "99-01-01"),
        ("date", "2026-01-01 10:00"),
        ("time", "10:00+02"),
        ("time", "10:00:60"),
        ("time", "1:00"),
        ("time", "10:00 PM"),
        ("timestamptz", "2026-01-01 10:00 Europe/Vienna"),
        ("timestamptz", "2026-01-01 10:00 +02"),
        ("timestamptz", "2026-01-01+02"),
        ("timestamptz", "epoch"),
        ("bytea", "abc"),
        ("bytea", r"\x00 ff"),
    ];
    for (type_name, text) in refused {
        assert!(bind(type_name, text).is_err(), "{type_name}: {text:?}");
    }
}

#[test]
fn errors_and_debug_never_show_the_value() {
    for type_name in [
        "int4",
        "numeric",
        "float8",
        "bool",
        "uuid",
        "date",
        "timestamptz",
        "bytea",
        "mood",
    ] {
        let error = bind(type_name, "s3cret").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
    assert_eq!(format!("{:?}", bind("text", "s3cret").unwrap()), "Constant(Text)");
    assert_eq!(format!("{:?}", bind("mood", "happy").unwrap()), "Constant(Enum)");
}

/// Compares two plain decimals digit by digit, the way one does on paper.
fn on_paper(a: &(bool, String, String), b: &(bool, String, String)) -> Ordering {
    let signed = |(negative, whole, fraction): &(bool, String, String)| {
        let digits = format!("{whole:0>40}{fraction:0<40}");
        let zero = digits.bytes().all(|b| b == b'0');
        (*negative && !zero, digits)
    };
    match (signed(a), signed(b)) {
        ((false, a), (false, b)) => a.cmp(&b),
        ((true, a), (true, b)) => b.cmp(&a),
        ((true, _), (false, _)) => Less,
        ((false, _), (true, _)) => Greater,
    }
}

proptest! {
    #[test]
    fn decimals_compare_as_on_paper(
        a in (any::<bool>(), "[0-9]{1,40}", "[0-9]{1,40}"),
        b in (any::<bool>(), "[0-9]{1,3}", "[0-9]{1,3}"),
        swap in any::<bool>(),
    ) {
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let print = |(negative, whole, fraction): &(bool, String, String)| {
            format!("{}{whole}.{fraction}", if *negative { "-" } else { "" })
        };
        prop_assert_eq!(compare("numeric", &print(&a), &print(&b)), Some(on_paper(&a, &b)));
    }

    #[test]
    fn shifting_the_point_changes_nothing(digits in "[1-9][0-9]{0,30}", shift in 0..30usize) {
        let shifted = format!("{digits}{}e-{shift}", "0".repeat(shift));
        prop_assert_eq!(compare("numeric", &digits, &shifted), Some(Equal));
    }

    #[test]
    fn floats_compare_as_numbers(a in any::<f64>(), b in any::<f64>(), c in any::<f32>(), d in any::<f32>()) {
        prop_assume!(!a.is_nan() && !b.is_nan() && !c.is_nan() && !d.is_nan());
        prop_assert_eq!(compare("float8", &format!("{a:e}"), &format!("{b:e}")), a.partial_cmp(&b));
        prop_assert_eq!(compare("float4", &format!("{c:e}"), &format!("{d:e}")), c.partial_cmp(&d));
    }

    #[test]
    fn text_compares_by_bytes(a in any::<String>(), b in any::<String>()) {
        prop_assume!(!b.contains('\0'));
        let row = serde_json::to_string(&a).unwrap();
        prop_assert_eq!(compare("text", &row, &b), Some(a.as_bytes().cmp(b.as_bytes())));
    }

    /// Days count up by one through the whole calendar.
    #[test]
    fn a_day_follows_a_day(year in -4712..294_276i64, month in 1..=12i64, day in 1..=31i64) {
        prop_assume!(day <= datetime::days_of_month(year, month));
        let next = if day < datetime::days_of_month(year, month) {
            (year, month, day + 1)
        } else if month < 12 {
            (year, month + 1, 1)
        } else {
            (year + 1, 1, 1)
        };
        let print = |(year, month, day): (i64, i64, i64)| {
            if year > 0 { format!("{year:04}-{month:02}-{day:02}") }
            else { format!("{:04}-{month:02}-{day:02} BC", 1 - year) }
        };
        prop_assert_eq!(datetime::date(&print(next)), datetime::date(&print((year, month, day))).map(|day| day + 1));
    }

    #[test]
    fn nothing_panics(type_at in 0..17usize, row in ".{0,40}", constant in ".{0,40}") {
        let types = ["int2", "int4", "int8", "oid", "numeric", "float4", "float8", "bool", "text", "name", "bpchar",
            "uuid", "date", "time", "timestamp", "timestamptz", "bytea"];
        let column = column(types[type_at]);
        if let Ok(constant) = Constant::bind(&column, &constant) {
            let _ = constant.compare(&row);
        }
        let _ = ValueKind::of(&column.compare).map(|kind| kind.read(&row, &mut Vec::new()));
    }
}
