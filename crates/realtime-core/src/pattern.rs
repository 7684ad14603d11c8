//! Patterns of `like`, `ilike`, `match` and `imatch`, compiled once and run on the text of rows.
//!
//! Must never mean another thing than PostgreSQL's operator on the same column: what cannot be told is
//! refused by name. Must never take longer than the text is long, whatever the pattern. Must never show a pattern.
//!
//! Which characters are letters, and how they change their case, is the collation's matter: see
//! [`Letters`]. `like` and `match` on literal characters do not ask it; `ilike` and `imatch` do.

mod like;
mod regex;

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use crate::table::Letters;

/// What one `like` is charged with.
const LIKE_BYTES: usize = 1_024;
/// The least that a regular expression is charged with. On a row of 8 KB it takes some 16 µs to run (measured), and 1 to 3
/// ms to compile to 131,072 bytes.
const REGEX_BYTES_MIN: usize = 4_096;

/// Which language a pattern is written in, and whether case counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// `like`.
    Like,
    /// `ilike`.
    ILike,
    /// `match`: PostgreSQL's `~`.
    Match,
    /// `imatch`: PostgreSQL's `~*`.
    IMatch,
}

/// A compiled pattern. Two are equal where they were written alike for equal letters; a clone shares it.
#[derive(Clone)]
pub struct Pattern(Arc<Inner>);

struct Inner {
    style: Style,
    letters: Letters,
    source: Box<str>,
    matcher: Matcher,
}

enum Matcher {
    Like(like::Like),
    Regex(Box<regex::Regex>),
}

/// Why a pattern is refused. Carries no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It ends within an escape.
    #[error("the pattern must not end with a backslash")]
    OpenEscape,
    /// A part of a `like` pattern that may stand anywhere is too long.
    #[error("between two % of a pattern with _ at most {chars_max} characters may stand")]
    LongPart {
        /// The limit.
        chars_max: usize,
    },
    /// The letters of the column's collation are not known.
    #[error(
        "it needs the collation C, POSIX or the database's own, in a database of encoding UTF8 or LATIN1"
    )]
    UnknownLetters,
    /// Letters beyond ASCII in a pattern without regard to case.
    #[error("a pattern with characters beyond ASCII needs the collation C or POSIX")]
    WideLetters,
    /// Something of PostgreSQL's regular expressions that is not served.
    #[error("{0} is not supported in a regular expression")]
    Unsupported(&'static str),
    /// Not a regular expression at all.
    #[error("the regular expression is not valid: {0}")]
    Invalid(&'static str),
    /// The compiled automaton is too large.
    #[error("the regular expression is too complex (at most {bytes_max} bytes once compiled)")]
    TooComplex {
        /// The limit.
        bytes_max: usize,
    },
}

impl Pattern {
    /// Compiles a pattern for a column with such letters. `bytes_max` limits the automaton of a regular expression.
    ///
    /// # Errors
    /// PostgreSQL refuses it, or it cannot be judged as PostgreSQL would.
    pub fn new(
        style: Style,
        source: &str,
        letters: &Letters,
        bytes_max: usize,
    ) -> Result<Self, PatternError> {
        if style.ignores_case() {
            match letters {
                Letters::Unknown => return Err(PatternError::UnknownLetters),
                Letters::Wide { .. } if !source.is_ascii() => return Err(PatternError::WideLetters),
                Letters::Wide { .. } | Letters::Ascii => {}
            }
        }
        let matcher = match style {
            Style::Like => Matcher::Like(like::Like::new(source)?),
            Style::ILike => Matcher::Like(like::Like::new(&source.to_ascii_lowercase())?),
            Style::Match | Style::IMatch => {
                let options = regex::Options {
                    ignore_case: style.ignores_case(),
                    letters,
                    bytes_max,
                };
                Matcher::Regex(Box::new(regex::Regex::new(source, &options)?))
            }
        };
        Ok(Self(Arc::new(Inner {
            style,
            letters: letters.clone(),
            source: source.into(),
            matcher,
        })))
    }

    /// Whether a text matches.
    pub fn matches(&self, text: &str) -> bool {
        match &self.0.matcher {
            Matcher::Like(like) if self.0.style.ignores_case() => like.matches(&lower(text, &self.0.letters)),
            Matcher::Like(like) => like.matches(text),
            Matcher::Regex(regex) => regex.matches(text),
        }
    }

    /// What it is charged with where patterns are limited together. The automaton of a regular expression stands for
    /// what it costs to make and to keep; to run, each costs about the same, so that there is a least charge.
    pub fn bytes(&self) -> usize {
        let bytes = match &self.0.matcher {
            Matcher::Like(_) => self.0.source.len(),
            Matcher::Regex(regex) => regex.bytes(),
        };
        bytes.max(self.0.style.bytes_min())
    }

    fn identity(&self) -> (Style, &Letters, &str) {
        (self.0.style, &self.0.letters, &self.0.source)
    }
}

impl Style {
    /// The least that a pattern is charged with.
    pub fn bytes_min(self) -> usize {
        match self {
            Self::Like | Self::ILike => LIKE_BYTES,
            Self::Match | Self::IMatch => REGEX_BYTES_MIN,
        }
    }

    fn ignores_case(self) -> bool {
        matches!(self, Self::ILike | Self::IMatch)
    }
}

/// A text with its letters in lower case, as far as a pattern in ASCII can tell.
fn lower<'a>(text: &'a str, letters: &Letters) -> Cow<'a, str> {
    match letters {
        Letters::Wide { dotted_i, kelvin } if !text.is_ascii() => {
            let mut out = String::with_capacity(text.len());
            for c in text.chars() {
                match c {
                    '\u{130}' => out.push_str(dotted_i),
                    '\u{212a}' => out.push_str(kelvin),
                    c => out.push(c.to_ascii_lowercase()),
                }
            }
            Cow::Owned(out)
        }
        _ if text.bytes().any(|b| b.is_ascii_uppercase()) => Cow::Owned(text.to_ascii_lowercase()),
        _ => Cow::Borrowed(text),
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.identity() == other.identity()
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.style.hash(state);
        self.0.source.hash(state);
    }
}

/// A pattern is private data: only its language is shown.
impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.0.style)
    }
}

/// Keeps what a pattern was compiled to, so that binding a filter anew does not compile it again. All are
/// equal: it is no part of what a filter means.
#[derive(Clone, Default)]
pub(crate) struct Compiled(Arc<OnceLock<Pattern>>);

impl Compiled {
    /// The pattern, compiled now or before.
    pub fn get(
        &self,
        style: Style,
        source: &str,
        letters: &Letters,
        bytes_max: usize,
    ) -> Result<Pattern, PatternError> {
        if let Some(known) = self.0.get()
            && known.identity() == (style, letters, source)
        {
            return Ok(known.clone());
        }
        let pattern = Pattern::new(style, source, letters, bytes_max)?;
        // Where one is kept for other letters, the column's collation has changed.
        let _ = self.0.set(pattern.clone());
        Ok(pattern)
    }
}

impl PartialEq for Compiled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Compiled {}

impl Hash for Compiled {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests;
