//! What waits in a session for its project's key set: joins and tokens whose key is not known yet.
//!
//! Must never let one of them take effect after its topic was left or joined anew, nor go on
//! longer than one fetch.

use std::sync::Arc;

use realtime_core::wire::phoenix::{Ref, close_frame, reply_error};
use realtime_node::secret::Secret;

use super::join::Join;
use super::{ChannelKey, Context, Effect, SessionState};
use crate::auth::jwks::Refresh;

/// What a token whose key is not known yet was given for.
#[derive(Debug)]
pub(super) enum Asked {
    /// A join.
    Join(Box<Join>),
    /// Another identity for a channel.
    Renew(ChannelKey, Secret),
}

impl SessionState {
    /// Keeps what was asked until the keys were fetched. At most one thing waits for each topic: the last.
    pub(super) fn await_keys(&mut self, topic: &str, asked: Asked, effects: &mut Vec<Effect>) {
        self.awaiting.insert(Arc::from(topic), asked);
        if !std::mem::replace(&mut self.fetching, true) {
            effects.push(Effect::FetchKeys);
        }
    }

    /// How many joins wait for keys.
    pub(super) fn joins_awaiting_keys(&self) -> usize {
        let joins = self.awaiting.values();
        joins.filter(|asked| matches!(asked, Asked::Join(_))).count()
    }

    /// The reference of a join of this topic that waits.
    pub(super) fn awaiting_join(&self, topic: &str) -> Option<&Ref> {
        match self.awaiting.get(topic)? {
            Asked::Join(join) => Some(&join.join_ref),
            Asked::Renew(..) => None,
        }
    }

    /// Forgets what waits for a topic. A join among it is over, and is told so.
    pub(super) fn forget_awaiting(&mut self, topic: &str, effects: &mut Vec<Effect>) {
        if let Some(Asked::Join(join)) = self.awaiting.remove(topic) {
            effects.push(Effect::Send(
                close_frame(self.serializer, &join.join_ref, topic).into(),
            ));
        }
    }

    /// A join that waits is to be by another token, or by the connection's own identity. A token that is too long to be
    /// kept ends it.
    pub(super) fn replace_token(
        &mut self,
        topic: &str,
        token: Option<Box<str>>,
        context: &Context<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Asked::Join(join)) = self.awaiting.get_mut(topic) else {
            return;
        };
        let fits = token.as_deref().map(|token| context.verifier.check_length(token));
        if let Some(Err(error)) = fits {
            let (join_ref, reference) = (&join.join_ref, &join.reference);
            let reply = reply_error(self.serializer, join_ref, reference, topic, &error.to_string());
            effects.push(Effect::Send(reply.into()));
            self.awaiting.remove(topic);
            return;
        }
        join.token = token.map(Secret::new);
    }

    /// The keys were fetched, or could not be: everything that waited is decided now.
    pub(super) fn on_keys(&mut self, refresh: Refresh, context: &Context<'_>, effects: &mut Vec<Effect>) {
        self.fetching = false;
        for (topic, asked) in std::mem::take(&mut self.awaiting) {
            match asked {
                Asked::Join(join) => match self.identify(join.token(), context) {
                    Ok(identity) => self.open(&topic, *join, identity, effects),
                    Err(error) => {
                        let (join_ref, reference) = (&join.join_ref, &join.reference);
                        let reason = error.after(refresh).to_string();
                        let reply = reply_error(self.serializer, join_ref, reference, &topic, &reason);
                        effects.push(Effect::Send(reply.into()));
                    }
                },
                Asked::Renew(key, token) => {
                    let current = self
                        .channels
                        .get(&*topic)
                        .is_some_and(|channel| channel.tag.key == key);
                    if !current {
                        continue;
                    }
                    match self.identify(Some(token.expose()), context) {
                        Ok(identity) => self.renew(&topic, identity, context, effects),
                        Err(error) => self.end(&topic, &error.after(refresh), effects),
                    }
                }
            }
        }
    }
}
