//! From the catalog's types to how filters compare them.
//!
//! Must never guess: a type that is not known here, or whose equality is not that of its text,
//! is opaque.

use realtime_core::table::{Collation, Comparison, Element, Letters};

use super::Fidelity;

/// What the catalog says of a column's type, domains followed to their base.
#[derive(Debug, Default)]
pub struct TypeRow {
    /// `pg_type.oid` of the base type.
    pub oid: u32,
    /// `pg_type.typtype` of the base type.
    pub kind: String,
    /// The collation orders by bytes.
    pub ordered_by_bytes: bool,
    /// Equal under the collation means equal bytes.
    pub deterministic: bool,
    /// What the collation takes for letters: `ascii`, `wide` or not known.
    pub letters: Option<String>,
    /// Of `wide`: the lower case of U+0130.
    pub dotted_i: String,
    /// Of `wide`: the lower case of U+212A.
    pub kelvin: String,
    /// An enum's labels in their order; of an array of enums, theirs.
    pub labels: Option<Vec<String>>,
    /// Of an array: the type of its elements.
    pub element: Option<ElementRow>,
    /// The printed text need not be the value at all.
    pub opaque: bool,
}

/// The type of an array's elements, domains followed to their base.
#[derive(Debug, Default)]
pub struct ElementRow {
    /// `pg_type.oid`.
    pub oid: u32,
    /// `pg_type.typname`.
    pub name: String,
    /// `pg_type.typtype`.
    pub kind: String,
}

/// How a column's values compare.
pub fn comparison(row: &TypeRow) -> Comparison {
    // json and jsonb print SQL's null and the JSON value null alike; a composite that prints as something may be
    // null, because all its fields are.
    if row.opaque || row.kind == "c" || row.oid == 114 {
        return Comparison::Veiled;
    }
    if row.oid == 3802 {
        return Comparison::Jsonb;
    }
    match &row.element {
        Some(element) => match scalar(row, element.oid, &element.kind) {
            Comparison::Opaque | Comparison::FoldedText => Comparison::Opaque,
            compare => Comparison::Array(Box::new(Element {
                type_name: element.name.as_str().into(),
                compare,
            })),
        },
        None => scalar(row, row.oid, &row.kind),
    }
}

/// How the values of a type compare that prints as a JSON scalar.
fn scalar(row: &TypeRow, oid: u32, kind: &str) -> Comparison {
    if kind == "e" {
        let labels = row.labels.iter().flatten().map(|label| label.as_str().into());
        return Comparison::Enum(labels.collect());
    }
    match oid {
        // int2, int4, int8, oid, numeric
        21 | 23 | 20 | 26 | 1700 => Comparison::Decimal,
        700 => Comparison::Float4,
        701 => Comparison::Float8,
        16 => Comparison::Bool,
        // text, varchar, name, char(n)
        25 | 1043 | 19 | 1042 if !row.deterministic => Comparison::FoldedText,
        25 | 1043 | 19 => Comparison::Text(collation(row)),
        1042 => Comparison::PaddedText(collation(row)),
        2950 => Comparison::Uuid,
        1082 => Comparison::Date,
        1083 => Comparison::Time,
        1266 => Comparison::TimeTz,
        1114 => Comparison::Timestamp,
        1184 => Comparison::TimestampTz,
        1186 => Comparison::Interval,
        // inet, cidr
        869 | 650 => Comparison::Network,
        17 => Comparison::Bytea,
        _ => Comparison::Opaque,
    }
}

fn collation(row: &TypeRow) -> Collation {
    Collation {
        ordered_by_bytes: row.ordered_by_bytes,
        letters: match row.letters.as_deref() {
            Some("ascii") => Letters::Ascii,
            Some("wide") => Letters::Wide {
                dotted_i: row.dotted_i.as_str().into(),
                kelvin: row.kelvin.as_str().into(),
            },
            _ => Letters::Unknown,
        },
    }
}

/// How far a column's image stands for its value.
pub fn fidelity(opaque: bool, json_top: bool, json_inside: bool) -> Fidelity {
    match (opaque, json_top, json_inside) {
        (true, _, _) => Fidelity::Opaque,
        (false, true, _) => Fidelity::JsonNull,
        (false, false, true) => Fidelity::JsonInside,
        (false, false, false) => Fidelity::Exact,
    }
}
