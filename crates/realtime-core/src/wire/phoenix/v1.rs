//! `vsn=1.0.0`: one JSON object per text frame.
//!
//! Must never send a key beside `topic`, `event`, `payload`, `ref`: strict clients drop the frame.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ClientFrame, FrameError, Payload, Ref, push_json_string};

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, default, rename = "ref")]
    reference: Option<&'a RawValue>,
    #[serde(borrow, default)]
    join_ref: Option<&'a RawValue>,
}

/// Decodes one text frame.
pub fn decode(text: &str) -> Result<ClientFrame, FrameError> {
    let frame: Frame<'_> = serde_json::from_str(text).map_err(|_| FrameError::Malformed)?;
    Ok(ClientFrame {
        join_ref: reference(frame.join_ref)?,
        reference: reference(frame.reference)?,
        topic: frame.topic.into(),
        event: frame.event.into(),
        payload: Payload::Json(frame.payload.to_owned()),
    })
}

fn reference(raw: Option<&RawValue>) -> Result<Ref, FrameError> {
    raw.map_or(Some(Ref::NULL), Ref::from_raw)
        .ok_or(FrameError::Malformed)
}

/// Encodes one text frame.
pub fn encode(reference: &Ref, topic: &str, event: &str, payload: &str) -> String {
    let mut out = String::with_capacity(payload.len() + topic.len() + event.len() + 64);
    out.push_str("{\"topic\":");
    push_json_string(&mut out, topic);
    out.push_str(",\"event\":");
    push_json_string(&mut out, event);
    out.push_str(",\"payload\":");
    out.push_str(payload);
    out.push_str(",\"ref\":");
    out.push_str(reference.as_json());
    out.push('}');
    out
}
