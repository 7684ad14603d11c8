//! The table: one column of each type that filters compare, and random values for its rows.

use fastrand::Rng;
use realtime_core::table::{Collation, ColumnFacts, Comparison, Element};

use super::constants;

/// One column of the table.
pub struct Column {
    pub name: &'static str,
    /// Its type, collation included, as in CREATE TABLE.
    pub definition: &'static str,
    /// The type that constants are cast to: without modifiers.
    pub cast: &'static str,
    pub type_name: &'static str,
    pub compare: Compare,
    /// The spellings that are documented to be read, as a regular expression of PostgreSQL's.
    pub form: &'static str,
}

/// `Comparison`, in a form that a table can hold.
#[derive(Clone, Copy, PartialEq)]
pub enum Compare {
    Decimal,
    Float4,
    Float8,
    Bool,
    TextByBytes,
    TextInSomeOrder,
    Padded,
    Uuid,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Bytea,
    Enum,
    TimeTz,
    Interval,
    Inet,
    Cidr,
    Jsonb,
    TextArray,
    IntArray,
    MoodArray,
}

pub const LABELS: [&str; 5] = ["sad", "ok", "happy", "O'Brien", "a,b"];

const ANY: &str = "";
const WHOLE: &str = r"^\s*[+-]?[0-9]+\s*$";
const OID: &str = r"^\s*\+?(0|[1-9][0-9]*)\s*$";
const NUMERIC: &str = r"(?i)^\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|[+-]?inf(inity)?)\s*$";
const FLOAT: &str = r"(?i)^\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf(inity)?)\s*$";
const ONE: &str = r"^.?$";
const DATE: &str = r"(?i)^\s*(([0-9]{4}|[1-9][0-9]{4,6})-[0-9]{2}-[0-9]{2}( bc| ad)?|-?infinity)\s*$";
const TIME: &str = r"^\s*[0-9]{2}:[0-9]{2}(:[0-5][0-9](\.[0-9]+)?)?\s*$";
const TIMESTAMP: &str = r"(?i)^\s*(([0-9]{4}|[1-9][0-9]{4,6})-[0-9]{2}-[0-9]{2}([ t][0-9]{2}:[0-9]{2}(:[0-5][0-9](\.[0-9]+)?)?(z|[+-][0-9]{2}(:?[0-9]{2}|:[0-9]{2}:[0-9]{2})?)?)?( bc| ad)?|-?infinity)\s*$";
const BYTEA: &str = r"(?i)^\\x([0-9a-f]{2})*$";

const TIMETZ: &str = r"(?i)^\s*[0-9]{2}:[0-9]{2}(:[0-5][0-9](\.[0-9]+)?)?(z|[+-][0-9]{2}(:?[0-9]{2}|:[0-9]{2}:[0-9]{2})?)?\s*$";
const INTERVAL: &str = r"^\s*((?=\S)([+-]?[0-9]{1,6} +years?( +|\s*$))?([+-]?[0-9]{1,6} +mon(s|th|ths)?( +|\s*$))?([+-]?[0-9]{1,6} +weeks?( +|\s*$))?([+-]?[0-9]{1,6} +days?( +|\s*$))?([+-]?[0-9]{1,6}:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?|([+-]?[0-9]{1,6} +hours?( +|\s*$))?([+-]?[0-9]{1,6} +minutes?( +|\s*$))?([+-]?[0-9]{1,6}(\.[0-9]{1,6})? +seconds?)?)|P(?=[-0-9T])(-?[0-9]{1,6}Y)?(-?[0-9]{1,6}M)?(-?[0-9]{1,6}W)?(-?[0-9]{1,6}D)?(T(?=[-0-9])(-?[0-9]{1,6}H)?(-?[0-9]{1,6}M)?(-?[0-9]{1,6}(\.[0-9]{1,6})?S)?)?$)\s*$";
const NETWORK: &str = r"(?i)^(?!.*[^:]:(/|$))((([1-9]?[0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])\.){3}([1-9]?[0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])(/([0-9]|[12][0-9]|3[0-2]))?|[0-9a-f:]*:((([1-9]?[0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])\.){3}([1-9]?[0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])|[0-9a-f]*)(/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))?)$";
/// Anything but the JSON value null at the top.
const JSONB: &str = r"^(?!\s*null\s*$)";
/// Without bounds, and without an empty array within.
const ARRAY: &str = r"^\s*\{(\s*|(?!.*\{\s*\}).*)\}\s*$";
const INT_ARRAY: &str = r"(?i)^\s*\{(\s*|(?!.*\{\s*\})[-+{},0-9nul\s\u0022]*)\}\s*$";

pub const COLUMNS: [Column; 31] = [
    column("c_int2", "int2", "int2", Compare::Decimal, WHOLE),
    column("c_int4", "int4", "int4", Compare::Decimal, WHOLE),
    column("c_int8", "int8", "int8", Compare::Decimal, WHOLE),
    column("c_oid", "oid", "oid", Compare::Decimal, OID),
    column("c_numeric", "numeric", "numeric", Compare::Decimal, NUMERIC),
    column("c_money", "numeric(10,2)", "numeric", Compare::Decimal, NUMERIC),
    column("c_float4", "float4", "float4", Compare::Float4, FLOAT),
    column("c_float8", "float8", "float8", Compare::Float8, FLOAT),
    column("c_bool", "bool", "bool", Compare::Bool, ANY),
    column("c_text", "text collate \"C\"", "text", Compare::TextByBytes, ANY),
    column("c_words", "text", "text", Compare::TextInSomeOrder, ANY),
    column(
        "c_varchar",
        "varchar(40) collate \"C\"",
        "varchar",
        Compare::TextByBytes,
        ANY,
    ),
    column("c_name", "name", "name", Compare::TextByBytes, ANY),
    Column {
        cast: "\"char\"",
        ..column("c_char", "\"char\"", "char", Compare::TextByBytes, ONE)
    },
    column(
        "c_bpchar",
        "char(5) collate \"C\"",
        "bpchar",
        Compare::Padded,
        ANY,
    ),
    column("c_uuid", "uuid", "uuid", Compare::Uuid, ANY),
    column("c_date", "date", "date", Compare::Date, DATE),
    column("c_time", "time", "time", Compare::Time, TIME),
    column(
        "c_timestamp",
        "timestamp",
        "timestamp",
        Compare::Timestamp,
        TIMESTAMP,
    ),
    column(
        "c_timestamptz",
        "timestamptz",
        "timestamptz",
        Compare::TimestampTz,
        TIMESTAMP,
    ),
    column("c_bytea", "bytea", "bytea", Compare::Bytea, BYTEA),
    column("c_mood", "mood", "mood", Compare::Enum, ANY),
    column("c_timetz", "timetz", "timetz", Compare::TimeTz, TIMETZ),
    column("c_interval", "interval", "interval", Compare::Interval, INTERVAL),
    column("c_inet", "inet", "inet", Compare::Inet, NETWORK),
    column("c_cidr", "cidr", "cidr", Compare::Cidr, NETWORK),
    column("c_jsonb", "jsonb", "jsonb", Compare::Jsonb, JSONB),
    Column {
        cast: "text[]",
        ..column("c_texts", "text[]", "_text", Compare::TextArray, ARRAY)
    },
    Column {
        cast: "small[]",
        ..column("c_ints", "small[]", "_small", Compare::IntArray, INT_ARRAY)
    },
    Column {
        cast: "mood[]",
        ..column("c_moods", "mood[]", "_mood", Compare::MoodArray, ARRAY)
    },
    Column {
        cast: "int4",
        ..column("Odd, \"n=m\".x", "small", "int4", Compare::Decimal, WHOLE)
    },
];

const fn column(
    name: &'static str,
    definition: &'static str,
    type_name: &'static str,
    compare: Compare,
    form: &'static str,
) -> Column {
    Column {
        name,
        definition,
        cast: type_name,
        type_name,
        compare,
        form,
    }
}

/// The types that the table needs.
pub const TYPES: &str = r#"
    create type mood as enum ('sad', 'ok', 'happy', 'O''Brien', 'a,b');
    create domain small as int4 check (value < 1000000000);
"#;

/// The statements that make the table anew and fill it with random rows, numbered from 0.
pub fn table(rng: &mut Rng, rows: usize) -> String {
    let definitions: Vec<String> = COLUMNS
        .iter()
        .map(|column| format!("{} {}", identifier(column.name), column.definition))
        .collect();
    let mut sql = format!(
        "drop table if exists oracle; create table oracle (row_number int, {});",
        definitions.join(", ")
    );
    for row in 0..rows {
        let values: Vec<String> = COLUMNS
            .iter()
            .map(|column| match rng.u8(..10) {
                0 => "null".to_owned(),
                _ => literal(&constants::value(rng, column)),
            })
            .collect();
        sql += &format!("insert into oracle values ({row}, {});\n", values.join(", "));
    }
    sql
}

fn array(type_name: &str, compare: Comparison) -> Comparison {
    Comparison::Array(Box::new(Element {
        type_name: type_name.into(),
        compare,
    }))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Column {
    pub fn position(&self) -> usize {
        COLUMNS
            .iter()
            .position(|column| column.name == self.name)
            .unwrap_or(COLUMNS.len())
    }

    /// Whether values of this column may be ordered by a filter.
    pub fn ordered(&self) -> bool {
        !matches!(
            self.compare,
            Compare::TextInSomeOrder
                | Compare::Jsonb
                | Compare::TextArray
                | Compare::IntArray
                | Compare::MoodArray
        )
    }

    /// The column in SQL, as far as its printed value tells it: the JSON value null counts as null.
    pub fn sql(&self) -> String {
        let name = identifier(self.name);
        match self.compare {
            Compare::Jsonb => format!("nullif({name}, 'null')"),
            _ => name,
        }
    }

    /// The name as a filter writes it.
    pub fn written(&self) -> String {
        if self.name.contains(['=', ',', '"']) {
            format!("\"{}\"", self.name.replace('\\', "\\\\").replace('"', "\\\""))
        } else {
            self.name.to_owned()
        }
    }

    pub fn facts(&self) -> ColumnFacts {
        let compare = match self.compare {
            Compare::Decimal => Comparison::Decimal,
            Compare::Float4 => Comparison::Float4,
            Compare::Float8 => Comparison::Float8,
            Compare::Bool => Comparison::Bool,
            Compare::TextByBytes => Comparison::Text(Collation::C),
            Compare::TextInSomeOrder => Comparison::Text(Collation::UNKNOWN),
            Compare::Padded => Comparison::PaddedText(Collation::C),
            Compare::Uuid => Comparison::Uuid,
            Compare::Date => Comparison::Date,
            Compare::Time => Comparison::Time,
            Compare::Timestamp => Comparison::Timestamp,
            Compare::TimestampTz => Comparison::TimestampTz,
            Compare::Bytea => Comparison::Bytea,
            Compare::Enum => Comparison::Enum(LABELS.map(Box::from).into()),
            Compare::TimeTz => Comparison::TimeTz,
            Compare::Interval => Comparison::Interval,
            Compare::Inet | Compare::Cidr => Comparison::Network,
            Compare::Jsonb => Comparison::Jsonb,
            Compare::TextArray => array("text", Comparison::Text(Collation::UNKNOWN)),
            Compare::IntArray => array("int4", Comparison::Decimal),
            Compare::MoodArray => array("mood", Comparison::Enum(LABELS.map(Box::from).into())),
        };
        ColumnFacts {
            name: self.name.into(),
            type_name: self.type_name.into(),
            compare,
            readable: true,
            key: false,
        }
    }
}
