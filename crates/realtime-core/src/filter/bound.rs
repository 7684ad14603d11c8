//! A filter bound to the columns of one table, ready to judge rows.
//!
//! Must never match a row that it cannot judge: a missing column, a broken row and `null` are no match.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use super::{Condition, FilterError, FilterExpr, Operator};
use crate::change::Row;
use crate::table::{ColumnFacts, Comparison, TableFacts};
use crate::value::{Constant, Key, ValueKind};

/// A filter bound to a table. Equal filters are equal, however their constants were spelled; a
/// clone shares the conditions.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BoundFilter {
    conditions: Arc<[BoundCondition]>,
}

/// One condition of a bound filter.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BoundCondition {
    /// The column's name.
    pub column: Box<str>,
    /// How its values are read.
    pub kind: ValueKind,
    /// What a value must be.
    pub test: Test,
}

/// What the key of a value must be. Private data.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Test {
    /// One of these, sorted and each once.
    In(Box<[Key]>),
    /// Any but this.
    NotEqual(Key),
    /// Above this: `gt` (excluded) and `gte` (included).
    Above(Bound<Key>),
    /// Below this: `lt` (excluded) and `lte` (included).
    Below(Bound<Key>),
}

impl FilterExpr {
    /// Binds a filter to a table as one role sees it. A column that the role may not read is refused
    /// in the same words as one that does not exist.
    pub fn bind(&self, facts: &TableFacts) -> Result<BoundFilter, FilterError> {
        let numbered = self.conditions().iter().zip(1..);
        let conditions = numbered.map(|(condition, number)| bind(condition, number, facts));
        Ok(BoundFilter {
            conditions: conditions.collect::<Result<_, _>>()?,
        })
    }
}

fn bind(condition: &Condition, number: usize, facts: &TableFacts) -> Result<BoundCondition, FilterError> {
    let Condition {
        column,
        operator,
        values,
    } = condition;
    let facts = facts
        .column(column)
        .filter(|facts| facts.readable)
        .ok_or_else(|| FilterError::UnknownColumn {
            condition: number,
            column: column.clone(),
        })?;
    let kind = kind_for(*operator, number, facts)?;
    let mut keys = Vec::with_capacity(values.len());
    for value in values {
        let constant =
            Constant::bind_as(kind.clone(), &facts.type_name, value).map_err(|error| FilterError::Value {
                condition: number,
                column: column.clone(),
                error,
            })?;
        keys.push(constant.into_key());
    }
    Ok(BoundCondition {
        column: column.clone(),
        kind,
        test: Test::new(*operator, keys),
    })
}

/// How the column's values are read, provided that the operator applies to them.
fn kind_for(operator: Operator, condition: usize, facts: &ColumnFacts) -> Result<ValueKind, FilterError> {
    let by_bytes = match &facts.compare {
        Comparison::Text { ordered_by_bytes } | Comparison::PaddedText { ordered_by_bytes } => {
            *ordered_by_bytes
        }
        _ => true,
    };
    if operator.is_ordering() && !by_bytes {
        return Err(FilterError::OperatorForCollation {
            condition,
            column: facts.name.clone(),
            operator,
        });
    }
    ValueKind::of(&facts.compare).ok_or_else(|| FilterError::OperatorForType {
        condition,
        column: facts.name.clone(),
        operator,
        type_name: facts.type_name.clone(),
    })
}

impl Test {
    fn new(operator: Operator, mut keys: Vec<Key>) -> Self {
        if matches!(operator, Operator::Eq | Operator::In) {
            keys.sort_unstable();
            keys.dedup();
            return Self::In(keys.into());
        }
        // Every other operator has exactly one value: the parser sees to it.
        let key = keys.pop().unwrap_or_default();
        match operator {
            Operator::Gt => Self::Above(Bound::Excluded(key)),
            Operator::Gte => Self::Above(Bound::Included(key)),
            Operator::Lt => Self::Below(Bound::Excluded(key)),
            Operator::Lte => Self::Below(Bound::Included(key)),
            Operator::Neq | Operator::Eq | Operator::In => Self::NotEqual(key),
        }
    }

    /// Whether the key of a value passes.
    pub fn holds(&self, key: &[u8]) -> bool {
        match self {
            Self::In(keys) => keys.binary_search_by(|one| (**one).cmp(key)).is_ok(),
            Self::NotEqual(other) => **other != *key,
            Self::Above(Bound::Excluded(bound)) => *key > **bound,
            Self::Above(Bound::Included(bound)) => *key >= **bound,
            Self::Below(Bound::Excluded(bound)) => *key < **bound,
            Self::Below(Bound::Included(bound)) => *key <= **bound,
            Self::Above(Bound::Unbounded) | Self::Below(Bound::Unbounded) => true,
        }
    }
}

impl BoundCondition {
    /// Whether a row passes. `scratch` is overwritten.
    pub fn holds(&self, row: &Row, scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        let Ok(Some(json)) = row.get(&self.column) else {
            return false;
        };
        self.kind.read(json, scratch).is_some() && self.test.holds(scratch)
    }
}

impl BoundFilter {
    /// Whether a row passes every condition.
    pub fn matches(&self, row: &Row) -> bool {
        self.matches_except(None, row, &mut Vec::new())
    }

    /// Whether every column of the filter is accepted, such as: is one of the key's.
    pub fn only_on(&self, mut accepts: impl FnMut(&str) -> bool) -> bool {
        self.conditions.iter().all(|condition| accepts(&condition.column))
    }

    /// The conditions, at least one, in the order written.
    pub fn conditions(&self) -> &[BoundCondition] {
        &self.conditions
    }

    /// As [`BoundFilter::matches`], without the condition at a position that is known to hold.
    pub(crate) fn matches_except(&self, held: Option<usize>, row: &Row, scratch: &mut Vec<u8>) -> bool {
        let mut conditions = self.conditions.iter().enumerate();
        conditions.all(|(position, condition)| Some(position) == held || condition.holds(row, scratch))
    }
}

/// Values are private data: only columns are shown.
impl fmt::Debug for BoundFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.conditions.iter().map(|condition| &condition.column))
            .finish()
    }
}
