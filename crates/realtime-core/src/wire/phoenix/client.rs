//! Frames that clients send, decoded into one typed form for both serializers.
//!
//! Must never fail by panic: the bytes come from anybody. An error carries no part of them.

use serde_json::value::RawValue;

use super::{Ref, Serializer, v1, v2};

/// One frame from a client.
#[derive(Debug, Clone)]
pub struct ClientFrame {
    /// The join that the frame belongs to; null where the client did not say.
    pub join_ref: Ref,
    /// The frame's own reference, which its reply echoes.
    pub reference: Ref,
    /// The topic, as on the wire (`realtime:` included).
    pub topic: Box<str>,
    /// The event's name; of a binary user broadcast, `broadcast`.
    pub event: Box<str>,
    /// What the frame carries.
    pub payload: Payload,
}

/// What a client's frame carries.
#[derive(Clone)]
pub enum Payload {
    /// JSON text.
    Json(Box<RawValue>),
    /// A binary frame of kind 3.
    Broadcast(UserBroadcast),
}

/// A user broadcast in binary form (kind 3 in, kind 4 out).
#[derive(Clone, PartialEq, Eq)]
pub struct UserBroadcast {
    /// The user's event name.
    pub event: Box<str>,
    /// Empty, or a JSON object.
    pub metadata: Box<str>,
    /// What the payload's bytes are.
    pub encoding: Encoding,
    /// The payload, untouched.
    pub payload: Box<[u8]>,
}

/// What the bytes of a binary broadcast's payload are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Opaque bytes.
    Binary,
    /// UTF-8 JSON text.
    Json,
}

/// Why bytes are not a client frame. Such a frame is dropped and counted; the socket stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not the JSON form of the socket's serializer.
    #[error("frame: not in the form of the negotiated vsn")]
    Malformed,
    /// Binary, on a socket of the first version.
    #[error("frame: binary frames need vsn 2.0.0")]
    BinaryInV1,
    /// A binary kind that clients do not send.
    #[error("frame: unknown binary kind")]
    UnknownKind,
    /// A binary frame that ends before its own lengths say.
    #[error("frame: binary frame is cut short")]
    Truncated,
}

/// Decodes a text frame.
pub fn decode_text(serializer: Serializer, text: &str) -> Result<ClientFrame, FrameError> {
    match serializer {
        Serializer::V1 => v1::decode(text),
        Serializer::V2 => v2::decode_text(text),
    }
}

/// Decodes a binary frame.
pub fn decode_binary(serializer: Serializer, bytes: &[u8]) -> Result<ClientFrame, FrameError> {
    match serializer {
        Serializer::V1 => Err(FrameError::BinaryInV1),
        Serializer::V2 => v2::decode_binary(bytes),
    }
}

impl Payload {
    /// The JSON text, or `{}` of a binary frame.
    pub fn json(&self) -> &str {
        match self {
            Self::Json(raw) => raw.get(),
            Self::Broadcast(_) => "{}",
        }
    }
}

/// Payloads hold tokens and private messages: only the size is shown.
impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(raw) => write!(f, "Json({} bytes)", raw.get().len()),
            Self::Broadcast(broadcast) => broadcast.fmt(f),
        }
    }
}

/// As [`Payload`]: only the sizes are shown.
impl std::fmt::Debug for UserBroadcast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "UserBroadcast({:?}, {} bytes)",
            self.encoding,
            self.payload.len()
        )
    }
}
