//! What of a row a policy looks at, found in the stored expression itself.
//!
//! Must never miss a column: a policy's column that was taken for unread would be left out of
//! the row that the policy is judged on. So every variable counts, of whatever table it is, and
//! an expression that cannot be read counts as reading everything.

use std::collections::BTreeSet;

/// The parts of its table's row that a condition may look at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reads {
    /// Numbers of columns. May hold numbers of other tables' columns too.
    pub columns: BTreeSet<i16>,
    /// The row as a whole.
    pub whole_row: bool,
    /// `ctid`, `tableoid`, `xmin`, …, which no image carries.
    pub system: bool,
}

/// How a variable begins in the stored form of an expression.
const VARIABLE: &str = "{VAR ";
/// The field with the column's number: 0 for the whole row, negative for a system column.
const COLUMN: &str = ":varattno ";

impl Reads {
    /// Reads `pg_policy.polqual` in its stored form (`pg_node_tree`).
    pub fn of_stored(expression: &str) -> Self {
        let mut reads = Self::default();
        // Field names cannot occur in constants, which are stored as numbers; aliases could
        // spell one, and then add a column that is not read, or the whole row.
        for variable in expression.split(VARIABLE).skip(1) {
            match column_number(variable) {
                Some(0) | None => reads.whole_row = true,
                Some(number) if number < 0 => reads.system = true,
                Some(number) => {
                    reads.columns.insert(number);
                }
            }
        }
        reads
    }

    /// What two conditions together look at.
    pub fn merge(&mut self, other: Self) {
        self.columns.extend(other.columns);
        self.whole_row |= other.whole_row;
        self.system |= other.system;
    }

    /// Whether a column may be looked at.
    pub fn reads(&self, attnum: i16) -> bool {
        self.whole_row || self.columns.contains(&attnum)
    }
}

fn column_number(variable: &str) -> Option<i16> {
    let (_, rest) = variable.split_once(COLUMN)?;
    let end = rest
        .find(|c: char| c != '-' && !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "{OPEXPR :opno 2972 :args ({VAR :varno 1 :varattno 2 :vartype 2950 :varlevelsup 0} \
                         {FUNCEXPR :funcid 1 :args <>})}";

    #[test]
    fn columns_of_every_level_count() {
        let reads = Reads::of_stored(&format!("{OWNER} {{VAR :varno 1 :varattno 7 :varlevelsup 1}}"));
        assert_eq!(reads.columns.into_iter().collect::<Vec<_>>(), [2, 7]);
        assert!(!reads.whole_row && !reads.system);
    }

    #[test]
    fn whole_rows_and_system_columns_are_told_apart() {
        assert!(Reads::of_stored("{VAR :varno 1 :varattno 0 :vartype 1}").whole_row);
        assert!(Reads::of_stored("{VAR :varno 1 :varattno -6 :vartype 26}").system);
        assert_eq!(Reads::of_stored("{CONST :consttype 16}"), Reads::default());
    }

    #[test]
    fn a_form_that_is_not_known_reads_everything() {
        assert!(Reads::of_stored("{VAR :no 1}").whole_row);
        assert!(Reads::of_stored("{VAR :varattno x}").whole_row);
    }
}
