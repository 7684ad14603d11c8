//! The text of one row: a JSON object as `row_to_json` printed it, and where its columns are.
//!
//! Must never allocate for an event that nobody looks into: the spans are found on first use.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A row as text, with its columns found once on demand. Cloning shares the text.
#[derive(Clone)]
pub struct Row(Arc<Inner>);

struct Inner {
    text: Box<str>,
    spans: OnceLock<Result<Box<[Span]>, RowError>>,
}

#[derive(Clone)]
struct Span {
    /// The name between its quotes, escapes left as they are.
    name: Range<u32>,
    /// The name contains a backslash and must be unescaped before it is compared.
    escaped: bool,
    value: Range<u32>,
}

/// One column of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column<'a> {
    /// The column's name.
    pub name: Cow<'a, str>,
    /// The name as it stands between quotes in the text, escapes included.
    pub raw_name: &'a str,
    /// The value's JSON text.
    pub value: &'a str,
}

/// The text is not one JSON object. Carries no part of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Not an object, or broken within.
    #[error("row: not a JSON object")]
    NotAnObject,
    /// Longer than 4 GiB.
    #[error("row: text is too long")]
    TooLong,
}

impl Row {
    /// A row over its text. The text is looked into on first use of a column, not here.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(Arc::new(Inner {
            text: text.into(),
            spans: OnceLock::new(),
        }))
    }

    /// The row's JSON text, exactly as it came.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The columns in the row's own order.
    pub fn columns(&self) -> Result<impl Iterator<Item = Column<'_>>, RowError> {
        let text = &*self.0.text;
        Ok(self.spans()?.iter().map(move |span| span.column(text)))
    }

    /// The JSON text of a column's value, or `None` where the row has no such column.
    pub fn get(&self, name: &str) -> Result<Option<&str>, RowError> {
        let text = &*self.0.text;
        let found = self.spans()?.iter().find(|span| span.is_named(text, name));
        Ok(found.map(|span| slice(text, &span.value)))
    }

    /// The row's text with only the columns that `keep` accepts, values byte for byte.
    pub fn project(&self, mut keep: impl FnMut(&str) -> bool) -> Result<String, RowError> {
        let text = &*self.0.text;
        let mut out = String::with_capacity(text.len());
        out.push('{');
        for column in self.columns()? {
            if !keep(&column.name) {
                continue;
            }
            if out.len() > 1 {
                out.push(',');
            }
            out.push('"');
            out.push_str(column.raw_name);
            out.push_str("\":");
            out.push_str(column.value);
        }
        out.push('}');
        Ok(out)
    }

    fn spans(&self) -> Result<&[Span], RowError> {
        match self.0.spans.get_or_init(|| find_spans(&self.0.text)) {
            Ok(spans) => Ok(spans),
            Err(error) => Err(*error),
        }
    }
}

/// Rows are private data: only the size is shown.
impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Row({} bytes)", self.0.text.len())
    }
}

impl Span {
    fn column<'a>(&self, text: &'a str) -> Column<'a> {
        let raw_name = slice(text, &self.name);
        let name = if self.escaped {
            Cow::Owned(unescape(raw_name))
        } else {
            Cow::Borrowed(raw_name)
        };
        Column {
            name,
            raw_name,
            value: slice(text, &self.value),
        }
    }

    fn is_named(&self, text: &str, name: &str) -> bool {
        let raw = slice(text, &self.name);
        if self.escaped {
            unescape(raw) == name
        } else {
            raw == name
        }
    }
}

fn slice<'a>(text: &'a str, range: &Range<u32>) -> &'a str {
    &text[range.start as usize..range.end as usize]
}

/// Undoes JSON escapes. The text comes from a scan that has already proved it a JSON string.
fn unescape(raw: &str) -> String {
    serde_json::from_str(&format!("\"{raw}\"")).unwrap_or_else(|_| raw.to_owned())
}

/// Finds each top-level member. One pass; strings are skipped by their quotes, nested values by
/// their depth. The values themselves were printed by PostgreSQL and are not checked again.
fn find_spans(text: &str) -> Result<Box<[Span]>, RowError> {
    if u32::try_from(text.len()).is_err() {
        return Err(RowError::TooLong);
    }
    let mut scan = Scan {
        bytes: text.as_bytes(),
        at: 0,
    };
    let mut spans = Vec::new();
    scan.expect(b'{')?;
    if scan.peek() == Some(b'}') {
        scan.at += 1;
    } else {
        loop {
            let (name, escaped) = scan.string()?;
            scan.expect(b':')?;
            let value = scan.value()?;
            spans.push(Span {
                name: narrow(name),
                escaped,
                value: narrow(value),
            });
            match scan.next() {
                Some(b',') => {}
                Some(b'}') => break,
                _ => return Err(RowError::NotAnObject),
            }
        }
    }
    scan.blank();
    if scan.at == scan.bytes.len() {
        Ok(spans.into())
    } else {
        Err(RowError::NotAnObject)
    }
}

fn narrow(range: Range<usize>) -> Range<u32> {
    // Checked once for the whole text: every offset fits.
    range.start as u32..range.end as u32
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn blank(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.blank();
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        byte
    }

    fn expect(&mut self, byte: u8) -> Result<(), RowError> {
        if self.next() == Some(byte) {
            Ok(())
        } else {
            Err(RowError::NotAnObject)
        }
    }

    /// The range between the quotes, and whether it holds an escape.
    fn string(&mut self) -> Result<(Range<usize>, bool), RowError> {
        self.expect(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let hit = memchr::memchr2(b'"', b'\\', rest).ok_or(RowError::NotAnObject)?;
            self.at += hit;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Ok((start..self.at - 1, escaped));
            }
            escaped = true;
            self.at += 2;
        }
    }

    fn value(&mut self) -> Result<Range<usize>, RowError> {
        let first = self.peek().ok_or(RowError::NotAnObject)?;
        let start = self.at;
        match first {
            b'"' => {
                self.string()?;
            }
            b'{' | b'[' => self.nested()?,
            _ => {
                let rest = &self.bytes[self.at..];
                let end = rest
                    .iter()
                    .position(|b| matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'));
                self.at += end.ok_or(RowError::NotAnObject)?;
            }
        }
        if self.at == start {
            Err(RowError::NotAnObject)
        } else {
            Ok(start..self.at)
        }
    }

    fn nested(&mut self) -> Result<(), RowError> {
        let mut depth = 0usize;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.string()?;
                    continue;
                }
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth -= 1,
                Some(_) => {}
                None => return Err(RowError::NotAnObject),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
