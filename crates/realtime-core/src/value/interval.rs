//! `interval`, as the length that PostgreSQL compares by: months of 30 days, days of 24 hours.
//!
//! Must never read a spelling whose meaning depends on `IntervalStyle`, which the feed pins to `postgres`.

use super::ValueError;

const SECOND: i128 = 1_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;
const MONTH: i128 = 30 * DAY;

/// Units in their order, with their names. The three clock units are the last.
const UNITS: [(&[&str], i128); 7] = [
    (&["year", "years"], 12 * MONTH),
    (&["mon", "mons", "month", "months"], MONTH),
    (&["week", "weeks"], 7 * DAY),
    (&["day", "days"], DAY),
    (&["hour", "hours"], HOUR),
    (&["minute", "minutes"], MINUTE),
    (&["second", "seconds"], SECOND),
];
const HOURS: usize = 4;
const SECONDS: usize = 6;

/// Digits of one number of a constant: far from every limit of the type.
const DIGITS_MAX: usize = 6;
/// Digits of one number that PostgreSQL prints: hours count up to 64 bits of microseconds.
const DIGITS_MAX_PRINTED: usize = 12;

const FORM: ValueError = ValueError::Malformed {
    expected: "an interval such as 1 year 2 mons 3 days 04:05:06 or P1Y2M3DT4H5M6S",
};

/// The key of an interval as PostgreSQL prints it.
pub fn read(text: &str) -> Option<[u8; 16]> {
    match text {
        "infinity" => Some(key(i128::MAX)),
        "-infinity" => Some(key(i128::MIN)),
        _ => verbose(text, DIGITS_MAX_PRINTED).map(key),
    }
}

/// The key of a constant.
pub fn bind(text: &str) -> Result<[u8; 16], ValueError> {
    let trimmed = super::text::trim(text);
    let length = match trimmed.strip_prefix('P') {
        // Beside a plus or a blank behind it, PostgreSQL refuses some of these.
        Some(iso) if !trimmed.contains('+') && text.ends_with(trimmed) => iso_8601(iso),
        Some(_) => None,
        None => verbose(trimmed, DIGITS_MAX),
    };
    length.map(key).ok_or(FORM)
}

fn key(length: i128) -> [u8; 16] {
    (length ^ i128::MIN).to_be_bytes()
}

/// `1 year -2 mons +3 days -04:05:06.7`, in microseconds.
fn verbose(text: &str, digits_max: usize) -> Option<i128> {
    let mut words = text.split(' ').filter(|word| !word.is_empty()).peekable();
    words.peek()?;
    let mut length = 0;
    let mut next_unit = 0;
    while let Some(word) = words.next() {
        if word.contains(':') {
            length += clock(word, digits_max)?;
            return (next_unit <= HOURS && words.next().is_none()).then_some(length);
        }
        let name = words.next()?;
        let unit = UNITS.iter().position(|(names, _)| names.contains(&name))?;
        if unit < next_unit {
            return None;
        }
        next_unit = unit + 1;
        length += count(word, unit, digits_max)?;
    }
    Some(length)
}

/// `1Y2M3W4DT5H6M7.5S`, in microseconds.
fn iso_8601(text: &str) -> Option<i128> {
    let (date, time) = match text.split_once('T') {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (text, ""),
    };
    if text.is_empty() {
        return None;
    }
    let date = designated(date, &[('Y', 0), ('M', 1), ('W', 2), ('D', 3)])?;
    let time = designated(time, &[('H', 4), ('M', 5), ('S', 6)])?;
    Some(date + time)
}

/// Numbers, each with its letter behind it, in the order of the letters.
fn designated(mut text: &str, letters: &[(char, usize)]) -> Option<i128> {
    let mut length = 0;
    let mut letters = letters.iter();
    while !text.is_empty() {
        let end = text.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, rest) = text.split_at(end);
        let (_, unit) = letters.find(|(letter, _)| rest.starts_with(*letter))?;
        length += count(number, *unit, DIGITS_MAX)?;
        text = &rest[1..];
    }
    Some(length)
}

/// So many of a unit, in microseconds.
fn count(number: &str, unit: usize, digits_max: usize) -> Option<i128> {
    let (negative, unsigned) = sign(number);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    if unit != SECONDS && unsigned.len() != whole.len() {
        return None;
    }
    let length = digits(whole, digits_max)? * UNITS[unit].1 + micros(fraction)?;
    Some(if negative { -length } else { length })
}

/// `[+-]HH:MM[:SS[.f]]`, in microseconds.
fn clock(text: &str, digits_max: usize) -> Option<i128> {
    let (negative, unsigned) = sign(text);
    let mut parts = unsigned.split(':');
    let hours = digits(parts.next()?, digits_max)?;
    let minutes = two(parts.next()?)?;
    let seconds = match parts.next() {
        None => 0,
        Some(seconds) => {
            let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
            two(whole)? * SECOND + micros(fraction)?
        }
    };
    if parts.next().is_some() {
        return None;
    }
    let length = hours * HOUR + minutes * MINUTE + seconds;
    Some(if negative { -length } else { length })
}

fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn digits(text: &str, digits_max: usize) -> Option<i128> {
    let fits = !text.is_empty() && text.len() <= digits_max && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// Two digits of a clock, below 60.
fn two(text: &str) -> Option<i128> {
    digits(text, 2).filter(|number| text.len() == 2 && *number < 60)
}

/// One to six digits behind the point.
fn micros(text: &str) -> Option<i128> {
    let scale = 10_i128.pow(6_u32.checked_sub(u32::try_from(text.len()).ok()?)?);
    Some(digits(text, 6)? * scale)
}
