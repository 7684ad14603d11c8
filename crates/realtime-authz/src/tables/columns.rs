//! From the catalog's types to how filters compare them.
//!
//! Must never guess: a type that is not known here, or whose equality is not that of its text,
//! is opaque.

use realtime_core::table::Comparison;

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
    /// An enum's labels in their order.
    pub labels: Option<Vec<String>>,
}

/// How a column's values compare.
pub fn comparison(row: &TypeRow) -> Comparison {
    let ordered_by_bytes = row.ordered_by_bytes;
    if row.kind == "e" {
        let labels = row.labels.iter().flatten().map(|label| label.as_str().into());
        return Comparison::Enum(labels.collect());
    }
    match row.oid {
        // int2, int4, int8, oid, numeric
        21 | 23 | 20 | 26 | 1700 => Comparison::Decimal,
        700 => Comparison::Float4,
        701 => Comparison::Float8,
        16 => Comparison::Bool,
        // text, varchar, name
        25 | 1043 | 19 if row.deterministic => Comparison::Text { ordered_by_bytes },
        1042 if row.deterministic => Comparison::PaddedText { ordered_by_bytes },
        2950 => Comparison::Uuid,
        1082 => Comparison::Date,
        1083 => Comparison::Time,
        1114 => Comparison::Timestamp,
        1184 => Comparison::TimestampTz,
        17 => Comparison::Bytea,
        _ => Comparison::Opaque,
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
