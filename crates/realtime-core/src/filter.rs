//! The filter language of bindings: `column=op.value`, bound to a table and judged on rows.
//!
//! Must never ignore a part of a filter, and never let a row through that it cannot judge: what
//! is not understood is refused at join, what is unknown (SQL's `null`) does not match. Must never
//! show a value: errors and `Debug` name condition, column and rule.
//!
//! # Grammar
//!
//! ```text
//! filter    := condition { "," condition }          all must hold (AND)
//! condition := column "=" [ "not." ] op "." value
//! op        := eq neq gt gte lt lte in like ilike match imatch is isdistinct
//! column    := raw text without "=" and ","  |  quoted
//! value     := raw text  |  quoted                  all but in
//!            | "(" item { "," item } ")"            in
//! item      := raw text without "," "(" ")"  |  quoted
//! quoted    := '"' text '"'                         \" is a quote, \\ a backslash
//! ```
//!
//! - Names are exact and case-sensitive. One that holds `=` or `,`, begins with `"`, or begins or
//!   ends with a blank is quoted: `"a=b"=eq.1`.
//! - Blanks around a condition and around a list's items are dropped; a quote opens only at the
//!   very start of a name, value or item, and nothing but blanks may follow its end.
//! - **A comma in a raw value** ends the condition where another condition begins behind it, that
//!   is a name, `=`, one or more letters and `.`, and where nothing or another comma follows (which is an
//!   empty condition, and refused). Any other comma is part of the value: `name=eq.Smith, John`.
//!   A comma within parentheses that the value itself opens and closes is part of the value; if the
//!   value does not close them and a condition may begin behind such a comma, it is refused.
//! - An empty value is the empty text; an empty list and an empty raw item are refused.
//! - A blank filter is no filter.
//!
//! # Meaning
//!
//! | operator | as in PostgreSQL | columns |
//! | --- | --- | --- |
//! | `eq` `neq` `in` | `=` `<>` `IN` | every type of [`crate::value`] |
//! | `gt` `gte` `lt` `lte` | `>` `>=` `<` `<=` | the same but `jsonb` and arrays; text only where its collation orders by bytes |
//! | `isdistinct` | `IS DISTINCT FROM` | as `eq` |
//! | `like` `ilike` | `LIKE` `ILIKE` | text types |
//! | `match` `imatch` | `~` `~*` | text types; see [`crate::pattern`] for what is refused |
//! | `is` | `IS NULL`, and of booleans `IS TRUE`, `IS FALSE`, `IS UNKNOWN` | every type that prints null as nothing else |
//!
//! Constants are read as the column's type reads them, without its modifiers. Logic has three values: `null` is unknown to
//! all but `is` and `isdistinct`, and neither a condition nor its `not.` holds of what is unknown. `eq.null` compares with
//! the text `null`.

mod bound;
mod parse;

use std::fmt;

pub use bound::{BoundCondition, BoundFilter, Test};

use crate::pattern::{Compiled, PatternError, Style};
use crate::value::ValueError;

/// How large a filter may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterLimits {
    /// Most bytes of its text.
    pub bytes_max: usize,
    /// Most conditions.
    pub conditions_max: usize,
    /// Most items of one list.
    pub items_max: usize,
    /// Most bytes of the automaton that one regular expression is compiled to.
    pub pattern_bytes_max: usize,
}

/// An operator of the filter language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Equal.
    Eq,
    /// Not equal.
    Neq,
    /// Greater than.
    Gt,
    /// Greater than or equal.
    Gte,
    /// Less than.
    Lt,
    /// Less than or equal.
    Lte,
    /// Equal to one of a list.
    In,
    /// Matches a pattern of `%` and `_`.
    Like,
    /// The same without regard to case.
    ILike,
    /// Matches a regular expression.
    Match,
    /// The same without regard to case.
    IMatch,
    /// Is null, true, false or unknown.
    Is,
    /// Not equal, where null equals null alone.
    IsDistinct,
}

/// A filter that was read but not yet bound to a table: one or more conditions, all of which must hold.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FilterExpr {
    conditions: Box<[Condition]>,
    pattern_bytes_max: usize,
}

/// One condition as it was written.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The column's name.
    pub column: Box<str>,
    /// The operator.
    pub operator: Operator,
    /// It must not hold: `not.` stands before the operator.
    pub negated: bool,
    /// One text; of `in`, one or more. Private data.
    pub values: Box<[Box<str>]>,
    /// What a pattern was compiled to.
    compiled: Compiled,
}

/// Why a filter is refused. Conditions are counted from 1; no value is carried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text is too long.
    #[error("filter: longer than {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// Too many conditions.
    #[error("filter: more than {conditions_max} conditions")]
    TooManyConditions {
        /// The limit.
        conditions_max: usize,
    },
    /// Nothing stands between two commas, or beside one at an end.
    #[error("filter: must not contain empty segments (check for extra commas)")]
    EmptySegment,
    /// A condition is not of the language.
    #[error("filter condition {condition}: {rule}")]
    Malformed {
        /// Which condition.
        condition: usize,
        /// The rule that it breaks.
        rule: Malformed,
    },
    /// An operator that is not served.
    #[error(
        "filter condition {condition}, column {column:?}: {operator}is not supported (use eq, neq, gt, gte, lt, lte, in, like, ilike, match, imatch, is or isdistinct, with not. before it or not)"
    )]
    UnknownOperator {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
        /// The operator.
        operator: OperatorName,
    },
    /// A list is too long.
    #[error("filter condition {condition}, column {column:?}: more than {items_max} list items")]
    TooManyItems {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
        /// The limit.
        items_max: usize,
    },
    /// The table has no such column, or the role may not read it: which of the two is not told.
    #[error("filter condition {condition}: invalid column {column:?}")]
    UnknownColumn {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
    },
    /// The operator does not apply to the column's type.
    #[error("filter condition {condition}, column {column:?}: {} does not apply to type {type_name}", operator.as_str())]
    OperatorForType {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
        /// The operator.
        operator: Operator,
        /// The column's type.
        type_name: Box<str>,
    },
    /// The text's order depends on a collation that is not known here.
    #[error(
        "filter condition {condition}, column {column:?}: {} needs a collation that orders by bytes (C or POSIX)",
        operator.as_str()
    )]
    OperatorForCollation {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
        /// The operator.
        operator: Operator,
    },
    /// The column's collation is nondeterministic: different texts may be equal.
    #[error(
        "filter condition {condition}, column {column:?}: {} does not apply to a column with a nondeterministic collation",
        operator.as_str()
    )]
    OperatorForFoldedText {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
        /// The operator.
        operator: Operator,
    },
    /// `is` with another word, or with one that the column's type does not have.
    #[error(
        "filter condition {condition}, column {column:?}: is takes null, and on boolean columns true, false and unknown"
    )]
    IsWord {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
    },
    /// The pattern cannot be judged as PostgreSQL would.
    #[error("filter condition {condition}, column {column:?}: {}: {error}", operator.as_str())]
    Pattern {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
        /// The operator.
        operator: Operator,
        /// The rule that the pattern breaks.
        error: PatternError,
    },
    /// The value is none of the column's type.
    #[error("filter condition {condition}, column {column:?}: {error}")]
    Value {
        /// Which condition.
        condition: usize,
        /// The column.
        column: Box<str>,
        /// The rule that the value breaks.
        error: ValueError,
    },
}

/// A rule of the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not a condition at all.
    #[error("must have the form column=op.value")]
    Form,
    /// A quoted text has no end.
    #[error("a quoted text must end with \"")]
    OpenQuote,
    /// Something follows a quoted text.
    #[error("nothing may follow a quoted text")]
    TextAfterQuote,
    /// A raw value opens parentheses, and a condition may begin within them.
    #[error("a value with an open parenthesis and commas must be quoted")]
    OpenParenthesis,
    /// `in` without a list.
    #[error("in needs a list in parentheses")]
    NotAList,
    /// `in.()`.
    #[error("in needs at least one item")]
    EmptyList,
    /// Nothing stands between two commas of a list.
    #[error("a list must not contain empty items (write \"\" for the empty text)")]
    EmptyItem,
    /// A raw item holds a parenthesis.
    #[error("a list item that holds a parenthesis must be quoted")]
    ParenthesisInItem,
    /// Something follows a list.
    #[error("nothing may follow a list")]
    TextAfterList,
}

/// An operator that is not served: by name where it is one that clients know, else unnamed, because a
/// text that is no operator may be a value in the wrong place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorName(Option<&'static str>);

/// Operators that the client libraries can write and that are not served.
const KNOWN_OPERATORS: [&str; 18] = [
    "not", "any", "all", "and", "or", "cs", "cd", "ov", "sl", "sr", "nxr", "nxl", "adj", "fts", "plfts",
    "phfts", "wfts", "sv",
];

impl Default for FilterLimits {
    fn default() -> Self {
        Self {
            bytes_max: 4_096,
            conditions_max: 10,
            items_max: 100,
            pattern_bytes_max: 131_072,
        }
    }
}

/// Reads a list of names of columns: each as a condition has it, with commas between them. `None` where one is
/// empty, or a quote is open.
pub fn column_names(text: &str) -> Option<Vec<Box<str>>> {
    parse::names(text)
}

impl FilterExpr {
    /// Reads a filter. `None` where the text is blank, which is no filter.
    pub fn parse(text: &str, limits: &FilterLimits) -> Result<Option<Self>, FilterError> {
        let conditions = parse::conditions(text, limits)?;
        Ok((!conditions.is_empty()).then(|| Self {
            conditions: conditions.into(),
            pattern_bytes_max: limits.pattern_bytes_max,
        }))
    }

    /// The conditions, at least one, in the order written.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The least that its patterns will be charged with once they are compiled.
    pub fn pattern_bytes_min(&self) -> usize {
        let patterns = self.conditions.iter().filter_map(|one| one.operator.style());
        patterns.map(Style::bytes_min).sum()
    }
}

impl Operator {
    const ALL: [Self; 13] = [
        Self::Eq,
        Self::Neq,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::In,
        Self::Like,
        Self::ILike,
        Self::Match,
        Self::IMatch,
        Self::Is,
        Self::IsDistinct,
    ];

    /// The name in the language.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Neq => "neq",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::In => "in",
            Self::Like => "like",
            Self::ILike => "ilike",
            Self::Match => "match",
            Self::IMatch => "imatch",
            Self::Is => "is",
            Self::IsDistinct => "isdistinct",
        }
    }

    /// The operator of a name, lower case only.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.as_str() == name)
    }

    /// The language of its pattern; `None` where it takes none.
    pub fn style(self) -> Option<Style> {
        match self {
            Self::Like => Some(Style::Like),
            Self::ILike => Some(Style::ILike),
            Self::Match => Some(Style::Match),
            Self::IMatch => Some(Style::IMatch),
            _ => None,
        }
    }

    /// Whether it asks for the order of values.
    pub fn is_ordering(self) -> bool {
        matches!(self, Self::Gt | Self::Gte | Self::Lt | Self::Lte)
    }
}

impl OperatorName {
    fn of(text: &str) -> Self {
        Self(KNOWN_OPERATORS.into_iter().find(|known| *known == text))
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "operator {name} "),
            None => f.write_str("this operator "),
        }
    }
}

/// Values are private data: only columns and operators are shown.
impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}={}{}.[{}]",
            self.column,
            if self.negated { "not." } else { "" },
            self.operator.as_str(),
            self.values.len()
        )
    }
}

impl fmt::Debug for FilterExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&*self.conditions).finish()
    }
}

#[cfg(test)]
mod tests;
