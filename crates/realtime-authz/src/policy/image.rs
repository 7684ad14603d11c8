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
    /// One per way to read the image: the places of the columns that hold a JSON null, which `json`
    /// leaves out. The first way is always SQL NULL for all of them.
    pub ways: Vec<Vec<usize>>,
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
            table
                .columns
                .iter()
                .position(|column| &*column.facts.name == name)
                .is_some_and(|at| {
                    let column = &table.columns[at];
                    // A domain may refuse the null of a column that is left out.
                    (table.policy.reads.reads(column.attnum) || column.domain) && !both_ways.contains(&at)
                })
        })?;
        Ok(Self {
            json,
            ways: ways(&both_ways),
            exact,
        })
    }

    /// The image read as it stands, SQL NULL for every null: not exact, where it was read both ways.
    pub fn plain(table: &Table, row: &Row) -> Result<Self, Unreadable> {
        let image = Self::new(table, row)?;
        let exact = image.exact && image.ways.len() == 1;
        Ok(Self {
            ways: vec![Vec::new()],
            exact,
            ..image
        })
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
fn ways(both_ways: &[usize]) -> Vec<Vec<usize>> {
    (0..1usize << both_ways.len())
        .map(|choice| {
            let chosen = both_ways
                .iter()
                .enumerate()
                .filter(|(bit, _)| choice >> bit & 1 == 1);
            chosen.map(|(_, at)| *at).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::fixture::notes;

    fn image(table: &Table, row: &str) -> Image {
        Image::new(table, &Row::new(row)).unwrap()
    }

    #[test]
    fn only_what_the_policy_reads_is_sent() {
        let table = notes();
        let image = image(&table, r#"{"id":1,"owner":"a","meta":null}"#);
        assert_eq!(image.json, r#"{"owner":"a"}"#);
        assert_eq!(image.ways, [[0usize; 0]]);
        assert!(image.exact);
    }

    #[test]
    fn domains_and_whole_rows_are_sent_as_well() {
        let mut table = notes();
        table.columns[0].domain = true;
        assert_eq!(
            image(&table, r#"{"id":1,"owner":"a","meta":{}}"#).json,
            r#"{"id":1,"owner":"a"}"#
        );
        table.policy.reads.whole_row = true;
        let whole = image(&table, r#"{"id":1,"owner":"a","meta":{},"gone":3}"#);
        assert_eq!(whole.json, r#"{"id":1,"owner":"a","meta":{}}"#);
    }

    #[test]
    fn a_null_that_may_be_json_is_read_both_ways() {
        let mut table = notes();
        table.policy.reads.columns.insert(3);
        let both = image(&table, r#"{"id":1,"owner":"a","meta":null}"#);
        assert_eq!(both.json, r#"{"owner":"a"}"#);
        assert_eq!(both.ways, [vec![], vec![2]]);
        assert!(both.exact);
        let plain = Image::plain(&table, &Row::new(r#"{"id":1,"owner":"a","meta":null}"#)).unwrap();
        assert_eq!((plain.ways.len(), plain.exact), (1, false));
        assert!(image(&table, r#"{"id":1,"owner":"a","meta":1}"#).exact);
    }

    #[test]
    fn more_than_two_of_them_are_left_open() {
        let mut table = notes();
        table.policy.reads.whole_row = true;
        for column in &mut table.columns {
            column.fidelity = Fidelity::JsonNull;
        }
        let open = image(&table, r#"{"id":null,"owner":null,"meta":null}"#);
        assert_eq!((open.ways.len(), open.exact), (1, false));
        let two = image(&table, r#"{"id":null,"owner":1,"meta":null}"#);
        assert_eq!(two.ways, [vec![], vec![0], vec![2], vec![0, 2]]);
    }

    #[test]
    fn json_within_something_is_open_where_it_may_be_two_values() {
        let mut table = notes();
        table.policy.reads.columns.insert(3);
        table.columns[2].fidelity = Fidelity::JsonInside;
        for (value, exact) in [
            ("null", true),
            ("[1,2]", true),
            ("[null]", false),
            ("[[1]]", false),
            (r#"{"a":null}"#, false),
        ] {
            assert_eq!(
                image(&table, &format!(r#"{{"id":1,"owner":"a","meta":{value}}}"#)).exact,
                exact,
                "{value}"
            );
        }
        table.columns[2].fidelity = Fidelity::Opaque;
        assert!(!image(&table, r#"{"id":1,"owner":"a","meta":1}"#).exact);
    }

    #[test]
    fn a_column_that_is_read_and_missing_is_unreadable() {
        assert_eq!(
            Image::new(&notes(), &Row::new(r#"{"id":1}"#)).unwrap_err(),
            Unreadable
        );
        assert_eq!(Image::new(&notes(), &Row::new("{")).unwrap_err(), Unreadable);
    }
}
