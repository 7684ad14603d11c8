//! From a filter's text to its conditions, by the grammar of the parent module.
//!
//! Must never skip a character that it does not understand.

use super::{Compiled, Condition, FilterError, FilterLimits, Malformed, Operator, OperatorName};

/// A quoted name that is longer is none: PostgreSQL's names have at most 63 bytes, each of which may
/// be escaped. Bounds the look-ahead behind each comma.
const QUOTED_NAME_BYTES_MAX: usize = 2 * 63 + 2;

/// Reads all conditions; none where the text is blank.
pub fn conditions(text: &str, limits: &FilterLimits) -> Result<Vec<Condition>, FilterError> {
    if text.len() > limits.bytes_max {
        return Err(FilterError::TooLong {
            bytes_max: limits.bytes_max,
        });
    }
    let mut conditions = Vec::new();
    if text.trim_ascii().is_empty() {
        return Ok(conditions);
    }
    let mut rest = text;
    loop {
        if begins_empty(rest) {
            return Err(FilterError::EmptySegment);
        }
        if conditions.len() == limits.conditions_max {
            return Err(FilterError::TooManyConditions {
                conditions_max: limits.conditions_max,
            });
        }
        let mut parser = Parser {
            rest: rest.trim_ascii_start(),
            condition: conditions.len() + 1,
            limits,
        };
        conditions.push(parser.condition()?);
        match parser.rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(conditions),
        }
    }
}

/// Reads names, as a column is written in a condition, with commas between them. `None` where one is empty or
/// broken.
pub fn names(text: &str) -> Option<Vec<Box<str>>> {
    let mut names = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_ascii_start();
        let name: Box<str> = if rest.starts_with('"') {
            let (name, behind) = unquote(rest)?;
            rest = behind.trim_ascii_start();
            name.into()
        } else {
            let (name, behind) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            rest = behind;
            name.trim_ascii_end().into()
        };
        if name.is_empty() {
            return None;
        }
        names.push(name);
        if rest.is_empty() {
            return Some(names);
        }
        rest = rest.strip_prefix(',')?;
    }
}

/// Reads one condition; each reader leaves `rest` behind what it took.
struct Parser<'a> {
    rest: &'a str,
    condition: usize,
    limits: &'a FilterLimits,
}

impl<'a> Parser<'a> {
    /// One condition and the blanks behind it. What is left is empty or begins with a comma.
    fn condition(&mut self) -> Result<Condition, FilterError> {
        let column = self.column()?;
        let mut word = self.word()?;
        let negated = word == "not";
        if negated {
            word = self.word()?;
        }
        let Some(operator) = Operator::parse(word) else {
            let operator = OperatorName::of(word);
            return Err(FilterError::UnknownOperator {
                condition: self.condition,
                column,
                operator,
            });
        };
        let values = match operator {
            Operator::In => self.list(&column)?,
            _ => vec![self.scalar()?],
        };
        Ok(Condition {
            column,
            operator,
            negated,
            values: values.into(),
            compiled: Compiled::default(),
        })
    }

    /// Letters and the point behind them.
    fn word(&mut self) -> Result<&'a str, FilterError> {
        let (word, rest) = self.rest.split_once('.').unwrap_or_default();
        if !is_word(word) {
            return Err(self.malformed(Malformed::Form));
        }
        self.rest = rest;
        Ok(word)
    }

    /// The name and its `=`.
    fn column(&mut self) -> Result<Box<str>, FilterError> {
        let name: Box<str> = if self.rest.starts_with('"') {
            self.quoted()?.into()
        } else {
            let end = self.rest.find(['=', ',']).unwrap_or(self.rest.len());
            self.take(end).into()
        };
        match self.rest.strip_prefix('=') {
            Some(rest) if !name.is_empty() => {
                self.rest = rest;
                Ok(name)
            }
            _ => Err(self.malformed(Malformed::Form)),
        }
    }

    fn scalar(&mut self) -> Result<Box<str>, FilterError> {
        if self.rest.starts_with('"') {
            let value = self.quoted()?;
            self.end_of_condition(Malformed::TextAfterQuote)?;
            return Ok(value.into());
        }
        let end = self.end_of_raw()?;
        Ok(self.take(end).trim_ascii_end().into())
    }

    /// Where a raw value ends: at the comma before the next condition, or with the text.
    fn end_of_raw(&self) -> Result<usize, FilterError> {
        let mut depth = 0usize;
        let mut held_back = false;
        for (at, byte) in self.rest.bytes().enumerate() {
            match byte {
                b'(' => depth += 1,
                b')' => {
                    depth = depth.saturating_sub(1);
                    held_back &= depth > 0;
                }
                b',' => {
                    let next = &self.rest[at + 1..];
                    if begins_empty(next) || begins_condition(next) {
                        if depth == 0 {
                            return Ok(at);
                        }
                        held_back = true;
                    }
                }
                _ => {}
            }
        }
        if held_back {
            Err(self.malformed(Malformed::OpenParenthesis))
        } else {
            Ok(self.rest.len())
        }
    }

    fn list(&mut self, column: &str) -> Result<Vec<Box<str>>, FilterError> {
        self.rest = self
            .rest
            .strip_prefix('(')
            .ok_or_else(|| self.malformed(Malformed::NotAList))?;
        let mut items = Vec::new();
        loop {
            self.rest = self.rest.trim_ascii_start();
            if items.is_empty() && self.rest.starts_with(')') {
                return Err(self.malformed(Malformed::EmptyList));
            }
            if items.len() == self.limits.items_max {
                return Err(FilterError::TooManyItems {
                    condition: self.condition,
                    column: column.into(),
                    items_max: self.limits.items_max,
                });
            }
            items.push(self.item()?);
            self.rest = self.rest.trim_ascii_start();
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
            } else if let Some(rest) = self.rest.strip_prefix(')') {
                self.rest = rest;
                self.end_of_condition(Malformed::TextAfterList)?;
                return Ok(items);
            } else if self.rest.is_empty() {
                return Err(self.malformed(Malformed::NotAList));
            } else {
                return Err(self.malformed(Malformed::TextAfterQuote));
            }
        }
    }

    fn item(&mut self) -> Result<Box<str>, FilterError> {
        if self.rest.starts_with('"') {
            return Ok(self.quoted()?.into());
        }
        let end = self.rest.find([',', '(', ')']).unwrap_or(self.rest.len());
        if self.rest[end..].starts_with('(') {
            return Err(self.malformed(Malformed::ParenthesisInItem));
        }
        match self.take(end).trim_ascii_end() {
            "" if self.rest.is_empty() => Err(self.malformed(Malformed::NotAList)),
            "" => Err(self.malformed(Malformed::EmptyItem)),
            item => Ok(item.into()),
        }
    }

    /// A quoted text, from its opening quote to behind its closing one.
    fn quoted(&mut self) -> Result<String, FilterError> {
        match unquote(self.rest) {
            Some((text, rest)) => {
                self.rest = rest;
                Ok(text)
            }
            None => Err(self.malformed(Malformed::OpenQuote)),
        }
    }

    fn end_of_condition(&mut self, otherwise: Malformed) -> Result<(), FilterError> {
        self.rest = self.rest.trim_ascii_start();
        let ends = self.rest.is_empty() || self.rest.starts_with(',');
        if ends {
            Ok(())
        } else {
            Err(self.malformed(otherwise))
        }
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (head, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        head
    }

    fn malformed(&self, rule: Malformed) -> FilterError {
        FilterError::Malformed {
            condition: self.condition,
            rule,
        }
    }
}

/// Whether what follows a comma is no condition at all.
fn begins_empty(rest: &str) -> bool {
    let rest = rest.trim_ascii_start();
    rest.is_empty() || rest.starts_with(',')
}

/// Whether what follows a comma is the beginning of a condition: a name, `=`, letters and a point.
fn begins_condition(rest: &str) -> bool {
    let rest = rest.trim_ascii_start();
    let after_name = if rest.starts_with('"') {
        let window = rest.floor_char_boundary(QUOTED_NAME_BYTES_MAX);
        unquote(&rest[..window]).map(|(_, behind)| &rest[window - behind.len()..])
    } else {
        rest.find(['=', ','])
            .filter(|end| *end > 0)
            .map(|end| &rest[end..])
    };
    let Some(condition) = after_name.and_then(|rest| rest.strip_prefix('=')) else {
        return false;
    };
    condition.split_once('.').is_some_and(|(word, _)| is_word(word))
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic())
}

/// Splits a text that begins with a quoted text into its characters and what follows it. A backslash
/// before anything but a quote or a backslash is itself.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut rest = text.strip_prefix('"')?;
    loop {
        let hit = rest.find(['"', '\\'])?;
        out.push_str(&rest[..hit]);
        let (mark, behind) = rest[hit..].split_at(1);
        if mark == "\"" {
            return Some((out, behind));
        }
        match behind.as_bytes().first() {
            Some(b'"' | b'\\') => {
                out.push_str(&behind[..1]);
                rest = &behind[1..];
            }
            _ => {
                out.push('\\');
                rest = behind;
            }
        }
    }
}
