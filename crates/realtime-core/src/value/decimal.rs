//! Whole numbers and `numeric`, on their digits alone.
//!
//! Must never take a value through a float or a machine integer: 131,072 digits are legal.

use super::ValueError;

/// `numeric` holds values below 10 to this power.
const NUMERIC_POWER_MAX: i64 = 131_072;
/// `numeric` holds so many digits behind the point.
const NUMERIC_SCALE_MAX: i64 = 16_383;
/// PostgreSQL reads no exponent beyond this.
const EXPONENT_MAX: i64 = i32::MAX as i64 / 2;

/// The first byte of a key: the classes in their order.
#[derive(Clone, Copy)]
enum Class {
    NegativeInfinity,
    Negative,
    Zero,
    Positive,
    Infinity,
    NotANumber,
}

/// A number as its text spells it: value = 0.d1d2d3… × 10^power, d1 and the last digit not zero.
struct Number<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

/// Appends the key of a number's text.
pub fn encode(text: &str, out: &mut Vec<u8>) -> Option<()> {
    if let Some(class) = word(text) {
        out.push(class as u8);
        return Some(());
    }
    parse(text)?.encode(out);
    Some(())
}

/// Reads a constant of `int2`, `int4`, `int8`, `oid` or `numeric` and appends its key.
pub fn bind(type_name: &str, text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let (low, high, type_name) = match type_name {
        "int2" => (i16::MIN.into(), i16::MAX.into(), "int2"),
        "int4" => (i32::MIN.into(), i32::MAX.into(), "int4"),
        "int8" => (i64::MIN.into(), i64::MAX.into(), "int8"),
        "oid" => (0, u32::MAX.into(), "oid"),
        _ => return bind_numeric(text, out),
    };
    let malformed = ValueError::Malformed {
        expected: "a whole number",
    };
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(malformed);
    }
    // Decimal to PostgreSQL 15, octal to 18.
    if type_name == "oid" && digits.len() > 1 && digits.starts_with('0') {
        return Err(ValueError::Malformed {
            expected: "a whole number without leading zeros",
        });
    }
    let out_of_range = ValueError::OutOfRange { type_name };
    // More digits than i128 holds are out of every range.
    let value: i128 = text.parse().map_err(|_| out_of_range)?;
    if !(low..=high).contains(&value) {
        return Err(out_of_range);
    }
    encode(text, out).ok_or(malformed)
}

fn bind_numeric(text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    if let Some(class) = word(text) {
        out.push(class as u8);
        return Ok(());
    }
    let number = parse(text).ok_or(ValueError::Malformed { expected: "a number" })?;
    let scale = number.fraction.len() as i64 - number.exponent;
    let power = number.digits().map_or(0, |(_, power)| power);
    if scale > NUMERIC_SCALE_MAX || power > NUMERIC_POWER_MAX {
        return Err(ValueError::OutOfRange { type_name: "numeric" });
    }
    number.encode(out);
    Ok(())
}

/// The numbers that are written as words, in any case.
fn word(text: &str) -> Option<Class> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("nan") {
        Some(Class::NotANumber)
    } else if is("infinity") || is("+infinity") || is("inf") || is("+inf") {
        Some(Class::Infinity)
    } else if is("-infinity") || is("-inf") {
        Some(Class::NegativeInfinity)
    } else {
        None
    }
}

fn parse(text: &str) -> Option<Number<'_>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, power(exponent)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
        return None;
    }
    Some(Number {
        negative: text.starts_with('-'),
        whole: whole.as_bytes(),
        fraction: fraction.as_bytes(),
        exponent,
    })
}

fn power(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Leading zeros may make a small exponent long.
    let significant = digits.trim_start_matches('0');
    let size: i64 = if significant.is_empty() {
        0
    } else {
        significant.parse().ok()?
    };
    if size >= EXPONENT_MAX {
        return None;
    }
    Some(if text.starts_with('-') { -size } else { size })
}

impl<'a> Number<'a> {
    /// The digits from the first to the last that is not zero, and the power of ten; `None` for zero.
    fn digits(&self) -> Option<(impl Iterator<Item = u8> + use<'a>, i64)> {
        let (whole, fraction) = (self.whole, self.fraction);
        let all = whole.iter().chain(fraction);
        let first = all.clone().position(|digit| *digit != b'0')?;
        let zeros_behind = all.clone().rev().position(|digit| *digit != b'0')?;
        let count = whole.len() + fraction.len() - first - zeros_behind;
        let power = whole.len() as i64 - first as i64 + self.exponent;
        Some((all.skip(first).take(count).copied(), power))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let Some((digits, power)) = self.digits() else {
            out.push(Class::Zero as u8);
            return;
        };
        let power = (power ^ i64::MIN).to_be_bytes();
        if self.negative {
            // A larger size is a smaller value: every byte is turned over, and an end mark above
            // them all puts -12 after -123.
            out.push(Class::Negative as u8);
            out.extend(power.iter().map(|byte| !byte));
            out.extend(digits.map(|byte| !byte));
            out.push(u8::MAX);
        } else {
            out.push(Class::Positive as u8);
            out.extend(power);
            out.extend(digits);
        }
    }
}
