//! `like`: `%` is any text, `_` any one character, a backslash takes the next character as it is.
//!
//! Must never go over a text more than once for all parts of a pattern together.

use memchr::memmem::Finder;

use super::PatternError;

/// Characters of a part with `_` that has to be searched for: one bit each.
const SEARCHED_MAX: usize = 64;

/// A compiled pattern: parts that follow one another in the text, with anything between them.
pub enum Like {
    /// No `%`: the text as a whole.
    Whole(Part),
    /// What stands before the first `%`, between two, and behind the last.
    Parts {
        first: Part,
        between: Vec<Searched>,
        last: Part,
    },
}

/// Characters in a row; `None` is any one character.
pub struct Part {
    chars: Vec<Option<char>>,
}

/// A part that may stand anywhere.
pub enum Searched {
    /// Of exact characters.
    Exact(Box<Finder<'static>>),
    /// With `_` among them: for each character the places where it may stand, one bit each.
    Open {
        length: usize,
        places: Vec<(char, u64)>,
        any: u64,
    },
}

impl Like {
    pub fn new(source: &str) -> Result<Self, PatternError> {
        let mut parts = vec![Part { chars: Vec::new() }];
        let mut chars = source.chars();
        while let Some(c) = chars.next() {
            let one = match c {
                '%' => {
                    parts.push(Part { chars: Vec::new() });
                    continue;
                }
                '_' => None,
                '\\' => Some(chars.next().ok_or(PatternError::OpenEscape)?),
                c => Some(c),
            };
            if let Some(part) = parts.last_mut() {
                part.chars.push(one);
            }
        }
        let last = parts.pop().unwrap_or(Part { chars: Vec::new() });
        if parts.is_empty() {
            return Ok(Self::Whole(last));
        }
        let first = parts.remove(0);
        let between = parts.iter().filter(|part| !part.chars.is_empty());
        Ok(Self::Parts {
            first,
            between: between.map(Searched::new).collect::<Result<_, _>>()?,
            last,
        })
    }

    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Whole(part) => part.at_start(text) == Some(""),
            Self::Parts { first, between, last } => {
                let rest = first.at_start(text).and_then(|rest| last.at_end(rest));
                let Some(mut rest) = rest else { return false };
                for part in between {
                    match part.find(rest) {
                        Some(behind) => rest = behind,
                        None => return false,
                    }
                }
                true
            }
        }
    }
}

impl Part {
    /// What follows the part at the text's start.
    fn at_start<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut chars = text.chars();
        for one in &self.chars {
            let c = chars.next()?;
            if one.is_some_and(|one| one != c) {
                return None;
            }
        }
        Some(chars.as_str())
    }

    /// What stands before the part at the text's end.
    fn at_end<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut chars = text.chars();
        for one in self.chars.iter().rev() {
            let c = chars.next_back()?;
            if one.is_some_and(|one| one != c) {
                return None;
            }
        }
        Some(chars.as_str())
    }
}

impl Searched {
    fn new(part: &Part) -> Result<Self, PatternError> {
        if let Some(exact) = part.chars.iter().copied().collect::<Option<String>>() {
            return Ok(Self::Exact(Box::new(Finder::new(&exact).into_owned())));
        }
        let length = part.chars.len();
        if length > SEARCHED_MAX {
            return Err(PatternError::LongPart {
                chars_max: SEARCHED_MAX,
            });
        }
        let mut places: Vec<(char, u64)> = Vec::new();
        let mut any = 0;
        for (at, one) in part.chars.iter().enumerate() {
            let bit = 1 << at;
            match one {
                None => any |= bit,
                Some(c) => match places.iter_mut().find(|(known, _)| known == c) {
                    Some((_, bits)) => *bits |= bit,
                    None => places.push((*c, bit)),
                },
            }
        }
        Ok(Self::Open { length, places, any })
    }

    /// What follows the first place where the part stands.
    fn find<'a>(&self, text: &'a str) -> Option<&'a str> {
        match self {
            Self::Exact(finder) => {
                let at = finder.find(text.as_bytes())?;
                // Whole characters were found: UTF-8 finds nothing within one.
                text.get(at + finder.needle().len()..)
            }
            Self::Open { length, places, any } => {
                // Bit n: the last n + 1 characters are the part's first n + 1.
                let mut begun = 0_u64;
                for (at, c) in text.char_indices() {
                    let here = places
                        .iter()
                        .find(|(known, _)| *known == c)
                        .map_or(*any, |(_, bits)| bits | any);
                    begun = (begun << 1 | 1) & here;
                    if begun >> (length - 1) & 1 == 1 {
                        return text.get(at + c.len_utf8()..);
                    }
                }
                None
            }
        }
    }
}
