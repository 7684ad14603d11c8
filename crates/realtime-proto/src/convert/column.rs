//! Columns as filters need to know them.

use realtime_core::table::{Collation, ColumnFacts, Comparison, Element, Letters};

use super::Malformed;
use crate::v1;

impl From<&ColumnFacts> for v1::Column {
    fn from(column: &ColumnFacts) -> Self {
        let collation = match &column.compare {
            Comparison::Text(collation) | Comparison::PaddedText(collation) => Some(collation),
            _ => None,
        };
        let element = match &column.compare {
            Comparison::Array(element) => Some(element),
            _ => None,
        };
        let labels = match element.map_or(&column.compare, |element| &element.compare) {
            Comparison::Enum(order) => order.iter().map(|label| label.to_string()).collect(),
            _ => Vec::new(),
        };
        Self {
            name: column.name.to_string(),
            type_name: column.type_name.to_string(),
            readable: column.readable,
            primary_key: column.key,
            comparison: comparison(&column.compare).into(),
            ordered_by_bytes: collation.is_some_and(|collation| collation.ordered_by_bytes),
            enum_labels: labels,
            letters: collation.and_then(|collation| letters(&collation.letters)),
            element: element.map(|element| v1::Element {
                type_name: element.type_name.to_string(),
                comparison: comparison(&element.compare).into(),
            }),
        }
    }
}

fn comparison(compare: &Comparison) -> v1::Comparison {
    match compare {
        Comparison::Opaque => v1::Comparison::Opaque,
        Comparison::Veiled => v1::Comparison::Veiled,
        Comparison::Decimal => v1::Comparison::Decimal,
        Comparison::Float4 => v1::Comparison::Float4,
        Comparison::Float8 => v1::Comparison::Float8,
        Comparison::Bool => v1::Comparison::Bool,
        Comparison::Text(_) => v1::Comparison::Text,
        Comparison::PaddedText(_) => v1::Comparison::PaddedText,
        Comparison::FoldedText => v1::Comparison::FoldedText,
        Comparison::Uuid => v1::Comparison::Uuid,
        Comparison::Date => v1::Comparison::Date,
        Comparison::Time => v1::Comparison::Time,
        Comparison::TimeTz => v1::Comparison::Timetz,
        Comparison::Timestamp => v1::Comparison::Timestamp,
        Comparison::TimestampTz => v1::Comparison::Timestamptz,
        Comparison::Interval => v1::Comparison::Interval,
        Comparison::Network => v1::Comparison::Network,
        Comparison::Bytea => v1::Comparison::Bytea,
        Comparison::Enum(_) => v1::Comparison::Enum,
        Comparison::Jsonb => v1::Comparison::Jsonb,
        Comparison::Array(_) => v1::Comparison::Array,
    }
}

fn letters(letters: &Letters) -> Option<v1::Letters> {
    let kind = match letters {
        Letters::Unknown => return None,
        Letters::Ascii => v1::letters::Kind::Ascii(v1::letters::Ascii {}),
        Letters::Wide { dotted_i, kelvin } => v1::letters::Kind::Wide(v1::letters::Wide {
            dotted_i: dotted_i.to_string(),
            kelvin: kelvin.to_string(),
        }),
    };
    Some(v1::Letters { kind: Some(kind) })
}

impl TryFrom<v1::Column> for ColumnFacts {
    type Error = Malformed;

    fn try_from(message: v1::Column) -> Result<Self, Self::Error> {
        let compare = match message.comparison() {
            v1::Comparison::Array => {
                let element = message.element.as_ref().ok_or(Malformed("element"))?;
                Comparison::Array(Box::new(Element {
                    type_name: element.type_name.as_str().into(),
                    compare: compared(element.comparison(), &message)?,
                }))
            }
            other => compared(other, &message)?,
        };
        Ok(Self {
            name: message.name.into(),
            type_name: message.type_name.into(),
            compare,
            readable: message.readable,
            key: message.primary_key,
        })
    }
}

/// A comparison but for an array's, with what else the column says of it.
fn compared(comparison: v1::Comparison, column: &v1::Column) -> Result<Comparison, Malformed> {
    let collation = || Collation {
        ordered_by_bytes: column.ordered_by_bytes,
        letters: match column.letters.as_ref().and_then(|letters| letters.kind.as_ref()) {
            None => Letters::Unknown,
            Some(v1::letters::Kind::Ascii(_)) => Letters::Ascii,
            Some(v1::letters::Kind::Wide(wide)) => Letters::Wide {
                dotted_i: wide.dotted_i.as_str().into(),
                kelvin: wide.kelvin.as_str().into(),
            },
        },
    };
    Ok(match comparison {
        v1::Comparison::Unspecified | v1::Comparison::Array => return Err(Malformed("comparison")),
        v1::Comparison::Opaque => Comparison::Opaque,
        v1::Comparison::Veiled => Comparison::Veiled,
        v1::Comparison::Decimal => Comparison::Decimal,
        v1::Comparison::Float4 => Comparison::Float4,
        v1::Comparison::Float8 => Comparison::Float8,
        v1::Comparison::Bool => Comparison::Bool,
        v1::Comparison::Text => Comparison::Text(collation()),
        v1::Comparison::PaddedText => Comparison::PaddedText(collation()),
        v1::Comparison::FoldedText => Comparison::FoldedText,
        v1::Comparison::Uuid => Comparison::Uuid,
        v1::Comparison::Date => Comparison::Date,
        v1::Comparison::Time => Comparison::Time,
        v1::Comparison::Timetz => Comparison::TimeTz,
        v1::Comparison::Timestamp => Comparison::Timestamp,
        v1::Comparison::Timestamptz => Comparison::TimestampTz,
        v1::Comparison::Interval => Comparison::Interval,
        v1::Comparison::Network => Comparison::Network,
        v1::Comparison::Bytea => Comparison::Bytea,
        v1::Comparison::Jsonb => Comparison::Jsonb,
        v1::Comparison::Enum => Comparison::Enum(
            column
                .enum_labels
                .iter()
                .map(|label| label.as_str().into())
                .collect(),
        ),
    })
}
