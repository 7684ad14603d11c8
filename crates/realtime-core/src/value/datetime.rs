//! `date`, `time`, `timetz`, `timestamp` and `timestamptz` in ISO spelling, as counts of days or microseconds.
//!
//! Must never read a spelling whose meaning depends on settings or on the clock.

use super::ValueError;

/// Stands for the infinities; no date or time of PostgreSQL's reaches either.
const INFINITY: i64 = i64::MAX;
const NEGATIVE_INFINITY: i64 = i64::MIN;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Offsets from UTC stay below this many hours.
const OFFSET_HOURS_END: i64 = 16;

const DATE_FORM: ValueError = ValueError::Malformed {
    expected: "a date as YYYY-MM-DD",
};
const TIME_FORM: ValueError = ValueError::Malformed {
    expected: "a time as HH:MM[:SS[.ffffff]]",
};
const TIMETZ_FORM: ValueError = ValueError::Malformed {
    expected: "a time as HH:MM[:SS[.ffffff]][Z or +HH[:MM]]",
};
const TIMESTAMP_FORM: ValueError = ValueError::Malformed {
    expected: "a date and time as YYYY-MM-DD[THH:MM[:SS[.ffffff]][Z or +HH[:MM]]]",
};

/// A `date`, as days since 2000-01-01.
pub fn date(text: &str) -> Result<i64, ValueError> {
    if let Some(infinity) = infinity(text) {
        return Ok(infinity);
    }
    let out_of_range = ValueError::OutOfRange { type_name: "date" };
    let (era, text) = era(text);
    let mut scan = Scan {
        rest: text.as_bytes(),
    };
    let day = scan.date(era).ok_or(DATE_FORM)?.ok_or(out_of_range)?;
    if !scan.rest.is_empty() {
        return Err(DATE_FORM);
    }
    if (DAY_FIRST..DATE_END).contains(&day) {
        Ok(day)
    } else {
        Err(out_of_range)
    }
}

/// A `time`, as microseconds since midnight.
pub fn time(text: &str) -> Result<i64, ValueError> {
    let mut scan = Scan {
        rest: text.as_bytes(),
    };
    let time = scan
        .time()
        .ok_or(TIME_FORM)?
        .ok_or(ValueError::OutOfRange { type_name: "time" })?;
    if scan.rest.is_empty() {
        Ok(time)
    } else {
        Err(TIME_FORM)
    }
}

/// A `timetz`, as a key: PostgreSQL compares the instants first, and of equal ones the offsets, the
/// eastern before the western. Without an offset it is UTC.
pub fn timetz(text: &str) -> Result<[u8; 12], ValueError> {
    let out_of_range = ValueError::OutOfRange { type_name: "timetz" };
    let mut scan = Scan {
        rest: text.as_bytes(),
    };
    let time = scan.time().ok_or(TIMETZ_FORM)?.ok_or(out_of_range)?;
    let offset = scan.offset().ok_or(TIMETZ_FORM)?.ok_or(out_of_range)?;
    if !scan.rest.is_empty() {
        return Err(TIMETZ_FORM);
    }
    let mut key = [0; 12];
    key[..8].copy_from_slice(&super::ordered(time - offset));
    // Less than a day of seconds.
    let west = i32::try_from(-offset / SECOND).map_err(|_| out_of_range)?;
    key[8..].copy_from_slice(&(west ^ i32::MIN).to_be_bytes());
    Ok(key)
}

/// A `timestamp`, as microseconds since 2000-01-01. An offset is read and, as in PostgreSQL, ignored.
pub fn timestamp(text: &str) -> Result<i64, ValueError> {
    instant(text, "timestamp", |local, _| local)
}

/// A `timestamptz`, as microseconds since 2000-01-01 UTC. Without an offset it is UTC.
pub fn timestamptz(text: &str) -> Result<i64, ValueError> {
    instant(text, "timestamptz", |local, offset| local - i128::from(offset))
}

fn instant(text: &str, type_name: &'static str, at: impl Fn(i128, i64) -> i128) -> Result<i64, ValueError> {
    if let Some(infinity) = infinity(text) {
        return Ok(infinity);
    }
    let out_of_range = ValueError::OutOfRange { type_name };
    let (era, text) = era(text);
    let mut scan = Scan {
        rest: text.as_bytes(),
    };
    let day = scan.date(era).ok_or(TIMESTAMP_FORM)?.ok_or(out_of_range)?;
    let (mut time, mut offset) = (0, 0);
    if scan.skip(b' ') || scan.skip(b'T') || scan.skip(b't') {
        time = scan.time().ok_or(TIMESTAMP_FORM)?.ok_or(out_of_range)?;
        offset = scan.offset().ok_or(TIMESTAMP_FORM)?.ok_or(out_of_range)?;
    }
    if !scan.rest.is_empty() {
        return Err(TIMESTAMP_FORM);
    }
    let micros = at(i128::from(day) * i128::from(DAY) + i128::from(time), offset);
    let first = i128::from(DAY_FIRST) * i128::from(DAY);
    let end = i128::from(TIMESTAMP_DAY_END) * i128::from(DAY);
    // In range here means in range of i64.
    if (first..end).contains(&micros) {
        i64::try_from(micros).map_err(|_| out_of_range)
    } else {
        Err(out_of_range)
    }
}

fn infinity(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("infinity") {
        Some(INFINITY)
    } else if text.eq_ignore_ascii_case("-infinity") {
        Some(NEGATIVE_INFINITY)
    } else {
        None
    }
}

#[derive(Clone, Copy)]
enum Era {
    Common,
    BeforeChrist,
}

/// Takes ` BC` or ` AD` off the end.
fn era(text: &str) -> (Era, &str) {
    let Some((head, tail)) = text.split_at_checked(text.len().saturating_sub(3)) else {
        return (Era::Common, text);
    };
    if tail.eq_ignore_ascii_case(" bc") {
        (Era::BeforeChrist, head)
    } else if tail.eq_ignore_ascii_case(" ad") {
        (Era::Common, head)
    } else {
        (Era::Common, text)
    }
}

/// Reads from the front. A part that is malformed is `None`; one that is well formed but names no
/// time is `Some(None)`.
struct Scan<'a> {
    rest: &'a [u8],
}

impl Scan<'_> {
    fn skip(&mut self, byte: u8) -> bool {
        match self.rest.strip_prefix(&[byte]) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip(byte).then_some(())
    }

    /// All digits at the front, and nothing else.
    fn digits(&mut self) -> &[u8] {
        let end = self
            .rest
            .iter()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits
    }

    fn two(&mut self) -> Option<i64> {
        let [tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] = self.rest else {
            return None;
        };
        self.rest = rest;
        Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
    }

    fn date(&mut self, era: Era) -> Option<Option<i64>> {
        let digits = self.digits();
        // A year of less than four digits may mean one of this century.
        if digits.len() < 4 || (digits.len() > 4 && digits[0] == b'0') {
            return None;
        }
        let year = if digits.len() > 7 {
            None
        } else {
            Some(number(digits))
        };
        self.expect(b'-')?;
        let month = self.two()?;
        self.expect(b'-')?;
        let day = self.two()?;
        Some(year.filter(|year| *year > 0).and_then(|year| {
            let year = match era {
                Era::Common => year,
                Era::BeforeChrist => 1 - year,
            };
            let exists = (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
            exists.then(|| days_from_civil(year, month, day))
        }))
    }

    fn time(&mut self) -> Option<Option<i64>> {
        let hour = self.two()?;
        self.expect(b':')?;
        let minute = self.two()?;
        let (mut second, mut micros) = (0, 0);
        if self.skip(b':') {
            second = self.two()?;
            if self.skip(b'.') {
                micros = fraction(self.digits())?;
            }
        }
        let time = hour * HOUR + minute * MINUTE + second * SECOND + micros;
        // 24:00:00 is the end of the day.
        let exists = hour <= 24 && minute < 60 && second < 60 && time <= DAY;
        Some(exists.then_some(time))
    }

    /// An offset in microseconds, east of UTC positive; 0 where there is none.
    fn offset(&mut self) -> Option<Option<i64>> {
        if self.rest.is_empty() || self.skip(b'Z') || self.skip(b'z') {
            return Some(Some(0));
        }
        let east = self.skip(b'+');
        if !east {
            self.expect(b'-')?;
        }
        let hours = self.two()?;
        let (mut minutes, mut seconds) = (0, 0);
        if self.skip(b':') {
            minutes = self.two()?;
            if self.skip(b':') {
                seconds = self.two()?;
            }
        } else if !self.rest.is_empty() {
            minutes = self.two()?;
        }
        let size = hours * HOUR + minutes * MINUTE + seconds * SECOND;
        let exists = hours < OFFSET_HOURS_END && minutes < 60 && seconds < 60;
        Some(exists.then_some(if east { size } else { -size }))
    }
}

fn number(digits: &[u8]) -> i64 {
    digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
}

/// Microseconds of a second's fraction. Beyond six digits it is rounded as PostgreSQL rounds: through
/// a double, half to even.
fn fraction(digits: &[u8]) -> Option<i64> {
    match digits.len() {
        0 => None,
        1..=6 => Some(number(digits) * 10_i64.pow(6 - digits.len() as u32)),
        _ => {
            let text = format!("0.{}", std::str::from_utf8(digits).ok()?);
            let fraction: f64 = text.parse().ok()?;
            Some((fraction * 1e6).round_ties_even() as i64)
        }
    }
}

/// 4714-11-24 BC, where Julian days begin: PostgreSQL's first date and timestamp.
const DAY_FIRST: i64 = days_from_civil(-4713, 11, 24);
/// The day after PostgreSQL's last date.
const DATE_END: i64 = days_from_civil(5_874_898, 1, 1);
/// The day after PostgreSQL's last timestamp.
const TIMESTAMP_DAY_END: i64 = days_from_civil(294_277, 1, 1);

pub(super) fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 2000-01-01 (from which PostgreSQL's last timestamp fits 64 bits) in the Gregorian
/// calendar, also before it was used. The year begins in March, so that the leap day is its last.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let cycle = year.div_euclid(400);
    let year_of_cycle = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    cycle * 146_097 + day_of_cycle - 730_425
}
