//! Frames that the server makes by itself: replies, system frames, closes.
//!
//! Must never answer with a `response` that is not an object: SDKs crash or drop the reply.

use super::{Ref, Serializer, UserBroadcast, push_json_string, v2};

/// A `system` frame: something about the channel that is not a change.
#[derive(Debug, Clone, Copy)]
pub struct SystemFrame<'a> {
    /// `postgres_changes` or `system`.
    pub extension: &'a str,
    /// Errors end the channel in some SDKs: never for a passing condition.
    pub status: SystemStatus,
    /// A sentence for people.
    pub message: &'a str,
    /// The topic without `realtime:`.
    pub channel: &'a str,
    /// Further keys with their JSON values, for machines.
    pub extra: &'a [(&'a str, &'a str)],
}

/// The status of a `system` frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemStatus {
    /// Information; the channel goes on.
    Ok,
    /// The channel is over.
    Error,
}

/// A positive reply. `response` is the text of a JSON object.
pub fn reply_ok(
    serializer: Serializer,
    join_ref: &Ref,
    reference: &Ref,
    topic: &str,
    response: &str,
) -> String {
    let payload = format!(r#"{{"status":"ok","response":{response}}}"#);
    serializer.frame(join_ref, reference, topic, "phx_reply", &payload)
}

/// A negative reply with its reason.
pub fn reply_error(
    serializer: Serializer,
    join_ref: &Ref,
    reference: &Ref,
    topic: &str,
    reason: &str,
) -> String {
    let mut payload = String::from(r#"{"status":"error","response":{"reason":"#);
    push_json_string(&mut payload, reason);
    payload.push_str("}}");
    serializer.frame(join_ref, reference, topic, "phx_reply", &payload)
}

/// A `system` frame on a channel.
pub fn system_frame(serializer: Serializer, join_ref: &Ref, topic: &str, frame: &SystemFrame<'_>) -> String {
    let status = match frame.status {
        SystemStatus::Ok => "ok",
        SystemStatus::Error => "error",
    };
    let mut payload = String::from("{\"extension\":");
    push_json_string(&mut payload, frame.extension);
    payload.push_str(",\"status\":");
    push_json_string(&mut payload, status);
    payload.push_str(",\"message\":");
    push_json_string(&mut payload, frame.message);
    payload.push_str(",\"channel\":");
    push_json_string(&mut payload, frame.channel);
    for (key, value) in frame.extra {
        payload.push(',');
        push_json_string(&mut payload, key);
        payload.push(':');
        payload.push_str(value);
    }
    payload.push('}');
    serializer.frame(join_ref, &Ref::NULL, topic, "system", &payload)
}

/// The end of a channel: both references are those of the join that ends, so that a newer
/// channel of the same topic is not closed with it.
pub fn close_frame(serializer: Serializer, join_ref: &Ref, topic: &str) -> String {
    serializer.frame(join_ref, join_ref, topic, "phx_close", "{}")
}

/// A channel's failure: the client joins again by itself. References as in [`close_frame`].
pub fn error_frame(serializer: Serializer, join_ref: &Ref, topic: &str) -> String {
    serializer.frame(join_ref, join_ref, topic, "phx_error", "{}")
}

/// A user broadcast for a socket of the second version, or `None` where its topic, event or
/// metadata is longer than 255 bytes.
pub fn user_broadcast(topic: &str, broadcast: &UserBroadcast) -> Option<Vec<u8>> {
    v2::encode_broadcast(topic, broadcast)
}
