//! Arrays, as bytes that are equal where PostgreSQL finds two arrays equal: the same dimensions, and equal
//! elements, where null equals null.
//!
//! Must never read bounds, which a row's JSON does not show.

use super::json::Scan;
use super::{Constant, ValueError, ValueKind};

/// Dimensions that PostgreSQL allows.
const DIMENSIONS_MAX: usize = 6;

const FORM: ValueError = ValueError::Malformed {
    expected: "an array as {a,\"b\",NULL}, the same number of elements in each of its parts",
};

/// Collects the elements of an array, with its shape.
#[derive(Default)]
struct Shape {
    /// Elements of each dimension, known once the first part of it has ended.
    dimensions: Vec<Option<u32>>,
    elements: Vec<u8>,
    count: u32,
}

impl Shape {
    fn null(&mut self) {
        self.count += 1;
        self.elements.push(0);
    }

    fn value(&mut self, key: &[u8]) {
        self.count += 1;
        self.elements.push(1);
        self.elements.extend((key.len() as u32).to_be_bytes());
        self.elements.extend(key);
    }

    /// A part of a dimension ends with so many elements. `None`: the parts differ.
    fn end(&mut self, depth: usize, length: u32) -> Option<()> {
        let known = self.dimensions.get_mut(depth)?;
        (*known.get_or_insert(length) == length).then_some(())
    }

    fn open(&mut self, depth: usize) -> Option<()> {
        if depth >= DIMENSIONS_MAX {
            return None;
        }
        if depth == self.dimensions.len() {
            // A deeper part after an element of this depth.
            if self.count > 0 {
                return None;
            }
            self.dimensions.push(None);
        }
        Some(())
    }

    fn write(self, out: &mut Vec<u8>) {
        // An empty array has no dimensions.
        if self.count > 0 {
            out.push(self.dimensions.len() as u8);
            for length in self.dimensions.into_iter().flatten() {
                out.extend(length.to_be_bytes());
            }
        } else {
            out.push(0);
        }
        out.extend(self.elements);
    }
}

/// Appends the key of an array as a row's JSON shows it.
pub fn read(element: &ValueKind, json: &str, out: &mut Vec<u8>) -> Option<()> {
    let mut scan = Scan::new(json);
    let mut shape = Shape::default();
    scan.skip(b'[').then_some(())?;
    read_part(element, &mut scan, 0, &mut shape)?;
    if scan.peek().is_some() {
        return None;
    }
    shape.write(out);
    Some(())
}

fn read_part(element: &ValueKind, scan: &mut Scan<'_>, depth: usize, shape: &mut Shape) -> Option<()> {
    shape.open(depth)?;
    if scan.skip(b']') {
        return shape.end(depth, 0);
    }
    let mut length = 0;
    let mut key = Vec::new();
    loop {
        if scan.skip(b'[') {
            read_part(element, scan, depth + 1, shape)?;
        } else {
            // An element where others are parts.
            if depth + 1 != shape.dimensions.len() {
                return None;
            }
            let value = match scan.peek()? {
                b'"' => scan.string()?,
                _ => scan.bare(),
            };
            if value == "null" {
                shape.null();
            } else {
                key.clear();
                element.read(value, &mut key)?;
                shape.value(&key);
            }
        }
        length += 1;
        if scan.skip(b']') {
            return shape.end(depth, length);
        }
        scan.skip(b',').then_some(())?;
    }
}

/// Reads a constant and appends its key.
pub fn bind(element: &(Box<str>, ValueKind), text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let mut parser = Parser {
        rest: trim_start(text),
        element,
        shape: Shape::default(),
    };
    parser.expect('{')?;
    if trim_start(parser.rest).starts_with('}') {
        parser.rest = trim_start(parser.rest);
        parser.expect('}')?;
    } else {
        parser.part(0)?;
    }
    if !trim_start(parser.rest).is_empty() {
        return Err(FORM);
    }
    parser.shape.write(out);
    Ok(())
}

struct Parser<'a> {
    rest: &'a str,
    element: &'a (Box<str>, ValueKind),
    shape: Shape,
}

impl Parser<'_> {
    /// What follows an opening brace, up to and with its closing one.
    fn part(&mut self, depth: usize) -> Result<(), ValueError> {
        self.shape.open(depth).ok_or(FORM)?;
        let mut length = 0;
        loop {
            self.rest = trim_start(self.rest);
            if self.rest.starts_with('{') {
                self.expect('{')?;
                self.part(depth + 1)?;
            } else {
                if depth + 1 != self.shape.dimensions.len() {
                    return Err(FORM);
                }
                self.element()?;
            }
            length += 1;
            self.rest = trim_start(self.rest);
            if self.rest.starts_with('}') {
                self.expect('}')?;
                return self.shape.end(depth, length).ok_or(FORM);
            }
            self.expect(',')?;
        }
    }

    fn element(&mut self) -> Result<(), ValueError> {
        let (text, plain) = if self.rest.starts_with('"') {
            (self.quoted()?, false)
        } else {
            self.bare()?
        };
        if plain && text.eq_ignore_ascii_case("null") {
            self.shape.null();
            return Ok(());
        }
        let (type_name, kind) = self.element;
        let constant = Constant::bind_as(kind.clone(), type_name, &text)?;
        self.shape.value(constant.key());
        Ok(())
    }

    fn quoted(&mut self) -> Result<String, ValueError> {
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(out);
                }
                '\\' => out.push(chars.next().ok_or(FORM)?.1),
                c => out.push(c),
            }
        }
        Err(FORM)
    }

    /// Text without quotes; `true` where none of it is escaped, so that it may be the word NULL.
    fn bare(&mut self) -> Result<(String, bool), ValueError> {
        let mut out = String::new();
        // The length without blanks at the end, which are dropped unless they are escaped.
        let mut kept = 0;
        let mut plain = true;
        let mut chars = self.rest.char_indices();
        loop {
            let (at, c) = chars.next().ok_or(FORM)?;
            match c {
                ',' | '}' => {
                    self.rest = &self.rest[at..];
                    out.truncate(kept);
                    return if out.is_empty() {
                        Err(FORM)
                    } else {
                        Ok((out, plain))
                    };
                }
                '{' | '"' => return Err(FORM),
                '\\' => {
                    plain = false;
                    out.push(chars.next().ok_or(FORM)?.1);
                    kept = out.len();
                }
                c => {
                    out.push(c);
                    if !is_blank(c) {
                        kept = out.len();
                    }
                }
            }
        }
    }

    fn expect(&mut self, mark: char) -> Result<(), ValueError> {
        self.rest = self.rest.strip_prefix(mark).ok_or(FORM)?;
        Ok(())
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

fn trim_start(text: &str) -> &str {
    text.trim_start_matches(is_blank)
}
