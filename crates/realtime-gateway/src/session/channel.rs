//! A joined channel as feeds and outboxes know it: how its frames are addressed.
//!
//! Must never hold claims: whoever writes frames needs no identity.

use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use realtime_core::code::{GapReason, Hint};
use realtime_core::wire::phoenix::{Ref, Serializer, SystemFrame, SystemStatus, TOPIC_PREFIX, system_frame};

/// One join of one topic within a session: a later join of the topic has another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelKey(pub u64);

/// How a channel's frames are addressed.
#[derive(Debug, PartialEq, Eq)]
pub struct ChannelTag {
    /// The join.
    pub key: ChannelKey,
    /// The topic on the wire.
    pub topic: Arc<str>,
    /// The join's reference.
    pub join_ref: Ref,
    /// The socket's serializer.
    pub serializer: Serializer,
}

impl ChannelTag {
    /// The topic without `realtime:`.
    pub fn subtopic(&self) -> &str {
        self.topic.strip_prefix(TOPIC_PREFIX).unwrap_or(&self.topic)
    }

    /// A `system` frame of this channel.
    pub fn system(
        &self,
        extension: &str,
        status: SystemStatus,
        message: &str,
        extra: &[(&str, &str)],
    ) -> Utf8Bytes {
        let frame = SystemFrame {
            extension,
            status,
            message,
            channel: self.subtopic(),
            extra,
        };
        system_frame(self.serializer, &self.join_ref, &self.topic, &frame).into()
    }

    /// The notice that changes may have been missed.
    pub fn gap(&self, reason: GapReason) -> Utf8Bytes {
        let message = "Some changes may have been missed: read again what you depend on";
        let reason = format!("\"{}\"", reason.as_str());
        let extra = [("code", "\"gap\""), ("reason", reason.as_str())];
        self.system("postgres_changes", SystemStatus::Ok, message, &extra)
    }

    /// Something that the subscriber should know; `binding` is the index of the binding it is about.
    pub fn hint(
        &self,
        hint: Hint,
        binding: Option<usize>,
        message: &str,
        extra: &[(&str, &str)],
    ) -> Utf8Bytes {
        let code = format!("\"{}\"", hint.as_str());
        let binding = binding.map(|index| index.to_string());
        let mut all = vec![("code", code.as_str())];
        all.extend(binding.as_deref().map(|index| ("binding", index)));
        all.extend_from_slice(extra);
        self.system("postgres_changes", SystemStatus::Ok, message, &all)
    }

    /// The feed is live for this channel, which runs as `role`.
    pub fn subscribed(&self, role: &str) -> Utf8Bytes {
        let role = serde_json::to_string(role).unwrap_or_else(|_| "null".into());
        self.system(
            "postgres_changes",
            SystemStatus::Ok,
            "Subscribed to PostgreSQL",
            &[("role", &role)],
        )
    }
}
