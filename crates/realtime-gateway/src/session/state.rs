//! What a session does about each thing that happens to it. Pure: no I/O, and the time comes in.
//!
//! Must never let a channel go on under an identity that has ended or was given back, and never
//! tell a client more about a refusal than its code and rule.

mod awaiting;
mod identity;
mod join;

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use realtime_core::claims::{Claims, Who};
use realtime_core::wire::phoenix::{
    BindingParams, CONTROL_TOPIC, ClientFrame, FrameError, Ref, Serializer, SystemStatus, access_token,
    close_frame, reply_error, reply_ok,
};
use rustc_hash::FxBuildHasher;

use super::channel::{ChannelKey, ChannelTag};
use super::outbox::CloseReason;
use crate::auth::jwks::Refresh;
use crate::auth::{Identity, TokenError, Verifier};
use crate::feed::{PrepareError, Prepared};
use crate::limits::Limits;
use awaiting::Asked;
use join::Rate;

/// The state of one session.
#[derive(Debug)]
pub struct SessionState {
    serializer: Serializer,
    /// Who the connection's own key speaks for.
    own: Identity,
    channels: HashMap<Arc<str>, Channel, FxBuildHasher>,
    /// What waits for the project's key set, by topic.
    awaiting: HashMap<Arc<str>, Asked, FxBuildHasher>,
    /// The key set is being fetched for what waits.
    fetching: bool,
    next_key: u64,
    joins: Rate,
    tokens: Rate,
    /// Changes of identity: each is work for the feed, that all of the project's sockets share.
    renewals: Rate,
    /// The token that was verified last: SDKs give one and the same to every channel.
    last: Option<([u8; 32], Identity)>,
    /// Since when there has been no channel.
    unjoined_since_ms: Option<u64>,
}

/// What a turn may look at beside the state.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// The project's current verifier.
    pub verifier: &'a Verifier,
    /// The gateway's limits.
    pub limits: &'a Limits,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A frame came.
    Frame(ClientFrame),
    /// Bytes came that are no frame.
    Unparsable(FrameError),
    /// A channel's bindings were looked up.
    Prepared {
        /// The channel.
        channel: ChannelKey,
        /// The identity that they were looked up for.
        generation: u64,
        /// What was found.
        result: Result<Prepared, PrepareError>,
    },
    /// The feed is live for a channel.
    Live {
        /// The channel.
        channel: ChannelKey,
        /// The identity that it is live under.
        generation: u64,
    },
    /// The project's key set was fetched, or could not be.
    Keys(Refresh),
    /// The project's keys or rules are others than before: identities are judged anew.
    Rekeyed,
    /// An operator ends what somebody has open.
    Disconnect(Who),
    /// Time passed.
    Tick,
}

/// Something to be done.
#[derive(Debug)]
pub enum Effect {
    /// Send a reply or notice, ahead of changes.
    Send(Utf8Bytes),
    /// Look a channel's bindings up; answer with [`Input::Prepared`].
    Prepare {
        /// The channel.
        channel: ChannelKey,
        /// The identity that they are looked up for.
        generation: u64,
        /// That identity.
        claims: Claims,
        /// The bindings.
        bindings: Arc<[BindingParams]>,
    },
    /// Deliver changes to a channel; answer with [`Input::Live`]. Replaces what the channel had.
    Subscribe {
        /// The channel.
        tag: Arc<ChannelTag>,
        /// The identity's generation.
        generation: u64,
        /// The identity.
        claims: Claims,
        /// Its bindings.
        prepared: Prepared,
    },
    /// Go on under another identity of the same role, at once; answer with [`Input::Live`].
    Identify {
        /// The channel.
        channel: ChannelKey,
        /// The identity's generation.
        generation: u64,
        /// The identity.
        claims: Claims,
    },
    /// Fetch the project's key set; answer with [`Input::Keys`].
    FetchKeys,
    /// Deliver nothing until the next `Subscribe`.
    Suspend {
        /// The channel.
        channel: ChannelKey,
    },
    /// The channel is over: deliver nothing, and take back what waits.
    Unsubscribe {
        /// The channel.
        channel: ChannelKey,
    },
    /// Count a frame that could not be read.
    CountUnparsable(FrameError),
    /// End the socket.
    Close(CloseReason),
}

#[derive(Debug)]
struct Channel {
    tag: Arc<ChannelTag>,
    identity: Identity,
    /// Rises with every change of identity: answers to older questions are not for this one.
    generation: u64,
    bindings: Arc<[BindingParams]>,
    /// A look-up is on its way: its answer, if it is for an older identity, starts another.
    looking_up: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The join waits for its bindings to be looked up.
    Preparing { reference: Ref, wait: Option<Wait> },
    /// The join's reply waits for the feed.
    Waiting {
        reference: Ref,
        wait: Wait,
        response: String,
        hints: Vec<Utf8Bytes>,
    },
    /// The join was answered.
    Joined,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    deadline_ms: u64,
    asked_ms: u64,
}

impl SessionState {
    /// A session whose connection speaks for `own`.
    pub fn new(serializer: Serializer, own: Identity, now_ms: u64) -> Self {
        Self {
            serializer,
            own,
            channels: HashMap::default(),
            awaiting: HashMap::default(),
            fetching: false,
            next_key: 0,
            joins: Rate::default(),
            tokens: Rate::default(),
            renewals: Rate::default(),
            last: None,
            unjoined_since_ms: Some(now_ms),
        }
    }

    /// Takes in what happened, and says what is to be done, in order.
    pub fn on(&mut self, input: Input, context: &Context<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Frame(frame) => self.on_frame(&frame, context, &mut effects),
            Input::Unparsable(error) => effects.push(Effect::CountUnparsable(error)),
            Input::Prepared {
                channel,
                generation,
                result,
            } => {
                self.on_prepared(channel, generation, result, context, &mut effects);
            }
            Input::Live { channel, generation } => self.on_live(channel, generation, &mut effects),
            Input::Keys(refresh) => self.on_keys(refresh, context, &mut effects),
            Input::Rekeyed => self.on_rekeyed(context, &mut effects),
            Input::Disconnect(who) => self.on_disconnect(&who, &mut effects),
            Input::Tick => self.on_tick(context, &mut effects),
        }
        self.note_unjoined(context.now_ms);
        debug_assert!(self.is_valid(context.limits));
        effects
    }

    /// When the state wants its next [`Input::Tick`] at the latest, in milliseconds since 1970.
    pub fn next_tick_ms(&self, limits: &Limits) -> Option<u64> {
        let expiries = self
            .channels
            .values()
            .map(|channel| channel.identity.expires_at_ms);
        let waits = self
            .channels
            .values()
            .filter_map(|channel| Some(channel.phase.wait()?.deadline_ms));
        let unjoined = self
            .unjoined_since_ms
            .map(|since| since + limits.unjoined_seconds_max * 1_000);
        expiries.chain(waits).chain(unjoined).min()
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    fn on_frame(&mut self, frame: &ClientFrame, context: &Context<'_>, effects: &mut Vec<Effect>) {
        match (&*frame.topic, &*frame.event) {
            (CONTROL_TOPIC, "heartbeat") => effects.push(self.reply_ok(frame, "{}")),
            (_, "phx_join") => self.on_join(frame, context, effects),
            (_, "phx_leave") => self.on_leave(frame, effects),
            (topic, event) => match self.channels.get_mut(topic) {
                None => match self.awaiting_join(topic) {
                    None => effects.push(self.reply_error(frame, "unmatched topic")),
                    Some(join_ref) if event == "access_token" && !is_stale(&frame.join_ref, join_ref) => {
                        let token = access_token(frame.payload.json());
                        self.replace_token(topic, token, context, effects);
                    }
                    Some(_) => {}
                },
                Some(channel) if event == "access_token" && !channel.is_stale(&frame.join_ref) => {
                    self.on_access_token(frame, context, effects);
                }
                // Unknown events are the client's own business.
                Some(_) => {}
            },
        }
    }

    fn on_leave(&mut self, frame: &ClientFrame, effects: &mut Vec<Effect>) {
        let joined = self
            .channels
            .get(&*frame.topic)
            .map(|channel| &channel.tag.join_ref);
        let joined = joined.or_else(|| self.awaiting_join(&frame.topic));
        let join_ref = joined.map_or(&Ref::NULL, |_| &frame.join_ref);
        let leaves = joined.is_some_and(|joined| !is_stale(&frame.join_ref, joined));
        let reply = reply_ok(self.serializer, join_ref, &frame.reference, &frame.topic, "{}");
        // The reply first: the order that clients expect.
        effects.push(Effect::Send(reply.into()));
        if leaves {
            self.close(&frame.topic, effects);
        }
    }

    fn on_prepared(
        &mut self,
        key: ChannelKey,
        generation: u64,
        result: Result<Prepared, PrepareError>,
        context: &Context<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(channel) = self.channels.values_mut().find(|channel| channel.tag.key == key) else {
            return;
        };
        channel.looking_up = false;
        if channel.generation != generation {
            return effects.push(channel.prepare());
        }
        let topic = Arc::clone(&channel.tag.topic);
        match result {
            Err(error) => self.on_unprepared(&topic, &error, effects),
            Ok(prepared) => {
                if let Some(error) = channel.identity.expiry(context.now_ms) {
                    return self.end(&topic, &error, effects);
                }
                channel.accept(prepared, effects);
            }
        }
    }

    /// A join that cannot be is answered; a channel that was joined already ends, and where it
    /// may work again the client is made to join again.
    fn on_unprepared(&mut self, topic: &str, error: &PrepareError, effects: &mut Vec<Effect>) {
        let Some(channel) = self.channels.remove(topic) else {
            return;
        };
        let tag = &channel.tag;
        effects.push(Effect::Unsubscribe { channel: tag.key });
        match &channel.phase {
            Phase::Preparing { reference, .. } | Phase::Waiting { reference, .. } => {
                effects.push(tag.reply_error(reference, &error.to_string()));
            }
            Phase::Joined if error.is_passing() => effects.push(tag.phx_error()),
            Phase::Joined => {
                let message = error.to_string();
                effects.push(Effect::Send(tag.system(
                    "postgres_changes",
                    SystemStatus::Error,
                    &message,
                    &[],
                )));
                effects.push(tag.phx_close());
            }
        }
    }

    fn on_live(&mut self, key: ChannelKey, generation: u64, effects: &mut Vec<Effect>) {
        let live = self.channels.values_mut().find(|channel| channel.tag.key == key);
        let Some(channel) = live.filter(|channel| channel.generation == generation) else {
            return;
        };
        if let Phase::Waiting {
            reference,
            response,
            hints,
            ..
        } = std::mem::replace(&mut channel.phase, Phase::Joined)
        {
            effects.push(channel.tag.reply_ok(&reference, &response));
            effects.extend(hints.into_iter().map(Effect::Send));
        }
        let role = channel.identity.claims.role().as_str();
        effects.push(Effect::Send(channel.tag.subscribed(role)));
    }

    fn on_tick(&mut self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        let now_ms = context.now_ms;
        let over = |channel: &Channel| {
            channel
                .identity
                .expiry(now_ms)
                .map(|e| (channel.tag.topic.clone(), e))
        };
        let expired: Vec<(Arc<str>, TokenError)> = self.channels.values().filter_map(over).collect();
        for (topic, error) in expired {
            self.end(&topic, &error, effects);
        }
        let late = |channel: &&Channel| {
            channel
                .phase
                .wait()
                .is_some_and(|wait| now_ms >= wait.deadline_ms)
        };
        let late: Vec<Arc<str>> = self
            .channels
            .values()
            .filter(late)
            .map(|c| c.tag.topic.clone())
            .collect();
        for topic in late {
            self.time_out(&topic, effects);
        }
        let unjoined_max_ms = context.limits.unjoined_seconds_max * 1_000;
        if self
            .unjoined_since_ms
            .is_some_and(|since| now_ms >= since + unjoined_max_ms)
        {
            effects.push(Effect::Close(CloseReason {
                code: 1012,
                reason: "no channel was joined",
            }));
        }
    }

    fn time_out(&mut self, topic: &str, effects: &mut Vec<Effect>) {
        let Some(channel) = self.channels.remove(topic) else {
            return;
        };
        let (Phase::Preparing {
            reference,
            wait: Some(wait),
        }
        | Phase::Waiting { reference, wait, .. }) = &channel.phase
        else {
            return;
        };
        let error = PrepareError::Timeout {
            waited_ms: wait.asked_ms,
        };
        effects.push(Effect::Unsubscribe {
            channel: channel.tag.key,
        });
        effects.push(channel.tag.reply_error(reference, &error.to_string()));
    }

    /// Ends a channel whose token has ended, or which was given one that is refused.
    fn end(&mut self, topic: &str, error: &TokenError, effects: &mut Vec<Effect>) {
        self.part(
            topic,
            &error.to_string(),
            (SystemStatus::Error, &error.message),
            effects,
        );
    }

    /// Ends a channel and says why: to a join that waits by the reply's reason, else by a `system` frame.
    fn part(
        &mut self,
        topic: &str,
        reason: &str,
        (status, message): (SystemStatus, &str),
        effects: &mut Vec<Effect>,
    ) {
        let Some(channel) = self.channels.remove(topic) else {
            return;
        };
        let tag = &channel.tag;
        effects.push(Effect::Unsubscribe { channel: tag.key });
        match &channel.phase {
            Phase::Preparing { reference, .. } | Phase::Waiting { reference, .. } => {
                effects.push(tag.reply_error(reference, reason));
            }
            Phase::Joined => {
                effects.push(Effect::Send(tag.system("system", status, message, &[])));
                effects.push(tag.phx_close());
            }
        }
    }

    /// Ends a channel without a reason, as its client asked.
    fn close(&mut self, topic: &str, effects: &mut Vec<Effect>) {
        self.forget_awaiting(topic, effects);
        let Some(channel) = self.channels.remove(topic) else {
            return;
        };
        effects.push(Effect::Unsubscribe {
            channel: channel.tag.key,
        });
        effects.push(channel.tag.phx_close());
    }

    fn reply_ok(&self, to: &ClientFrame, response: &str) -> Effect {
        Effect::Send(reply_ok(self.serializer, &to.join_ref, &to.reference, &to.topic, response).into())
    }

    fn reply_error(&self, to: &ClientFrame, reason: &str) -> Effect {
        let join_ref = if reason == "unmatched topic" {
            &Ref::NULL
        } else {
            &to.join_ref
        };
        Effect::Send(reply_error(self.serializer, join_ref, &to.reference, &to.topic, reason).into())
    }

    fn note_unjoined(&mut self, now_ms: u64) {
        if self.channels.is_empty() {
            self.unjoined_since_ms.get_or_insert(now_ms);
        } else {
            self.unjoined_since_ms = None;
        }
    }

    /// What holds after every turn.
    fn is_valid(&self, limits: &Limits) -> bool {
        let keyed = self
            .channels
            .iter()
            .all(|(topic, channel)| *topic == channel.tag.topic);
        keyed
            && self.channels.len() + self.joins_awaiting_keys() <= limits.socket_channels_max as usize
            && self.channels.is_empty() == self.unjoined_since_ms.is_some()
            && (self.fetching || self.awaiting.is_empty())
    }
}

impl Phase {
    fn wait(&self) -> Option<Wait> {
        match self {
            Self::Preparing { wait, .. } => *wait,
            Self::Waiting { wait, .. } => Some(*wait),
            Self::Joined => None,
        }
    }
}

/// Whether a push names another join of the topic than the one there is, which it must not end or
/// re-bind.
fn is_stale(join_ref: &Ref, joined: &Ref) -> bool {
    !join_ref.is_null() && join_ref != joined
}

impl Channel {
    fn is_stale(&self, join_ref: &Ref) -> bool {
        is_stale(join_ref, &self.tag.join_ref)
    }

    fn prepare(&mut self) -> Effect {
        self.looking_up = true;
        Effect::Prepare {
            channel: self.tag.key,
            generation: self.generation,
            claims: self.identity.claims.clone(),
            bindings: Arc::clone(&self.bindings),
        }
    }

    fn identify(&self) -> Effect {
        Effect::Identify {
            channel: self.tag.key,
            generation: self.generation,
            claims: self.identity.claims.clone(),
        }
    }

    /// The bindings were looked up: answer the join, unless it waits, and subscribe.
    fn accept(&mut self, prepared: Prepared, effects: &mut Vec<Effect>) {
        let response = prepared.response();
        let hints = prepared.hints(&self.tag);
        match std::mem::replace(&mut self.phase, Phase::Joined) {
            Phase::Preparing {
                reference,
                wait: Some(wait),
            }
            | Phase::Waiting { reference, wait, .. } => {
                self.phase = Phase::Waiting {
                    reference,
                    wait,
                    response,
                    hints,
                };
            }
            Phase::Preparing {
                reference,
                wait: None,
            } => {
                effects.push(self.tag.reply_ok(&reference, &response));
                effects.extend(hints.into_iter().map(Effect::Send));
            }
            Phase::Joined => effects.extend(hints.into_iter().map(Effect::Send)),
        }
        effects.push(Effect::Subscribe {
            tag: Arc::clone(&self.tag),
            generation: self.generation,
            claims: self.identity.claims.clone(),
            prepared,
        });
    }
}

impl ChannelTag {
    fn reply_ok(&self, reference: &Ref, response: &str) -> Effect {
        Effect::Send(reply_ok(self.serializer, &self.join_ref, reference, &self.topic, response).into())
    }

    fn reply_error(&self, reference: &Ref, reason: &str) -> Effect {
        Effect::Send(reply_error(self.serializer, &self.join_ref, reference, &self.topic, reason).into())
    }

    fn phx_close(&self) -> Effect {
        Effect::Send(close_frame(self.serializer, &self.join_ref, &self.topic).into())
    }

    fn phx_error(&self) -> Effect {
        let frame = realtime_core::wire::phoenix::error_frame(self.serializer, &self.join_ref, &self.topic);
        Effect::Send(frame.into())
    }
}

#[cfg(test)]
mod tests;
