//! `vsn=2.0.0`: JSON arrays as text, and binary user broadcasts.
//!
//! Must never send a binary kind but 4: the SDKs throw inside their message handler on others.

use std::fmt;

use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{ClientFrame, Encoding, FrameError, Payload, Ref, UserBroadcast, push_json_string};

/// A user broadcast from a client.
const KIND_PUSH: u8 = 3;
/// A user broadcast to a client.
const KIND_BROADCAST: u8 = 4;

/// Decodes one text frame: `[join_ref, ref, topic, event, payload, …]`. Further elements are ignored.
pub fn decode_text(text: &str) -> Result<ClientFrame, FrameError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let frame = json
        .deserialize_seq(FrameVisitor)
        .map_err(|_| FrameError::Malformed)?;
    json.end().map_err(|_| FrameError::Malformed)?;
    Ok(frame)
}

struct FrameVisitor;

impl<'de> Visitor<'de> for FrameVisitor {
    type Value = ClientFrame;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame of five elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ClientFrame, A::Error> {
        let short = || A::Error::custom("too few elements");
        let join_ref: &RawValue = seq.next_element()?.ok_or_else(short)?;
        let reference: &RawValue = seq.next_element()?.ok_or_else(short)?;
        let topic: String = seq.next_element()?.ok_or_else(short)?;
        let event: String = seq.next_element()?.ok_or_else(short)?;
        let payload: Box<RawValue> = seq.next_element()?.ok_or_else(short)?;
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        let bad_reference = || A::Error::custom("a reference is neither text nor null");
        Ok(ClientFrame {
            join_ref: Ref::from_raw(join_ref).ok_or_else(bad_reference)?,
            reference: Ref::from_raw(reference).ok_or_else(bad_reference)?,
            topic: topic.into(),
            event: event.into(),
            payload: Payload::Json(payload),
        })
    }
}

/// Encodes one text frame.
pub fn encode(join_ref: &Ref, reference: &Ref, topic: &str, event: &str, payload: &str) -> String {
    let mut out = String::with_capacity(payload.len() + topic.len() + event.len() + 48);
    out.push('[');
    out.push_str(join_ref.as_json());
    out.push(',');
    out.push_str(reference.as_json());
    out.push(',');
    push_json_string(&mut out, topic);
    out.push(',');
    push_json_string(&mut out, event);
    out.push(',');
    out.push_str(payload);
    out.push(']');
    out
}

/// Decodes one binary frame of kind 3.
pub fn decode_binary(bytes: &[u8]) -> Result<ClientFrame, FrameError> {
    let (&kind, rest) = bytes.split_first().ok_or(FrameError::Truncated)?;
    if kind != KIND_PUSH {
        return Err(FrameError::UnknownKind);
    }
    let (head, mut rest) = rest.split_at_checked(6).ok_or(FrameError::Truncated)?;
    let encoding = match head[5] {
        0 => Encoding::Binary,
        1 => Encoding::Json,
        _ => return Err(FrameError::Malformed),
    };
    let mut texts = [""; 5];
    for (text, length) in texts.iter_mut().zip(head) {
        let (bytes, after) = rest
            .split_at_checked(usize::from(*length))
            .ok_or(FrameError::Truncated)?;
        *text = std::str::from_utf8(bytes).map_err(|_| FrameError::Malformed)?;
        rest = after;
    }
    let [join_ref, reference, topic, event, metadata] = texts;
    Ok(ClientFrame {
        join_ref: binary_reference(join_ref),
        reference: binary_reference(reference),
        topic: topic.into(),
        event: "broadcast".into(),
        payload: Payload::Broadcast(UserBroadcast {
            event: event.into(),
            metadata: metadata.into(),
            encoding,
            payload: rest.into(),
        }),
    })
}

/// A binary frame has no null: an empty reference stands for it.
fn binary_reference(text: &str) -> Ref {
    if text.is_empty() {
        Ref::NULL
    } else {
        Ref::text(text)
    }
}

/// Encodes one binary frame of kind 4, or `None` where a length does not fit its byte.
pub fn encode_broadcast(topic: &str, broadcast: &UserBroadcast) -> Option<Vec<u8>> {
    let texts = [topic, &broadcast.event, &broadcast.metadata];
    let text_bytes: usize = texts.iter().map(|text| text.len()).sum();
    let mut out = Vec::with_capacity(5 + text_bytes + broadcast.payload.len());
    out.push(KIND_BROADCAST);
    for text in texts {
        out.push(u8::try_from(text.len()).ok()?);
    }
    out.push(match broadcast.encoding {
        Encoding::Binary => 0,
        Encoding::Json => 1,
    });
    for text in texts {
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&broadcast.payload);
    Some(out)
}
