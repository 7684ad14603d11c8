//! One image of a row, made ready to become a row again.
//!
//! Must never let a policy look at a value that the image does not carry: a column that it reads
//! and the image lacks makes the image unreadable, and one whose text may stand for two values is
//! read both ways.

use realtime_core::change::{Row, RowError};

use crate::tables::{Column, Fidelity, Table};

/// Most columns of one image that are read both ways; each doubles the work.
const BOTH_WAYS_MAX: usize = 2;

/// An image as parameters of a statement.
#[derive(Debug)]
pub struct Image {
    /// The row's JSON, cut down to what the policy looks at.
    pub json: String,
    /// The rows that `json` is laid over, as composite literals; `None`: all columns null. One per
    /// way to read the image.
    pub bases: Vec<Option<String>>,
    /// One of the ways is the right one. Else the image alone does not settle the matter.
    pub exact: bool,
}

/// The image cannot be turned back into the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

impl From<RowError> for Unreadable {
    fn from(_: RowError) -> Self {
        Self
    }
}

impl Image {
    /// Prepares a row's image for the table's policy.
    pub fn new(table: &Table, row: &Row) -> Result<Self, Unreadable> {
        let mut both_ways = Vec::new();
        let mut exact = true;
        for (at, column) in table.columns.iter().enumerate() {
            if !table.policy.reads.reads(column.attnum) {
                continue;
            }
            // Renamed or added since: what the policy reads is not in the image.
            let value = row.get(&column.facts.name)?.ok_or(Unreadable)?;
            match ambiguity(column, value) {
                Ambiguity::None => {}
                Ambiguity::NullOrJsonNull => both_ways.push(at),
                Ambiguity::Open => exact = false,
            }
        }
        if both_ways.len() > BOTH_WAYS_MAX {
            both_ways.clear();
            exact = false;
        }
        let json = row.project(|name| {
            table.columns.iter().position(|column| &*column.facts.name == name).is_some_and(|at| {
                let column = &table.columns[at];
                // A domain may refuse the null of a column that is left out.
                (table.policy.reads.reads(column.attnum) || column.domain) && !both_ways.contains(&at)
            })
        })?;
        Ok(Self { json, bases: bases(table.columns.len(), &both_ways), exact })
    }

    /// The image read as it stands, SQL NULL for every null: not exact, where it was read both ways.
    pub fn plain(table: &Table, row: &Row) -> Result<Self, Unreadable> {
        let image = Self::new(table, row)?;
        let exact = image.exact && image.bases.len() == 1;
        Ok(Self { bases: vec![None], exact, ..image })
    }
}

enum Ambiguity {
    None,
    NullOrJsonNull,
    Open,
}

fn ambiguity(column: &Column, value: &str) -> Ambiguity {
    match column.fidelity {
        Fidelity::Exact => Ambiguity::None,
        Fidelity::JsonNull if value == "null" => Ambiguity::NullOrJsonNull,
        Fidelity::JsonNull => Ambiguity::None,
        // An inner null or array may have been json; the text `null` in a string only makes one ask too often.
        Fidelity::JsonInside if value == "null" => Ambiguity::None,
        Fidelity::JsonInside if value.contains("null") || value.matches('[').count() > 1 => Ambiguity::Open,
        Fidelity::JsonInside => Ambiguity::None,
        Fidelity::Opaque => Ambiguity::Open,
    }
}

/// Every choice of null or JSON null for the columns at `both_ways`.
fn bases(columns: usize, both_ways: &[usize]) -> Vec<Option<String>> {
    (0..1usize << both_ways.len())
        .map(|choice| {
            if choice == 0 {
                return None;
            }
            let mut literal = String::from("(");
            for at in 0..columns {
                if at > 0 {
                    literal.push(',');
                }
                let chosen = both_ways.iter().position(|other| *other == at);
                if chosen.is_some_and(|bit| choice >> bit & 1 == 1) {
                    // Unquoted, the text of the JSON value; nothing at all would be SQL NULL.
                    literal.push_str("null");
                }
            }
            literal.push(')');
            Some(literal)
        })
        .collect()
}
