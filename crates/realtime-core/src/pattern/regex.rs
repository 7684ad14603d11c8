//! Regular expressions: the part of PostgreSQL's language (ARE) that means the same to both, run as an
//! automaton that takes one step for each byte of a text.
//!
//! Whether a text matches is all that is asked, so it does not matter which match PostgreSQL would prefer: greedy and
//! non-greedy quantifiers are one.
//!
//! # What is accepted
//!
//! ```text
//! expression := branch { "|" branch }
//! branch     := { atom [ quantifier ] }
//! quantifier := "*" | "+" | "?" | "{m}" | "{m,}" | "{m,n}", each with "?" behind it or not       m, n ≤ 255
//! atom       := character | "." | "^" | "$" | "\A" | "\Z" | "(" expression ")" | "(?:" expression ")" | set | escape
//! set        := "[" ["^"] { character | character "-" character | escape } "]"
//! escape     := "\" and a character of ASCII that is no letter and no digit | \t \n \r \f \v
//!             | \d \w \s (also in a set) | \D \W \S                                 only under collation C or POSIX
//! ```
//!
//! - `.` and `[^…]` take in line breaks, `^` and `$` stand for the ends of the whole text: PostgreSQL's defaults.
//! - In `imatch` each letter stands for both its cases; a pattern beyond ASCII needs the collation C or POSIX, under which only
//!   ASCII has cases.
//! - A range with ends beyond ASCII needs a collation whose letters are known, because it goes by the encoding's numbers.
//!
//! # What is refused by name
//!
//! Back-references, lookahead and lookbehind, `\m \M \y \Y \<`-like word limits, embedded options (`(?i)`), directors (`***=`),
//! character classes (`[:alpha:]`), equivalence classes and collating elements, numeric and other escapes by letters, `\d \w \s`
//! under other collations (write `[0-9]`), a quantifier of a quantifier or of `^` and `$`, an unescaped `{` that begins no
//! bound, more than 50 levels of parentheses; and whatever compiles to more than the limit.

use regex_automata::Input;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, Look, Repetition};

use super::PatternError;
use super::PatternError::{Invalid, Unsupported};
use crate::table::Letters;

/// PostgreSQL's largest count of a quantifier.
const COUNT_MAX: u32 = 255;
/// Levels of parentheses.
const DEPTH_MAX: usize = 50;

/// A compiled expression.
pub struct Regex(dense::DFA<Vec<u32>>);

/// How an expression is read.
pub struct Options<'a> {
    pub ignore_case: bool,
    pub letters: &'a Letters,
    /// Limit of the automaton, in bytes.
    pub bytes_max: usize,
}

impl Regex {
    pub fn new(source: &str, options: &Options<'_>) -> Result<Self, PatternError> {
        let hir = parse(source, options)?;
        let too_complex = PatternError::TooComplex {
            bytes_max: options.bytes_max,
        };
        let nfa = thompson::Compiler::new()
            .configure(
                thompson::Config::new()
                    .utf8(false)
                    .which_captures(WhichCaptures::None)
                    .nfa_size_limit(Some(options.bytes_max)),
            )
            .build_from_hir(&hir)
            .map_err(|_| too_complex)?;
        let dfa = dense::Builder::new()
            .configure(
                dense::Config::new()
                    .start_kind(StartKind::Unanchored)
                    .accelerate(false)
                    .dfa_size_limit(Some(options.bytes_max))
                    .determinize_size_limit(Some(options.bytes_max)),
            )
            .build_from_nfa(&nfa)
            .map_err(|_| too_complex)?;
        Ok(Self(dfa))
    }

    pub fn matches(&self, text: &str) -> bool {
        // The only error is a byte at which the automaton gives up: it has none.
        matches!(
            self.0.try_search_fwd(&Input::new(text).earliest(true)),
            Ok(Some(_))
        )
    }

    pub fn bytes(&self) -> usize {
        self.0.memory_usage()
    }
}

fn parse(source: &str, options: &Options<'_>) -> Result<Hir, PatternError> {
    if source.starts_with("***") {
        return Err(Unsupported("a director (***)"));
    }
    let mut parser = Parser {
        rest: source,
        options,
    };
    let hir = parser.expression(0)?;
    if parser.rest.is_empty() {
        Ok(hir)
    } else {
        Err(Invalid("a parenthesis is closed that was not opened"))
    }
}

struct Parser<'a> {
    rest: &'a str,
    options: &'a Options<'a>,
}

/// An atom, and whether a quantifier may follow it.
enum Atom {
    Countable(Hir),
    Place(Look),
}

impl Parser<'_> {
    /// Branches, up to a closing parenthesis or the end.
    fn expression(&mut self, depth: usize) -> Result<Hir, PatternError> {
        if depth > DEPTH_MAX {
            return Err(Unsupported("a parenthesis below 50 others"));
        }
        let mut branches = vec![self.branch(depth)?];
        while self.skip('|') {
            branches.push(self.branch(depth)?);
        }
        Ok(Hir::alternation(branches))
    }

    fn branch(&mut self, depth: usize) -> Result<Hir, PatternError> {
        let mut atoms = Vec::new();
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let atom = self.atom(depth)?;
            let counts = self.quantifier()?;
            atoms.push(match (atom, counts) {
                (Atom::Countable(atom), None) => atom,
                (Atom::Place(look), None) => Hir::look(look),
                (Atom::Countable(atom), Some((min, max))) => Hir::repetition(Repetition {
                    min,
                    max,
                    greedy: true,
                    sub: Box::new(atom),
                }),
                (Atom::Place(_), Some(_)) => {
                    return Err(Invalid("a quantifier must follow what can be repeated"));
                }
            });
        }
        Ok(Hir::concat(atoms))
    }

    fn atom(&mut self, depth: usize) -> Result<Atom, PatternError> {
        let c = self.next().ok_or(Invalid("it ends too early"))?;
        Ok(Atom::Countable(match c {
            '.' => Hir::class(Class::Unicode(ClassUnicode::new([ClassUnicodeRange::new(
                '\0',
                char::MAX,
            )]))),
            '^' => return Ok(Atom::Place(Look::Start)),
            '$' => return Ok(Atom::Place(Look::End)),
            '(' => self.group(depth)?,
            '[' => self.set()?,
            '\\' => return self.escaped_atom(),
            '*' | '+' | '?' => return Err(Invalid("a quantifier must follow what can be repeated")),
            '{' => return Err(Unsupported("an unescaped { that begins no bound")),
            c => self.one_of(vec![(c, c)], false),
        }))
    }

    fn group(&mut self, depth: usize) -> Result<Hir, PatternError> {
        if self.rest.starts_with('?') && !self.rest.starts_with("?:") {
            let name = match self.rest.get(1..3) {
                Some("<=" | "<!") => "lookbehind",
                _ if self.rest[1..].starts_with(['=', '!']) => "lookahead",
                _ => "an embedded option",
            };
            return Err(Unsupported(name));
        }
        self.rest = self.rest.strip_prefix("?:").unwrap_or(self.rest);
        let inner = self.expression(depth + 1)?;
        if self.skip(')') {
            Ok(inner)
        } else {
            Err(Invalid("a parenthesis is not closed"))
        }
    }

    fn escaped_atom(&mut self) -> Result<Atom, PatternError> {
        match self.rest.chars().next() {
            Some('A') => {
                self.next();
                return Ok(Atom::Place(Look::Start));
            }
            Some('Z') => {
                self.next();
                return Ok(Atom::Place(Look::End));
            }
            _ => {}
        }
        let (ranges, negated) = self.escape()?;
        Ok(Atom::Countable(self.one_of(ranges, negated)))
    }

    /// What stands behind a backslash: the characters that it means, or `true`: all but them.
    fn escape(&mut self) -> Result<(Vec<(char, char)>, bool), PatternError> {
        let c = self.next().ok_or(PatternError::OpenEscape)?;
        let one = |c| Ok((vec![(c, c)], false));
        match c {
            't' => one('\t'),
            'n' => one('\n'),
            'r' => one('\r'),
            'f' => one('\x0c'),
            'v' => one('\x0b'),
            'd' | 'D' | 'w' | 'W' | 's' | 'S' if *self.options.letters != Letters::Ascii => Err(Unsupported(
                "a class such as \\d under a collation other than C or POSIX (write [0-9])",
            )),
            'd' | 'D' => Ok((vec![('0', '9')], c == 'D')),
            'w' | 'W' => Ok((vec![('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')], c == 'W')),
            's' | 'S' => Ok((vec![('\t', '\r'), (' ', ' ')], c == 'S')),
            'm' | 'M' | 'y' | 'Y' => Err(Unsupported("a word limit such as \\y")),
            '1'..='9' => Err(Unsupported("a back-reference")),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => one(c),
            _ => Err(Unsupported("this escape")),
        }
    }

    /// What follows an opening bracket, up to and with its closing one.
    fn set(&mut self) -> Result<Hir, PatternError> {
        let negated = self.skip('^');
        let mut ranges = Vec::new();
        let mut first = true;
        loop {
            if !first && self.skip(']') {
                return Ok(self.one_of(ranges, negated));
            }
            if self.rest.starts_with(['-']) && !first && !self.rest.starts_with("-]") {
                return Err(Unsupported("an unescaped - within a set, but as first or last"));
            }
            let low = self.member(&mut ranges)?;
            first = false;
            let Some(low) = low else { continue };
            if !self.rest.starts_with('-') || self.rest.starts_with("-]") {
                ranges.push((low, low));
                continue;
            }
            self.skip('-');
            let Some(high) = self.member(&mut Vec::new())? else {
                return Err(Invalid("a range must end with a character"));
            };
            if low > high {
                return Err(Invalid("a range must not end before it begins"));
            }
            if high > '\x7f' && *self.options.letters == Letters::Unknown {
                return Err(PatternError::UnknownLetters);
            }
            ranges.push((low, high));
        }
    }

    /// One member of a set: a character, or a class, which is added to the ranges.
    fn member(&mut self, ranges: &mut Vec<(char, char)>) -> Result<Option<char>, PatternError> {
        let c = self.next().ok_or(Invalid("a bracket is not closed"))?;
        if c == '[' && self.rest.starts_with([':', '.', '=']) {
            return Err(Unsupported("a class such as [:alpha:] (write its characters)"));
        }
        if c != '\\' {
            return Ok(Some(c));
        }
        match self.escape()? {
            (_, true) => Err(Unsupported("a class such as \\D within a set")),
            (one, false) => {
                if let [(low, high)] = one[..]
                    && low == high
                {
                    return Ok(Some(low));
                }
                ranges.extend(one);
                Ok(None)
            }
        }
    }

    /// How often what stands before may stand; `None` where no quantifier follows.
    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>, PatternError> {
        let counts = match self.rest.chars().next() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                self.next();
                let counts = self.bound()?;
                return self.end_of_quantifier(counts);
            }
            _ => return Ok(None),
        };
        self.next();
        self.end_of_quantifier(counts)
    }

    fn end_of_quantifier(
        &mut self,
        counts: (u32, Option<u32>),
    ) -> Result<Option<(u32, Option<u32>)>, PatternError> {
        self.skip('?');
        if self.rest.starts_with(['*', '+', '?', '{']) {
            return Err(Invalid("a quantifier must not follow another"));
        }
        Ok(Some(counts))
    }

    /// What follows the opening brace of a bound, up to and with its closing one.
    fn bound(&mut self) -> Result<(u32, Option<u32>), PatternError> {
        let end = self.rest.find('}').ok_or(Invalid("a bound is not closed"))?;
        let (bound, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        let count = |text: &str| {
            let digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
            let count = digits.then(|| text.parse().ok()).flatten();
            count.filter(|count| *count <= COUNT_MAX).ok_or(Invalid(
                "a bound must be {m}, {m,} or {m,n} with numbers up to 255",
            ))
        };
        let (min, max) = match bound.split_once(',') {
            None => {
                let exact = count(bound)?;
                (exact, Some(exact))
            }
            Some((min, "")) => (count(min)?, None),
            Some((min, max)) => (count(min)?, Some(count(max)?)),
        };
        if max.is_some_and(|max| max < min) {
            return Err(Invalid("a bound must not end before it begins"));
        }
        Ok((min, max))
    }

    /// One character out of ranges, or out of all others.
    fn one_of(&self, mut ranges: Vec<(char, char)>, negated: bool) -> Hir {
        if self.options.ignore_case {
            for at in 0..ranges.len() {
                let (low, high) = ranges[at];
                for (first, last, shift) in [('A', 'Z', 32_i16), ('a', 'z', -32)] {
                    let (low, high) = (low.max(first), high.min(last));
                    let other = |c: char| (c as u8).checked_add_signed(shift as i8).map(char::from);
                    if low <= high
                        && let (Some(low), Some(high)) = (other(low), other(high))
                    {
                        ranges.push((low, high));
                    }
                }
            }
        }
        let ranges = ranges
            .into_iter()
            .map(|(low, high)| ClassUnicodeRange::new(low, high));
        let mut class = ClassUnicode::new(ranges);
        if negated {
            class.negate();
        }
        Hir::class(Class::Unicode(class))
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        Some(c)
    }

    fn skip(&mut self, mark: char) -> bool {
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}
