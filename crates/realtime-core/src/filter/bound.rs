//! A filter bound to the columns of one table, ready to judge rows.
//!
//! Must never match a row that it cannot judge: a missing column, a broken row and `null` are no match.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use super::{Condition, FilterError, FilterExpr, Operator};
use crate::change::Row;
use crate::pattern::Pattern;
use crate::table::{Collation, ColumnFacts, Comparison, TableFacts};
use crate::value::{Constant, Key, ValueError, ValueKind};

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

/// What a value must be, by its key. Private data.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Test {
    /// One of these, sorted and each once.
    In(Box<[Key]>),
    /// None of these, sorted and each once.
    NotIn(Box<[Key]>),
    /// Any but this.
    NotEqual(Key),
    /// Above this: `gt` (excluded) and `gte` (included).
    Above(Bound<Key>),
    /// Below this: `lt` (excluded) and `lte` (included).
    Below(Bound<Key>),
    /// Null, or any but this.
    Distinct(Key),
    /// Null.
    Null,
    /// Anything but null.
    NotNull,
    /// A text that matches.
    Matches(Pattern),
    /// A text that does not match.
    MatchesNot(Pattern),
}

impl FilterExpr {
    /// Binds a filter to a table as one role sees it. A column that the role may not read is refused
    /// in the same words as one that does not exist.
    pub fn bind(&self, facts: &TableFacts) -> Result<BoundFilter, FilterError> {
        let mut conditions = Vec::with_capacity(self.conditions().len());
        for (condition, number) in self.conditions().iter().zip(1..) {
            let column = facts
                .column(&condition.column)
                .filter(|facts| facts.readable)
                .ok_or_else(|| FilterError::UnknownColumn {
                    condition: number,
                    column: condition.column.clone(),
                })?;
            let binder = Binder {
                condition,
                number,
                column,
                pattern_bytes_max: self.pattern_bytes_max,
            };
            conditions.push(binder.bind()?);
        }
        Ok(BoundFilter {
            conditions: conditions.into(),
        })
    }
}

/// Binds one condition to its column.
struct Binder<'a> {
    condition: &'a Condition,
    number: usize,
    column: &'a ColumnFacts,
    pattern_bytes_max: usize,
}

impl Binder<'_> {
    fn bind(&self) -> Result<BoundCondition, FilterError> {
        let (kind, test) = match self.condition.operator {
            Operator::Is => self.is()?,
            operator if operator.style().is_some() => self.pattern()?,
            _ => self.comparison()?,
        };
        Ok(BoundCondition {
            column: self.condition.column.clone(),
            kind,
            test,
        })
    }

    fn is(&self) -> Result<(ValueKind, Test), FilterError> {
        let word = self.condition.values.first().map_or("", |word| &**word);
        let is = |other: &str| word.eq_ignore_ascii_case(other);
        let boolean = self.column.compare == Comparison::Bool;
        let negated = self.condition.negated;
        if is("null") || (boolean && is("unknown")) {
            if matches!(self.column.compare, Comparison::Veiled | Comparison::Jsonb) {
                return Err(self.operator_for_type());
            }
            let test = if negated { Test::NotNull } else { Test::Null };
            return Ok((ValueKind::Presence, test));
        }
        let truth = match boolean {
            true if is("true") => 1,
            true if is("false") => 0,
            _ => {
                return Err(FilterError::IsWord {
                    condition: self.number,
                    column: self.column.name.clone(),
                });
            }
        };
        let key: Key = [truth].into();
        let test = match negated {
            true => Test::Distinct(key),
            false => Test::In([key].into()),
        };
        Ok((ValueKind::Bool, test))
    }

    fn pattern(&self) -> Result<(ValueKind, Test), FilterError> {
        let operator = self.condition.operator;
        let letters = match &self.column.compare {
            Comparison::Text(collation) | Comparison::PaddedText(collation) => &collation.letters,
            _ => return Err(self.operator_for_type()),
        };
        let (Some(style), Some(source)) = (operator.style(), self.condition.values.first()) else {
            return Err(self.operator_for_type());
        };
        let error = |error| FilterError::Pattern {
            condition: self.number,
            column: self.column.name.clone(),
            operator,
            error,
        };
        let pattern = self
            .condition
            .compiled
            .get(style, source, letters, self.pattern_bytes_max)
            .map_err(error)?;
        let test = match self.condition.negated {
            true => Test::MatchesNot(pattern),
            false => Test::Matches(pattern),
        };
        // Of `char(n)` too: a pattern sees its blanks.
        Ok((ValueKind::Text, test))
    }

    fn comparison(&self) -> Result<(ValueKind, Test), FilterError> {
        let kind = self.kind()?;
        let mut keys = Vec::with_capacity(self.condition.values.len());
        let mut holds_json_null = false;
        for value in &self.condition.values {
            let constant = Constant::bind_as(kind.clone(), &self.column.type_name, value)
                .map_err(|error| self.value_error(error))?;
            holds_json_null |= constant.is_json_null();
            keys.push(constant.into_key());
        }
        let test = Test::new(self.condition.operator, self.condition.negated, keys);
        if holds_json_null && matches!(test, Test::In(_) | Test::Distinct(_)) {
            return Err(self.value_error(ValueError::JsonNull));
        }
        Ok((kind, test))
    }

    /// How the column's values are read, provided that the operator applies to them.
    fn kind(&self) -> Result<ValueKind, FilterError> {
        let operator = self.condition.operator;
        let (condition, column) = (self.number, self.column.name.clone());
        match &self.column.compare {
            Comparison::FoldedText => {
                return Err(FilterError::OperatorForFoldedText {
                    condition,
                    column,
                    operator,
                });
            }
            Comparison::Text(Collation { ordered_by_bytes, .. })
            | Comparison::PaddedText(Collation { ordered_by_bytes, .. })
                if operator.is_ordering() && !ordered_by_bytes =>
            {
                return Err(FilterError::OperatorForCollation {
                    condition,
                    column,
                    operator,
                });
            }
            _ => {}
        }
        ValueKind::of(&self.column.compare)
            .filter(|kind| !operator.is_ordering() || kind.is_ordered())
            .ok_or_else(|| self.operator_for_type())
    }

    fn operator_for_type(&self) -> FilterError {
        FilterError::OperatorForType {
            condition: self.number,
            column: self.column.name.clone(),
            operator: self.condition.operator,
            type_name: self.column.type_name.clone(),
        }
    }

    fn value_error(&self, error: ValueError) -> FilterError {
        FilterError::Value {
            condition: self.number,
            column: self.column.name.clone(),
            error,
        }
    }
}

impl Test {
    /// The test of a comparison. Every value is known, and the order of the values that are compared by it
    /// is a total one: what negates a comparison is another.
    fn new(operator: Operator, negated: bool, mut keys: Vec<Key>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        if operator == Operator::In && negated && keys.len() > 1 {
            return Self::NotIn(keys.into());
        }
        if operator == Operator::In && !negated {
            return Self::In(keys.into());
        }
        // Every other operator has exactly one value: the parser sees to it.
        let key = keys.pop().unwrap_or_default();
        match (operator, negated) {
            (Operator::Gt, false) | (Operator::Lte, true) => Self::Above(Bound::Excluded(key)),
            (Operator::Gte, false) | (Operator::Lt, true) => Self::Above(Bound::Included(key)),
            (Operator::Lt, false) | (Operator::Gte, true) => Self::Below(Bound::Excluded(key)),
            (Operator::Lte, false) | (Operator::Gt, true) => Self::Below(Bound::Included(key)),
            (Operator::Eq, false) | (Operator::Neq | Operator::IsDistinct, true) => Self::In([key].into()),
            (Operator::IsDistinct, false) => Self::Distinct(key),
            _ => Self::NotEqual(key),
        }
    }

    /// Whether the key of a value, which is not null, passes.
    pub fn holds(&self, key: &[u8]) -> bool {
        let one_of = |keys: &[Key]| keys.binary_search_by(|one| (**one).cmp(key)).is_ok();
        match self {
            Self::In(keys) => one_of(keys),
            Self::NotIn(keys) => !one_of(keys),
            Self::NotEqual(other) | Self::Distinct(other) => **other != *key,
            Self::Above(Bound::Excluded(bound)) => *key > **bound,
            Self::Above(Bound::Included(bound)) => *key >= **bound,
            Self::Below(Bound::Excluded(bound)) => *key < **bound,
            Self::Below(Bound::Included(bound)) => *key <= **bound,
            Self::Above(Bound::Unbounded) | Self::Below(Bound::Unbounded) | Self::NotNull => true,
            Self::Null => false,
            // The key of a text is the text.
            Self::Matches(pattern) => str::from_utf8(key).is_ok_and(|text| pattern.matches(text)),
            Self::MatchesNot(pattern) => str::from_utf8(key).is_ok_and(|text| !pattern.matches(text)),
        }
    }

    /// Whether null passes.
    pub fn holds_for_null(&self) -> bool {
        matches!(self, Self::Null | Self::Distinct(_))
    }

    /// What its pattern is charged with; 0 where it has none.
    fn pattern_bytes(&self) -> usize {
        match self {
            Self::Matches(pattern) | Self::MatchesNot(pattern) => pattern.bytes(),
            _ => 0,
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
        if json == "null" {
            return self.test.holds_for_null();
        }
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

    /// What its patterns are charged with: see [`Pattern::bytes`].
    pub fn pattern_bytes(&self) -> usize {
        self.conditions
            .iter()
            .map(|condition| condition.test.pattern_bytes())
            .sum()
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

/// Values are private data: only the kind of test is shown.
impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In(_) => "In",
            Self::NotIn(_) => "NotIn",
            Self::NotEqual(_) => "NotEqual",
            Self::Above(_) => "Above",
            Self::Below(_) => "Below",
            Self::Distinct(_) => "Distinct",
            Self::Null => "Null",
            Self::NotNull => "NotNull",
            Self::Matches(_) => "Matches",
            Self::MatchesNot(_) => "MatchesNot",
        })
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
