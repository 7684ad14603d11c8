//! `jsonb`, as bytes that are equal where PostgreSQL finds two values equal: numbers by their value, objects
//! without the order of their keys, the last of several equal keys.
//!
//! Must never take a number through a float, and never recurse deeper than its limit.

use std::collections::BTreeMap;

use super::{ValueError, decimal};

/// The key of the JSON value `null`.
pub const NULL: [u8; 1] = [Tag::Null as u8];

/// Levels of a constant.
const DEPTH_MAX: usize = 100;

const FORM: ValueError = ValueError::Malformed {
    expected: "a JSON value of at most 100 levels",
};

/// The first byte of each value within a key.
#[derive(Clone, Copy)]
enum Tag {
    Null,
    False,
    True,
    Number,
    String,
    Array,
    Object,
    /// More levels than any constant has: equal to none.
    Deep,
}

/// Why a text was not read.
enum Stop {
    Malformed,
    Deep,
    OutOfRange,
}

/// Appends the key of a value as PostgreSQL prints it.
pub fn encode_row(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let begin = out.len();
    match document(text, false, out) {
        Ok(()) => Some(()),
        Err(Stop::Deep) => {
            out.truncate(begin);
            out.push(Tag::Deep as u8);
            Some(())
        }
        Err(Stop::Malformed | Stop::OutOfRange) => None,
    }
}

/// Reads a constant and appends its key.
pub fn bind(text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    document(text, true, out).map_err(|stop| match stop {
        Stop::OutOfRange => ValueError::OutOfRange { type_name: "numeric" },
        Stop::Malformed | Stop::Deep => FORM,
    })
}

fn document(text: &str, constant: bool, out: &mut Vec<u8>) -> Result<(), Stop> {
    let mut scan = Scan::new(text);
    let mut encoder = Encoder { constant };
    encoder.value(&mut scan, 0, out)?;
    if scan.peek().is_none() {
        Ok(())
    } else {
        Err(Stop::Malformed)
    }
}

struct Encoder {
    /// What is read was written by a client, and not printed by PostgreSQL.
    constant: bool,
}

impl Encoder {
    fn value(&mut self, scan: &mut Scan<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        match scan.peek().ok_or(Stop::Malformed)? {
            b'[' | b'{' if depth == DEPTH_MAX => Err(Stop::Deep),
            b'[' => self.array(scan, depth + 1, out),
            b'{' => self.object(scan, depth + 1, out),
            b'"' => {
                let text = self.string(scan)?;
                out.push(Tag::String as u8);
                push_bytes(out, text.as_bytes());
                Ok(())
            }
            _ => self.bare(scan, out),
        }
    }

    fn array(&mut self, scan: &mut Scan<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        scan.skip(b'[');
        out.push(Tag::Array as u8);
        let at = out.len();
        out.extend([0; 4]);
        let mut count = 0_u32;
        if scan.skip(b']') {
            return Ok(());
        }
        loop {
            self.value(scan, depth, out)?;
            count += 1;
            if scan.skip(b']') {
                out[at..at + 4].copy_from_slice(&count.to_be_bytes());
                return Ok(());
            }
            scan.expect(b',')?;
        }
    }

    fn object(&mut self, scan: &mut Scan<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        scan.skip(b'{');
        let mut members: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        if !scan.skip(b'}') {
            loop {
                scan.peek().filter(|byte| *byte == b'"').ok_or(Stop::Malformed)?;
                let name = self.string(scan)?;
                scan.expect(b':')?;
                let mut value = Vec::new();
                self.value(scan, depth, &mut value)?;
                members.insert(name, value);
                if scan.skip(b'}') {
                    break;
                }
                scan.expect(b',')?;
            }
        }
        out.push(Tag::Object as u8);
        out.extend((members.len() as u32).to_be_bytes());
        for (name, value) in members {
            push_bytes(out, name.as_bytes());
            out.extend(value);
        }
        Ok(())
    }

    fn string(&mut self, scan: &mut Scan<'_>) -> Result<String, Stop> {
        let raw = scan.string().ok_or(Stop::Malformed)?;
        let text: String = serde_json::from_str(raw).map_err(|_| Stop::Malformed)?;
        // PostgreSQL has no such character.
        if text.contains('\0') {
            return Err(Stop::Malformed);
        }
        Ok(text)
    }

    fn bare(&mut self, scan: &mut Scan<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        match scan.bare() {
            "null" => out.push(Tag::Null as u8),
            "false" => out.push(Tag::False as u8),
            "true" => out.push(Tag::True as u8),
            number if is_number(number) => {
                let mut key = Vec::new();
                if self.constant {
                    decimal::bind("numeric", number, &mut key).map_err(|error| match error {
                        ValueError::OutOfRange { .. } => Stop::OutOfRange,
                        _ => Stop::Malformed,
                    })?;
                } else {
                    decimal::encode(number, &mut key).ok_or(Stop::Malformed)?;
                }
                out.push(Tag::Number as u8);
                push_bytes(out, &key);
            }
            _ => return Err(Stop::Malformed),
        }
        Ok(())
    }
}

/// The number of RFC 8259.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

/// Reads JSON from the front.
pub struct Scan<'a> {
    rest: &'a str,
}

impl<'a> Scan<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// The next byte that is no blank.
    pub fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest.bytes().next()
    }

    /// Takes a mark, if it is next.
    pub fn skip(&mut self, mark: u8) -> bool {
        let found = self.peek() == Some(mark);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn expect(&mut self, mark: u8) -> Result<(), Stop> {
        if self.skip(mark) {
            Ok(())
        } else {
            Err(Stop::Malformed)
        }
    }

    /// A string with its quotes, which must be next.
    pub fn string(&mut self) -> Option<&'a str> {
        let bytes = self.rest.as_bytes();
        let mut at = 1;
        loop {
            at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
            if bytes[at] == b'"' {
                break;
            }
            at += 2;
        }
        let (string, rest) = self.rest.split_at(at + 1);
        self.rest = rest;
        Some(string)
    }

    /// What stands before the next mark or blank: a number or a word.
    pub fn bare(&mut self) -> &'a str {
        let marks = [',', ':', ']', '}', '[', '{', '"', ' ', '\t', '\n', '\r'];
        let end = self.rest.find(marks).unwrap_or(self.rest.len());
        let (bare, rest) = self.rest.split_at(end);
        self.rest = rest;
        bare
    }
}
