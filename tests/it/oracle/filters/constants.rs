//! Random values of each type, other spellings of them, and texts that are nearly values.

use fastrand::Rng;

use super::columns::{Column, Compare, LABELS};

/// A constant for a filter: a value as a row may hold it, spelled in one of its ways; sometimes damaged.
pub fn constant(rng: &mut Rng, column: &Column) -> String {
    let spelled = match column.compare {
        Compare::Decimal if rng.u8(..40) == 0 => one(rng, &EDGES).to_owned(),
        Compare::Float4 | Compare::Float8 if rng.u8(..20) == 0 => one(rng, &FLOAT_EDGES).to_owned(),
        Compare::Bool => one(rng, &BOOLEANS).to_owned(),
        Compare::Uuid => respelled_uuid(rng),
        _ => {
            let value = value(rng, column);
            respelled(rng, column, value)
        }
    };
    if rng.u8(..8) == 0 {
        damaged(rng, &spelled)
    } else {
        spelled
    }
}

/// A value as SQL text, valid for its column. Drawn from few, so that rows and constants often agree.
pub fn value(rng: &mut Rng, column: &Column) -> String {
    match column.compare {
        Compare::Decimal => number(rng, column.definition),
        Compare::Float4 => float(rng, &["1e38", "-1e38", "1e-40", "16777217"]),
        Compare::Float8 => float(rng, &["1e308", "-1e308", "5e-324", "9007199254740993"]),
        Compare::Bool => one(rng, &["true", "false"]).to_owned(),
        Compare::TextByBytes if column.type_name == "char" => {
            one(rng, &["", "a", "b", "B", " ", "\"", "\\"]).to_owned()
        }
        Compare::TextByBytes | Compare::TextInSomeOrder => one(rng, &TEXTS).to_owned(),
        Compare::Padded => one(
            rng,
            &["", "a", "ab", "ab ", "B", "é", " a", "a\tb", "ab\t", "abcde"],
        )
        .to_owned(),
        Compare::Uuid => uuid(rng),
        Compare::Date => date(rng, "5874897", "4714-11-24 BC"),
        Compare::Time => clock(rng),
        Compare::Timestamp => timestamp(rng, ""),
        Compare::TimestampTz => {
            let offset = one(
                rng,
                &["", "Z", "+00", "+02", "-0330", "+05:45", "-08:00", "+00:00:30"],
            );
            timestamp(rng, offset)
        }
        Compare::Bytea => {
            let bytes: String = (0..rng.usize(..3))
                .map(|_| one(rng, &["00", "01", "7f", "80", "fF"]))
                .collect();
            format!(r"\x{bytes}")
        }
        Compare::Enum => one(rng, &LABELS).to_owned(),
        Compare::TimeTz => {
            let offset = one(
                rng,
                &["+00", "+02", "-0330", "+05:45", "-08:00", "+00:00:30", "Z"],
            );
            format!(
                "{}{offset}",
                one(rng, &["10:00:00", "12:00:00", "07:30:00.5", "24:00:00"])
            )
        }
        Compare::Interval => one(rng, &INTERVALS).to_owned(),
        Compare::Inet => one(rng, &ADDRESSES).to_owned(),
        Compare::Cidr => one(rng, &NETWORKS).to_owned(),
        Compare::Jsonb => json(rng, 3),
        Compare::TextArray => array(
            rng,
            &["a", "b", "\"a,b\"", "NULL", "\"NULL\"", "\"\"", "\"q\\\"\"", "é"],
        ),
        Compare::IntArray => array(rng, &["1", "2", "-3", "NULL"]),
        Compare::MoodArray => array(rng, &["sad", "ok", "\"a,b\"", "O'Brien", "NULL"]),
    }
}

/// An array of one or two dimensions.
fn array(rng: &mut Rng, elements: &[&str]) -> String {
    let part = |rng: &mut Rng, length: usize| {
        let items: Vec<&str> = (0..length).map(|_| one(rng, elements)).collect();
        format!("{{{}}}", items.join(","))
    };
    match rng.u8(..6) {
        0 => part(rng, 0),
        1 => format!("{{{},{}}}", part(rng, 1), part(rng, 1)),
        2 => format!("{{{}}}", part(rng, 2)),
        _ => {
            let length = rng.usize(1..3);
            part(rng, length)
        }
    }
}

/// A JSON text of at most so many levels.
fn json(rng: &mut Rng, levels: u8) -> String {
    let scalar = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "1.0",
        "1e2",
        "100",
        "0.10",
        "\"a\"",
        "\"\\u00e9\"",
        "\"é\"",
        "\"1\"",
    ];
    if levels == 0 || rng.u8(..3) > 0 {
        return one(rng, &scalar).to_owned();
    }
    let count = rng.usize(..3);
    if rng.bool() {
        let items: Vec<String> = (0..count).map(|_| json(rng, levels - 1)).collect();
        format!("[{}]", items.join(one(rng, &[",", ", "])))
    } else {
        let members: Vec<String> = (0..count)
            .map(|_| format!("\"{}\":{}", one(rng, &["a", "b", ""]), json(rng, levels - 1)))
            .collect();
        format!("{{{}}}", members.join(","))
    }
}

/// A value or item as a filter writes it: quoted where it must be, and sometimes where it need not.
pub fn written(rng: &mut Rng, value: &str) -> String {
    let must = value.is_empty() || value.contains([',', '(', ')', '"', '\\']) || value.trim_ascii() != value;
    if must || rng.bool() {
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        value.to_owned()
    }
}

const EDGES: [&str; 14] = [
    "32767",
    "32768",
    "-32768",
    "-32769",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-1",
    "1e131071",
    "1e-16383",
];

const FLOAT_EDGES: [&str; 8] = [
    "1e309",
    "-1e309",
    "1e-400",
    "1e39",
    "1e-46",
    "3.4028236e38",
    "inf",
    "-Infinity",
];

const BOOLEANS: [&str; 24] = [
    "t", "tr", "TRUE", "true", "f", "fa", "False", "y", "YES", "n", "no", "on", "ON", "of", "off", "o", "1",
    "0", " t ", "2", "", "truex", "offf", "nope",
];

const TEXTS: [&str; 24] = [
    "", "a", "A", "b", "ab", "a ", " a", "é", "e\u{301}", "日本", "😀", "a\\b", "\"q\"", "a,b", "x,y=eq.1",
    "(", ")", "a\tb", "a\nb", "\u{1}", "null", "NULL", "O'Brien", "\u{fffd}",
];

const INTERVALS: [&str; 22] = [
    "00:00:00",
    "1 mon",
    "30 days",
    "720:00:00",
    "1 year",
    "12 mons",
    "360 days",
    "1 year 2 mons 3 days 04:05:06.7",
    "1 year 2 mons 3 days 4 hours 5 minutes 6.7 seconds",
    "P1Y2M3DT4H5M6.7S",
    "-1 days",
    "-1 days +24:00:00",
    "-24:00:00",
    "1 week",
    "P1W",
    "7 days",
    "PT0.000001S",
    "-0.5 seconds",
    "P-1D",
    "1 day -00:00:01",
    "178000 years",
    "-178000 years",
];

const ADDRESSES: [&str; 18] = [
    "10.0.0.1",
    "10.0.0.1/32",
    "10.0.0.1/24",
    "10.0.0.2/24",
    "10.0.0.0/24",
    "10.0.0.0/8",
    "10.0.0.0",
    "9.255.255.255",
    "0.0.0.0/0",
    "255.255.255.255",
    "::1",
    "::",
    "::/0",
    "::ffff:10.0.0.1",
    "2001:db8::1/64",
    "2001:DB8::2/64",
    "2001:db8:0:0:0:0:0:1/64",
    "fe80::/10",
];

const NETWORKS: [&str; 10] = [
    "10.0.0.0/24",
    "10.0.0.0/8",
    "10.0.0.1",
    "10.0.0.0/25",
    "10.0.0.128/25",
    "0.0.0.0/0",
    "192.168.0.0/16",
    "2001:db8::/32",
    "2001:db8::/64",
    "::/0",
];

fn one<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

fn number(rng: &mut Rng, definition: &str) -> String {
    let small = rng.i32(-12..13);
    match definition {
        "oid" => one(rng, &["0", "1", "7", "10", "4294967295", "2147483648"]).to_owned(),
        "int8" if rng.bool() => one(
            rng,
            &[
                "9007199254740992",
                "9007199254740993",
                "-9223372036854775808",
                "9223372036854775807",
            ],
        )
        .to_owned(),
        "numeric" if rng.bool() => one(
            rng,
            &[
                "NaN",
                "Infinity",
                "-Infinity",
                "0.1",
                "0.10",
                "-0.1",
                "1e20",
                "100000000000000000000",
                "1e-20",
                "123456789012345678901234567890.123456789",
                "123456789012345678901234567890.123456788",
                "1e300",
                "9.99",
            ],
        )
        .to_owned(),
        "numeric(10,2)" => format!("{small}.{}", one(rng, &["00", "5", "50", "99"])),
        _ => small.to_string(),
    }
}

fn float(rng: &mut Rng, edges: &[&str]) -> String {
    match rng.u8(..4) {
        0 => one(rng, &["NaN", "Infinity", "-Infinity", "0", "-0", "0.1", "0.3"]).to_owned(),
        1 => one(rng, edges).to_owned(),
        2 => format!("{}.5", rng.i32(-3..4)),
        _ => rng.i32(-3..4).to_string(),
    }
}

fn uuid(rng: &mut Rng) -> String {
    format!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a{:02x}", 0x1a + rng.u8(..4))
}

fn respelled_uuid(rng: &mut Rng) -> String {
    let uuid = uuid(rng);
    match rng.u8(..6) {
        0 => uuid.to_uppercase(),
        1 => uuid.replace('-', ""),
        2 => format!("{{{uuid}}}"),
        3 => "a0eebc999c0b4ef8bb6d6bb9bd380a1b"
            .as_bytes()
            .chunks(4)
            .map(String::from_utf8_lossy)
            .collect::<Vec<_>>()
            .join("-"),
        _ => uuid,
    }
}

fn date(rng: &mut Rng, last_year: &str, first: &str) -> String {
    match rng.u8(..12) {
        0 => one(rng, &["infinity", "-infinity"]).to_owned(),
        1 => first.to_owned(),
        2 => format!("{last_year}-12-31"),
        3 => one(
            rng,
            &[
                "0001-01-01",
                "0001-12-31 BC",
                "0004-02-29",
                "0005-02-29 BC",
                "0044-03-15 BC",
            ],
        )
        .to_owned(),
        4 => one(
            rng,
            &[
                "1582-10-15",
                "1900-02-28",
                "2000-02-29",
                "9999-12-31",
                "10000-01-01",
                "99999-06-01",
            ],
        )
        .to_owned(),
        _ => format!("2026-0{}-{:02}", rng.u8(1..4), rng.u8(1..4)),
    }
}

fn clock(rng: &mut Rng) -> String {
    let time = one(rng, &["00:00:00", "10:00:00", "12:30:45", "23:59:59"]);
    let fraction = one(rng, &["", "", ".5", ".50", ".123456", ".000001", ".999999"]);
    if rng.u8(..10) == 0 {
        "24:00:00".to_owned()
    } else {
        format!("{time}{fraction}")
    }
}

fn timestamp(rng: &mut Rng, offset: &str) -> String {
    let date = date(rng, "294275", "4713-01-01 BC");
    let Some(day) = date
        .strip_suffix(" BC")
        .or((!date.ends_with("infinity")).then_some(&*date))
    else {
        return date;
    };
    let era = &date[day.len()..];
    format!(
        "{day}{}{}{offset}{era}",
        if rng.bool() { " " } else { "T" },
        clock(rng)
    )
}

/// Another spelling of the same value, or of one close to it.
fn respelled(rng: &mut Rng, column: &Column, value: String) -> String {
    match (column.compare, rng.u8(..8)) {
        (Compare::Decimal, 0) => format!(" {value}\n"),
        (Compare::Decimal, 1) if !value.starts_with('-') => format!("+{value}"),
        (Compare::Decimal, 2) if column.type_name == "numeric" && !value.contains(['.', 'e', 'f', 'N']) => {
            one(rng, &["{}.000", "{}e0", "{}.", "{}0e-1", "0{}"]).replace("{}", &value)
        }
        (Compare::Decimal | Compare::Float4 | Compare::Float8, 3) => value.to_uppercase(),
        (Compare::Float4 | Compare::Float8, 4) if !value.contains(['e', 'y', 'N']) => format!("{value}e0"),
        (Compare::Padded, 0) => format!("{value}   "),
        (Compare::TextByBytes | Compare::TextInSomeOrder, 0) if column.type_name != "char" => {
            format!("{value}a")
        }
        (Compare::Date, 0) => format!(" {value} "),
        (Compare::Date, 1) if !value.ends_with('y') && !value.ends_with("BC") => format!("{value} ad"),
        (Compare::Date, 2) => one(
            rng,
            &[
                "2026-02-29",
                "2026-13-01",
                "0000-01-01",
                "5874898-01-01",
                "4714-11-23 BC",
                "1900-02-29",
                "now",
                "epoch",
                "today",
                "20260102",
                "January 2, 2026",
                "2026-01-02 10:00",
                "99-01-02",
                "2026-1-2",
                "2026.033",
                "J2451187",
            ],
        )
        .to_owned(),
        (Compare::Time, 0) => format!("{}7", clock(rng)),
        (Compare::Time, 1) => one(
            rng,
            &[
                "10:00",
                "23:59:59.9999999",
                "24:00:01",
                "25:00",
                "10:60",
                "10:00:60",
                "10:00 PM",
                "100000",
                "10:00+02",
                "1:2:3",
                "10:00:00.",
                "12:30:45.1234565",
                "allballs",
                "24:00:00.0000001",
            ],
        )
        .to_owned(),
        (Compare::Timestamp | Compare::TimestampTz, 0) => one(
            rng,
            &[
                "2026-01-01",
                "2026-02-29 10:00",
                "2026-01-01 24:00",
                "2026-01-01 24:00:01",
                "294277-01-01",
                "294276-12-31 23:59:59.999999",
                "294276-12-31T23:59:59-01",
                "4714-11-24 00:00 BC",
                "4714-11-24 00:00+01 BC",
                "4714-11-23 BC",
                "2026-01-01 10:00+15:59",
                "2026-01-01 10:00+16",
                "2026-01-01 10:00 +02",
                "2026-01-01+02",
                "2026-01-01 10:00 Europe/Vienna",
                "2026-01-01T10:00:60",
                "now",
                "epoch",
                "2026-01-01 10:00 PM",
                "2026-01-01 10:00+1",
                "0000-01-01",
                "2026-01-01t10:00:00z",
                "2026-01-01  10:00",
                "20260101T100000Z",
            ],
        )
        .to_owned(),
        (Compare::Timestamp | Compare::TimestampTz, 1) => {
            let offset = one(rng, &["Z", "+02", "-0330", "+05:45", "+00:00:30", "+15:60"]);
            format!(
                "2026-01-0{}T{}:30:00.{}{offset}",
                rng.u8(1..4),
                one(rng, &["00", "10", "24"]),
                rng.u32(..)
            )
        }
        (Compare::Bytea, 0) => one(
            rng,
            &[
                r"\x0", r"\x 00", r"\X00", "abc", r"\\001", r"\x0g", r"\x00 ff", r"\",
            ],
        )
        .to_owned(),
        (Compare::TimeTz, 0) => one(
            rng,
            &[
                "10:00",
                "10:00Z",
                "10:00:00+15:59",
                "10:00:00+16",
                "10:00:00 +02",
                "24:00:01+00",
                "10:00 PM",
                "10:00:00 Europe/Vienna",
                "2026-01-01 10:00+02",
                "10:00:00.1234567+02",
            ],
        )
        .to_owned(),
        (Compare::Interval, 0 | 1) => one(
            rng,
            &[
                "1 day ago",
                "@ 1 day",
                "1-2",
                "1 century",
                "1.5 days",
                "1 day 1 day",
                "1 day 1 year",
                "00:60",
                "1:2:3",
                "1 day 2",
                "5",
                "P",
                "P1",
                "PT",
                "P1H",
                "P1Y2D3M",
                "p1d",
                "",
                "1 days 1",
                "1 hour 00:00:01",
                "1 year  2 months",
                "+1 year -2 mons",
                "1 sec",
                "00:00:01.1234567",
                "9999999 days",
                "1 day\t2 hours",
            ],
        )
        .to_owned(),
        (Compare::Inet | Compare::Cidr, 0 | 1) => one(
            rng,
            &[
                "10.0.0.1/33",
                "10.0.0",
                "10",
                "10.1/16",
                "010.0.0.1",
                "10.0.0.256",
                "10.0.0.1/08",
                "10.0.0.1/",
                " 10.0.0.1",
                "::1/129",
                "1:2:3:4:5:6:7:8:9",
                "1::2::3",
                "::g",
                "10.0.0.1/24",
                "2001:db8::1/64",
                "::ffff:1.2.3.400",
                "",
                "1:2:3:4:5:6:7::",
                "10.0.0.1/0",
            ],
        )
        .to_owned(),
        (Compare::Jsonb, 0 | 1) => one(
            rng,
            &[
                "",
                "nul",
                "01",
                "1.",
                ".5",
                "+1",
                "1e",
                "[1,]",
                "{\"a\"}",
                "{\"a\":1,}",
                "{a:1}",
                "'a'",
                "\"a",
                "\"\\ud800\"",
                "\"\\u0000\"",
                "\"\\x\"",
                " 1 ",
                "\t[ 1 ,\n2 ]",
                "1 2",
                "{\"a\":1,\"a\":2}",
                "{\"b\":1,\"a\":2}",
                "1e999999",
                "NaN",
                "\"\\ud83d\\ude00\"",
                "\"\\/\"",
                "1E+2",
            ],
        )
        .to_owned(),
        (Compare::TextArray | Compare::IntArray | Compare::MoodArray, 0) => one(
            rng,
            &[
                "",
                "{",
                "}",
                "{a",
                "{a}b",
                "{1,}",
                "{,1}",
                "{{1},{1,2}}",
                "{1,{2}}",
                "{{1},2}",
                "{{}}",
                "{{},{}}",
                "[1:1]={1}",
                "[0:0]={1}",
                " { 1 , 2 } ",
                "{null}",
                "{\"null\"}",
                "{nUlL}",
                "{\\1}",
                "{1\\ }",
                "{\"1\"}",
                "{\"a\"b}",
                "{a\"b\"}",
                "{{{{{{1}}}}}}",
                "{{{{{{{1}}}}}}}",
                "{1 2}",
                "{ }",
                "{1}}",
            ],
        )
        .to_owned(),
        (Compare::Enum, 0) => one(rng, &["Sad", "sad ", "", "angry"]).to_owned(),
        _ => value,
    }
}

/// A text with one character taken out, put in or changed.
fn damaged(rng: &mut Rng, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = rng.usize(..=chars.len());
    let put = one(
        rng,
        &[
            "0", "1", "9", "-", "+", ".", ":", " ", "e", "x", "_", "T", "Z", "a", "{", "\\",
        ],
    )
    .chars();
    match rng.u8(..3) {
        0 if at < chars.len() => {
            chars.remove(at);
        }
        1 if at < chars.len() => {
            chars.splice(at..=at, put);
        }
        _ => {
            chars.splice(at..at, put);
        }
    }
    chars.into_iter().collect()
}
