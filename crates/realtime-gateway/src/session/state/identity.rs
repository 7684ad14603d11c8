//! Who a session's channels speak for: which identity a token means, and when another takes its place.
//!
//! Must never let a channel keep an identity whose key was withdrawn, or get a change between the
//! end of one identity and the beginning of another of another role.

use std::sync::Arc;

use realtime_core::claims::Who;
use realtime_core::code::Code;
use realtime_core::wire::phoenix::{ClientFrame, SystemStatus, access_token};
use realtime_node::secret::Secret;
use sha2::{Digest as _, Sha256};

use super::awaiting::Asked;
use super::{Context, Effect, SessionState};
use crate::auth::{Identity, TokenError};
use crate::session::outbox::CloseReason;

impl SessionState {
    pub(super) fn on_access_token(
        &mut self,
        frame: &ClientFrame,
        context: &Context<'_>,
        effects: &mut Vec<Effect>,
    ) {
        // None: given back, as after signing out; then it is the connection's own identity, at once.
        let token = access_token(frame.payload.json());
        self.awaiting.remove(&*frame.topic);
        let per_second_max = context.limits.socket_joins_per_second_max;
        // What is given back is verified by nobody.
        let fresh = token.as_deref().is_some_and(|token| !self.is_last(token));
        if fresh && !self.tokens.admit(context.now_ms, per_second_max) {
            return self.end(&frame.topic, &too_many_tokens(per_second_max), effects);
        }
        let key = self.channels.get(&*frame.topic).map(|channel| channel.tag.key);
        match self.identify(token.as_deref(), context) {
            Ok(identity) => self.renew(&frame.topic, identity, context, effects),
            Err(error) => match (token, key) {
                (Some(token), Some(key)) if error.code == Code::KeysUnavailable => {
                    let asked = Asked::Renew(key, Secret::new(token));
                    self.await_keys(&frame.topic, asked, effects);
                }
                _ => self.end(&frame.topic, &error, effects),
            },
        }
    }

    /// Puts a channel under another identity. One that changes too often ends: it cannot go on under the one that was
    /// given back, and every change is work for others.
    pub(super) fn renew(
        &mut self,
        topic: &str,
        identity: Identity,
        context: &Context<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(channel) = self.channels.get_mut(topic) else {
            return;
        };
        if channel.identity.claims.fingerprint() == identity.claims.fingerprint() {
            // The same claims, perhaps vouched for by another key, which may outlive the first.
            channel.identity = identity;
            return;
        }
        // Every channel of a socket may be signed out and in again at a time.
        let limits = context.limits;
        let per_second_max = limits
            .socket_joins_per_second_max
            .max(limits.socket_channels_max.saturating_mul(2));
        if !self.renewals.admit(context.now_ms, per_second_max) {
            return self.end(topic, &too_many_tokens(per_second_max), effects);
        }
        let same_role = channel.identity.claims.role() == identity.claims.role();
        channel.identity = identity;
        channel.generation += 1;
        if channel.bindings.is_empty() {
            return;
        }
        if channel.looking_up {
            effects.push(Effect::Suspend {
                channel: channel.tag.key,
            });
        } else if same_role {
            effects.push(channel.identify());
        } else {
            // Another role may read other columns: its filters are looked up anew, and until
            // then the channel gets nothing.
            effects.push(Effect::Suspend {
                channel: channel.tag.key,
            });
            effects.push(channel.prepare());
        }
    }

    /// A key that was withdrawn takes what it let in with it: a channel, or the socket itself.
    pub(super) fn on_rekeyed(&mut self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        self.last = None;
        match context.verifier.still(&self.own) {
            Ok(expires_at_ms) => self.own.expires_at_ms = expires_at_ms,
            Err(_) => {
                return effects.push(Effect::Close(CloseReason {
                    code: 4401,
                    reason: "the connection's key is no longer valid",
                }));
            }
        }
        let mut refused = Vec::new();
        for channel in self.channels.values_mut() {
            match context.verifier.still(&channel.identity) {
                Ok(expires_at_ms) => channel.identity.expires_at_ms = expires_at_ms,
                Err(error) => refused.push((Arc::clone(&channel.tag.topic), error)),
            }
        }
        for (topic, error) in refused {
            self.end(&topic, &error, effects);
        }
    }

    /// An operator's word ends the channels of somebody, and the socket where it is theirs too, or
    /// where nothing else is on it.
    pub(super) fn on_disconnect(&mut self, who: &Who, effects: &mut Vec<Effect>) {
        let theirs = self.channels.values().filter(|channel| channel.identity.is(who));
        let topics: Vec<Arc<str>> = theirs.map(|channel| Arc::clone(&channel.tag.topic)).collect();
        for topic in &topics {
            // Not an error: some SDKs would join again at once.
            let message = "Server requested disconnect";
            let reason = format!("{}: {message}", Code::Unauthorized.as_str());
            self.part(topic, &reason, (SystemStatus::Ok, message), effects);
        }
        let emptied = !topics.is_empty() && self.channels.is_empty() && self.awaiting.is_empty();
        if self.own.is(who) || emptied {
            effects.push(Effect::Close(CloseReason {
                code: 4403,
                reason: "disconnected by an operator",
            }));
        }
    }

    /// Who a token speaks for; without one, the connection's own key does.
    pub(super) fn identify(
        &mut self,
        token: Option<&str>,
        context: &Context<'_>,
    ) -> Result<Identity, TokenError> {
        let Some(token) = token else {
            return self.own_identity(context.now_ms);
        };
        let digest = digest(token);
        if let Some((last, identity)) = &self.last
            && *last == digest
        {
            return identity
                .expiry(context.now_ms)
                .map_or_else(|| Ok(identity.clone()), Err);
        }
        match context.verifier.verify(token, context.now_ms) {
            // SDKs send the key that they connect with, which may not be the one that came in
            // here: a proxy exchanges it. Such a key is not a token of its own.
            Err(error) if error.code == Code::InvalidApiKey => self.own_identity(context.now_ms),
            verified => {
                if let Ok(identity) = &verified {
                    self.last = Some((digest, identity.clone()));
                }
                verified
            }
        }
    }

    /// Whether this token is the one that was verified last.
    fn is_last(&self, token: &str) -> bool {
        self.last.as_ref().is_some_and(|(last, _)| *last == digest(token))
    }

    fn own_identity(&self, now_ms: u64) -> Result<Identity, TokenError> {
        self.own.expiry(now_ms).map_or_else(|| Ok(self.own.clone()), Err)
    }
}

fn too_many_tokens(per_second_max: u32) -> TokenError {
    TokenError {
        code: Code::TooManyJoins,
        message: format!("Too many tokens per second (at most {per_second_max} on a socket)"),
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
