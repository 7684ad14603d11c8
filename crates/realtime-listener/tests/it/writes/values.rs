//! Random constants of every type, odd ones first.

use super::Dice;

/// Columns of `every` that take values of their own, with their types.
pub const COLUMNS: &[(&str, &str)] = &[
    ("n", "numeric"),
    ("p", "price"),
    ("f4", "float"),
    ("f8", "float"),
    ("b", "bytea"),
    ("at", "time point"),
    ("ts", "time point"),
    ("d", "date"),
    ("tm", "time"),
    ("tz", "timetz"),
    ("iv", "interval"),
    ("m", "money"),
    ("r", "range"),
    ("mr", "multirange"),
    ("fr", "float range"),
    ("tr", "time range"),
    ("j", "json"),
    ("jb", "json"),
    ("tags", "texts"),
    ("fa", "floats"),
    ("mood", "mood"),
    ("pair", "pair"),
    ("pairs", "pairs"),
    ("nest", "nest"),
    ("u", "uuid"),
    ("t", "text"),
    ("vc", "text"),
    ("c", "char"),
    ("\"q\"", "char"),
    ("nm", "char"),
    ("cl", "class"),
    ("bits", "bits"),
    ("vb", "varbit"),
    ("x", "xml"),
    ("tv", "words"),
    ("tq", "words"),
    ("ip", "inet"),
    ("ci", "cidr"),
    ("mac", "mac"),
    ("pt", "point"),
    ("bx", "box"),
    ("pa", "path"),
    ("po", "path"),
    ("cir", "circle"),
    ("ln", "line"),
    ("lsn", "lsn"),
    ("o", "oid"),
    ("jp", "jsonpath"),
    ("bo", "bool"),
    ("i2", "int"),
    ("i4", "int"),
];

/// A text as an SQL constant, whatever `standard_conforming_strings` says.
pub fn quoted(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

impl Dice {
    /// A text that something between here and a JSON object might stumble over.
    pub fn odd_text(&mut self) -> String {
        const ASCII: &[&str] = &[
            "",
            " ",
            "a",
            "a,b",
            "\"q\"",
            "it's",
            "back\\slash",
            "\n\t\r",
            "\u{1}\u{1f}\u{7f}",
            "null",
            "NULL",
            "{}",
            "[1]",
            "\\u0000",
            "<&>",
            ",\"new\":",
            "\"}",
            "$$",
            "--",
            ";",
            "%s",
            "\\",
            "trailing ",
        ];
        const LATIN: &[&str] = &["é", "ÿþ", "\u{a0}", "\u{85}", "\u{ad}"];
        const WIDE: &[&str] = &[
            "語",
            "😀",
            "\u{2028}",
            "\u{feff}",
            "e\u{301}",
            "\u{202e}",
            "\u{10ffff}",
        ];
        let mut pool = ASCII.to_vec();
        if !self.ascii_only {
            pool.extend(LATIN);
            if !self.latin_only {
                pool.extend(WIDE);
            }
        }
        let mut text = String::new();
        for _ in 0..self.below(4) {
            text.push_str(pool[self.below(pool.len())]);
        }
        text
    }

    /// A text whose row's JSON lies around the limit, or far beyond it.
    pub fn sized_text(&mut self) -> String {
        let units: &[(&str, usize)] = match (self.ascii_only, self.latin_only) {
            (true, _) => &[("'x'", 1), ("'\"'", 2)],
            (_, true) => &[("'x'", 1), ("'é'", 2), ("chr(1)", 6)],
            _ => &[("'x'", 1), ("'é'", 2), ("'😀'", 4), ("chr(1)", 6), ("'\"'", 2)],
        };
        let (unit, bytes) = units[self.below(units.len())];
        let size = match self.below(12) {
            0..=3 => 7_500 + self.below(450),
            // Both images of an update.
            4..=6 => 3_700 + self.below(250),
            7 => 2_500,
            8 => 100_000,
            9 if self.chance(10) => 3_000_000,
            _ => self.below(600),
        };
        format!("pg_catalog.repeat({unit}, {})", size / bytes)
    }

    /// A constant for a column of this kind; sometimes one that the column refuses.
    pub fn constant(&mut self, kind: &str) -> String {
        if self.chance(100) {
            return quoted(&self.odd_text());
        }
        if self.chance(12) {
            return "null".to_owned();
        }
        if kind == "text" {
            return if self.chance(4) {
                self.sized_text()
            } else {
                quoted(&self.odd_text())
            };
        }
        if kind == "json" && self.chance(15) {
            let depth = 300;
            return quoted(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        }
        let pool = constants(kind);
        quoted(pool[self.below(pool.len())])
    }
}

fn constants(kind: &str) -> &'static [&'static str] {
    match kind {
        "numeric" => &[
            "0.10",
            "-0",
            "12345678901234567890.123456789",
            "NaN",
            "Infinity",
            "1e-300",
            "1e300",
        ],
        "price" => &["0", "0.10", "9999999999.99", "-1"],
        "float" => &[
            "0.1",
            "-0",
            "NaN",
            "Infinity",
            "-Infinity",
            "1e-40",
            "3.4028235e38",
            "1e300",
            "0.30000000000000004",
        ],
        "bytea" => &["\\xdeadbeef", "\\x", "\\x00ff", "abc\\\\def"],
        "time point" => &[
            "infinity",
            "-infinity",
            "0044-03-15 00:00:00 BC",
            "2026-06-04 10:00:00.123456",
            "294276-12-31",
            "1969-12-31 23:59:59.999999",
        ],
        "date" => &[
            "infinity",
            "-infinity",
            "2026-06-04",
            "4713-01-01 BC",
            "5874897-12-31",
            "12/11/10",
        ],
        "time" => &["24:00:00", "00:00", "23:59:59.999999"],
        "timetz" => &["24:00:00-12", "00:00+15:59", "10:00:00 America/New_York"],
        "interval" => &[
            "1 day -02:03:04",
            "-1 year",
            "0",
            "178000000 years",
            "1.5 months",
            "P1Y2M3DT4H5M6.7S",
        ],
        "money" => &["1234.5", "-0.01", "92233720368547758.07"],
        "range" => &["[1,5)", "empty", "(,)", "[5,1)"],
        "multirange" => &["{}", "{[1.0,2.50),(3,4]}", "{(,)}"],
        "float range" => &["[0.1,0.30000000000000004]", "empty", "(-Infinity,NaN]"],
        "time range" => &[
            "[2026-01-01 00:00+00,2026-02-01 00:00-05)",
            "(,infinity)",
            "empty",
        ],
        "json" => &[
            "{}",
            "null",
            "[]",
            "\"s\"",
            "{\"a\":1,\"a\":2}",
            "{ \"n\" : 12345678901234567890.1234567890 }",
            "[\n1 ,\t2]",
            "\"\\u0000\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "1e400",
            "-0",
            "{\"\":{\"\":[[[[[[]]]]]]}}",
        ],
        "texts" => &[
            "{}",
            "{\"a,b\",NULL,\"c\\\\\\\"d\"}",
            "{{a,b},{c,d}}",
            "[5:6]={x,y}",
            "{null}",
        ],
        "floats" => &[
            "{0.30000000000000004,NaN}",
            "{Infinity,-Infinity}",
            "{}",
            "{{1},{2}}",
        ],
        "mood" => &["sad", "ok", "back\\slash", "unknown"],
        "pair" => &[
            "(9007199254740993,y,ok)",
            "(,,)",
            "(1,\"a,\\\"b\\\\\\\\\",sad)",
            "(1,2)",
        ],
        "pairs" => &["{\"(1,y,ok)\",\"(,,)\"}", "{}", "{NULL}"],
        "nest" => &["(\"(1,y,ok)\",\"{\"\"(2,z,sad)\"\"}\",2026-01-01)", "(,,)"],
        "uuid" => &[
            "00000000-0000-4000-8000-000000000001",
            "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
        ],
        "char" => &["a", " ", "abcde", "", "ab"],
        "class" => &[
            "pg_catalog.pg_class",
            "pg_class",
            "twin.docs",
            "0",
            "-",
            "4294967295",
        ],
        "bits" => &["10101", "00000", "1"],
        "varbit" => &["1", "", "101010101010101"],
        "xml" => &[
            "<a>b</a>",
            "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a/>",
            "text",
            "<a",
            "<a b=\"&lt;'\"/>",
        ],
        "words" => &["a", "fat & cat", "'it''s' & !dog", ""],
        "inet" => &["10.0.0.1/8", "::1", "2001:db8::/32", "256.0.0.1"],
        "cidr" => &["10.0.0.0/8", "2001:db8::/32", "10.0.0.1/8"],
        "mac" => &["08:00:2b:01:02:03", "08002b010203"],
        "point" => &["(1.5,-2)", "(NaN,Infinity)", "(1e-300,0.1)"],
        "box" => &["((0,0),(1,1))", "(1e300,0),(0,NaN)"],
        "path" => &["((0,0),(1,1),(2,0))", "((0.1,0.2))"],
        "circle" => &["<(0,0),1>", "<(0.1,NaN),Infinity>"],
        "line" => &["{1,2,3}", "{0,0,1}", "[(0,0),(1,1)]"],
        "lsn" => &["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"],
        "oid" => &["0", "4294967295", "-1"],
        "jsonpath" => &["$.a[*] ? (@.b > 1)", "strict $.\"x\"", "$"],
        "bool" => &["t", "off", "yes"],
        "int" => &["0", "-1", "32767", "2147483647", "99999999999"],
        _ => &["1"],
    }
}
