//! Values whose text is the value: strings, and the small types read from one.
//!
//! Must never fold or normalise text: names and labels are opaque UTF-8.

use std::borrow::Cow;

use super::ValueError;

/// Longest value of `name`, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// What C's `isspace` takes for a blank, which is what PostgreSQL's input functions skip.
pub fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r'])
}

/// The characters of a JSON string; `None` for any other JSON.
pub fn unquote(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(json).ok().map(Cow::Owned)
}

/// A JSON number, or what stands between the quotes where PostgreSQL quotes a number (`oid`, `NaN`).
pub fn bare(json: &str) -> &str {
    json.strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(json)
}

/// `boolin`: any prefix of true, false, yes, no; on, of(f); 1, 0; in any case.
pub fn boolean(text: &str) -> Option<bool> {
    let prefix_of = |word: &str| {
        let head = word.as_bytes().get(..text.len());
        !text.is_empty() && head.is_some_and(|head| head.eq_ignore_ascii_case(text.as_bytes()))
    };
    if text == "1" || text.eq_ignore_ascii_case("on") || prefix_of("true") || prefix_of("yes") {
        return Some(true);
    }
    let off = text.len() >= 2 && prefix_of("off");
    (text == "0" || off || prefix_of("false") || prefix_of("no")).then_some(false)
}

/// `uuid_in`: 32 hexadecimal digits in any case, a hyphen allowed after each group of four,
/// braces allowed around it all.
pub fn uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    let mut rest = match bytes.strip_prefix(b"{") {
        Some(inner) => inner.strip_suffix(b"}")?,
        None => bytes,
    };
    let mut uuid = [0; 16];
    for (i, byte) in uuid.iter_mut().enumerate() {
        let [high, low, tail @ ..] = rest else { return None };
        *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
        rest = match tail {
            [b'-', tail @ ..] if i % 2 == 1 && i < 15 => tail,
            tail => tail,
        };
    }
    rest.is_empty().then_some(uuid)
}

/// `byteain` in its hexadecimal format.
pub fn bytea(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let digits = text.strip_prefix(r"\x")?.as_bytes();
    if digits.len() % 2 != 0 {
        return None;
    }
    for pair in digits.chunks_exact(2) {
        out.push(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?);
    }
    Some(())
}

/// A constant of a text type. Two of them are of limited length, and PostgreSQL cuts a longer
/// constant without a word.
pub fn catalog_text<'a>(type_name: &str, text: &'a str) -> Result<&'a str, ValueError> {
    match type_name {
        "name" if text.len() > NAME_BYTES_MAX => Err(ValueError::OutOfRange { type_name: "name" }),
        "char" if text.len() > 1 => Err(ValueError::OutOfRange {
            type_name: "\"char\"",
        }),
        _ => Ok(text),
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
