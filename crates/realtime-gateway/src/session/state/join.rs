//! How a session takes a join: the checks that need nothing but the frame, in their order.
//!
//! Must never look anything up: what a join needs to know of tables is asked for by an effect.

use std::sync::Arc;

use realtime_core::code::Code;
use realtime_core::wire::phoenix::{BindingParams, ClientFrame, JoinConfig, Ref, TOPIC_PREFIX};
use realtime_node::secret::Secret;

use super::awaiting::Asked;
use super::{Channel, ChannelKey, ChannelTag, Context, Effect, Phase, SessionState, Wait};
use crate::auth::Identity;

/// What came within the running second.
#[derive(Debug, Default)]
pub struct Rate {
    second: u64,
    count: u32,
}

/// What a join that passed the checks of its frame asks for.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) join_ref: Ref,
    pub(super) reference: Ref,
    /// The access token; without one the connection's own identity.
    pub(super) token: Option<Secret>,
    bindings: Arc<[BindingParams]>,
    wait: Option<Wait>,
}

impl Join {
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_ref().map(Secret::expose)
    }
}

impl Rate {
    /// Counts one more; `false` where it is one too many.
    pub(super) fn admit(&mut self, now_ms: u64, per_second_max: u32) -> bool {
        let second = now_ms / 1_000;
        if self.second != second {
            *self = Self { second, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= per_second_max
    }
}

impl SessionState {
    pub(super) fn on_join(&mut self, frame: &ClientFrame, context: &Context<'_>, effects: &mut Vec<Effect>) {
        let Some(subtopic) = frame.topic.strip_prefix(TOPIC_PREFIX) else {
            return effects.push(self.reply_error(frame, "unmatched topic"));
        };
        // A second join of a topic ends the first, by the first's own reference.
        self.close(&frame.topic, effects);
        match self.check_join(frame, subtopic, context) {
            Err(reason) => effects.push(self.reply_error(frame, &reason)),
            Ok(join) => match self.identify(join.token(), context) {
                Ok(identity) => self.open(&frame.topic, join, identity, effects),
                Err(error) if error.code == Code::KeysUnavailable => {
                    self.await_keys(&frame.topic, Asked::Join(Box::new(join)), effects);
                }
                Err(error) => effects.push(self.reply_error(frame, &error.to_string())),
            },
        }
    }

    fn check_join(
        &mut self,
        frame: &ClientFrame,
        subtopic: &str,
        context: &Context<'_>,
    ) -> Result<Join, String> {
        let limits = context.limits;
        let refuse = |code: Code, text: String| Err(format!("{}: {text}", code.as_str()));
        if subtopic.is_empty() {
            return refuse(Code::TopicNameRequired, "You must provide a topic name".into());
        }
        if frame.topic.len() > limits.topic_bytes_max as usize {
            let text = format!("topic: must be at most {} bytes", limits.topic_bytes_max);
            return refuse(Code::TopicNameRequired, text);
        }
        if !self
            .joins
            .admit(context.now_ms, limits.socket_joins_per_second_max)
        {
            let max = limits.socket_joins_per_second_max;
            return refuse(
                Code::TooManyJoins,
                format!("Too many joins per second (at most {max} on a socket)"),
            );
        }
        if self.channels.len() + self.joins_awaiting_keys() >= limits.socket_channels_max as usize {
            let max = limits.socket_channels_max;
            return refuse(
                Code::TooManyChannels,
                format!("Too many channels (at most {max} on a socket)"),
            );
        }
        let config = JoinConfig::parse(frame.payload.json(), subtopic);
        if config.bindings.len() > limits.channel_bindings_max as usize {
            let max = limits.channel_bindings_max;
            return refuse(
                Code::InvalidBinding,
                format!("postgres_changes: at most {max} bindings on a channel"),
            );
        }
        let mut bindings = Vec::with_capacity(config.bindings.len());
        for (index, json) in config.bindings.iter().enumerate() {
            if json.len() > limits.binding_bytes_max as usize {
                let max = limits.binding_bytes_max;
                let text = format!("binding {index}: must be at most {max} bytes");
                return refuse(Code::InvalidBinding, text);
            }
            match BindingParams::parse(json) {
                Ok(binding) => bindings.push(binding),
                Err(error) => return refuse(Code::InvalidBinding, format!("binding {index}: {error}")),
            }
        }
        let wait = config.wait_ms.map(|asked_ms| Wait {
            deadline_ms: context.now_ms + asked_ms,
            asked_ms,
        });
        Ok(Join {
            join_ref: frame.join_ref.clone(),
            reference: frame.reference.clone(),
            token: config.access_token.map(Secret::new),
            bindings: bindings.into(),
            wait,
        })
    }

    pub(super) fn open(&mut self, topic: &str, join: Join, identity: Identity, effects: &mut Vec<Effect>) {
        let key = ChannelKey(self.next_key);
        self.next_key += 1;
        let tag = Arc::new(ChannelTag {
            key,
            topic: Arc::from(topic),
            join_ref: join.join_ref,
            serializer: self.serializer,
        });
        let mut channel = Channel {
            tag: Arc::clone(&tag),
            identity,
            generation: 0,
            bindings: join.bindings,
            looking_up: false,
            phase: Phase::Joined,
        };
        if channel.bindings.is_empty() {
            effects.push(tag.reply_ok(&join.reference, r#"{"postgres_changes":[]}"#));
        } else {
            channel.phase = Phase::Preparing {
                reference: join.reference,
                wait: join.wait,
            };
            effects.push(channel.prepare());
        }
        self.channels.insert(Arc::clone(&tag.topic), channel);
    }
}
