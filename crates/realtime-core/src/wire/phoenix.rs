//! The channel protocol of the Supabase SDKs: phoenix frames in two serializers.
//!
//! Must never normalise what a client compares: references and bindings go back as they came.

mod change;
mod client;
mod join;
mod reference;
mod server;
mod v1;
mod v2;

pub use change::{ChangeData, change_frame};
pub use client::{ClientFrame, Encoding, FrameError, Payload, UserBroadcast, decode_binary, decode_text};
pub use join::{BindingError, BindingParams, JoinConfig, access_token};
pub use reference::Ref;
pub use server::{
    SystemFrame, SystemStatus, close_frame, error_frame, reply_error, reply_ok, system_frame, user_broadcast,
};

/// What every channel's topic begins with.
pub const TOPIC_PREFIX: &str = "realtime:";

/// The topic of the socket itself: heartbeats.
pub const CONTROL_TOPIC: &str = "phoenix";

/// How frames are written on one socket; negotiated once, by `vsn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Serializer {
    /// `vsn=1.0.0`: JSON objects, text only.
    V1,
    /// `vsn=2.0.0`: JSON arrays, and binary user broadcasts.
    V2,
}

/// A `vsn` that names no serializer of ours. Carries no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("vsn: must be 1.0.x or 2.0.x")]
pub struct UnknownVersion;

impl Serializer {
    /// The serializer of a `vsn` query value; absent means the first version.
    pub fn from_vsn(vsn: Option<&str>) -> Result<Self, UnknownVersion> {
        let Some(vsn) = vsn else { return Ok(Self::V1) };
        let mut parts = vsn.splitn(3, '.');
        let (major, minor, patch) = (parts.next(), parts.next(), parts.next());
        let patch_is_number = patch.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        match (major, minor) {
            (Some("1"), Some("0")) if patch_is_number => Ok(Self::V1),
            (Some("2"), Some("0")) if patch_is_number => Ok(Self::V2),
            _ => Err(UnknownVersion),
        }
    }

    /// One text frame. `payload` is JSON text and is inserted byte for byte.
    fn frame(self, join_ref: &Ref, reference: &Ref, topic: &str, event: &str, payload: &str) -> String {
        match self {
            Self::V1 => v1::encode(reference, topic, event, payload),
            Self::V2 => v2::encode(join_ref, reference, topic, event, payload),
        }
    }
}

/// Appends a text as a JSON string, quotes included.
fn push_json_string(out: &mut String, text: &str) {
    // A str always serializes; the empty string stands in for the impossible.
    out.push_str(&serde_json::to_string(text).unwrap_or_else(|_| String::from("\"\"")));
}

#[cfg(test)]
mod tests;
