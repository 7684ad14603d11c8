//! The references that tie a reply to its request and a frame to its join.
//!
//! Must never change a reference: clients compare them strictly.

use serde_json::value::RawValue;

/// Longest reference that is taken, as JSON text, in bytes: it is kept with its channel, and
/// comes back in every reply.
pub const REF_BYTES_MAX: usize = 256;

/// A `ref` or `join_ref`: a string, a number (tolerated) or null, kept as JSON text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Ref(Option<Box<str>>);

impl Ref {
    /// The null reference, of every unsolicited frame.
    pub const NULL: Self = Self(None);

    /// A reference from its text.
    pub fn text(text: &str) -> Self {
        Self(serde_json::to_string(text).ok().map(String::into_boxed_str))
    }

    /// A reference from its JSON, or `None` where that is neither a string, a number nor null, or
    /// is longer than [`REF_BYTES_MAX`].
    pub(super) fn from_raw(raw: &RawValue) -> Option<Self> {
        let json = raw.get();
        if json.len() > REF_BYTES_MAX {
            return None;
        }
        match json.as_bytes().first()? {
            b'n' => Some(Self::NULL),
            // Through the string itself, so that two spellings of one reference are equal.
            b'"' => serde_json::from_str::<String>(json)
                .ok()
                .map(|text| Self::text(&text)),
            b'-' | b'0'..=b'9' => Some(Self(Some(json.into()))),
            _ => None,
        }
    }

    /// Whether this is null.
    pub fn is_null(&self) -> bool {
        self.0.is_none()
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        self.0.as_deref().unwrap_or("null")
    }
}
