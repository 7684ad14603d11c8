//! The frames of one event: each distinct view and each distinct frame is made once.
//!
//! Must never make a frame without a verdict (invariant 2).

use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use realtime_core::change::ChangeEvent;
use realtime_core::id::BindingId;
use realtime_core::verdict::{Grant, Verdict};
use realtime_core::view::{NoView, Selection, View};
use realtime_core::wire::phoenix::{ChangeData, Serializer, change_frame};
use rustc_hash::FxHashMap;

use super::subscribers::Shown;
use crate::session::channel::ChannelTag;

/// Encodes one event for any number of channels.
pub struct Encoder<'e> {
    event: &'e ChangeEvent,
    /// Grants are few: equal policies and privileges give equal ones. So are selections.
    views: Vec<(Grant, Option<Selection>, Result<ChangeData, NoView>)>,
    frames: FxHashMap<FrameKey, Utf8Bytes>,
    /// How many frames were made, as against shared.
    made: u64,
}

type FrameKey = (usize, Serializer, Arc<str>, Box<[BindingId]>);

impl<'e> Encoder<'e> {
    /// Nothing encoded yet.
    pub fn new(event: &'e ChangeEvent) -> Self {
        Self {
            event,
            views: Vec::new(),
            frames: FxHashMap::default(),
            made: 0,
        }
    }

    /// The frame for a channel under a verdict, of its bindings that matched and show the same columns.
    ///
    /// # Errors
    /// The verdict is to drop, or nothing can be cut from the row safely.
    pub fn frame(&mut self, verdict: &Verdict, tag: &ChannelTag, shown: &Shown) -> Result<Utf8Bytes, NoView> {
        let Verdict::Deliver(grant) = verdict else {
            return Err(NoView::Dropped);
        };
        let Shown { selection, ids } = shown;
        let known = self
            .views
            .iter()
            .position(|(known, selected, _)| known == grant && selected == selection);
        let view = match known {
            Some(view) => view,
            None => {
                let view = View::narrowed(self.event, verdict, selection.as_ref());
                let data = view.map(|view| ChangeData::new(&view));
                self.views.push((grant.clone(), selection.clone(), data));
                self.views.len() - 1
            }
        };
        let data = self.views[view].2.as_ref().map_err(|error| *error)?;
        let made = &mut self.made;
        let key = (
            view,
            tag.serializer,
            Arc::clone(&tag.topic),
            ids.as_slice().into(),
        );
        let frame = self.frames.entry(key).or_insert_with(|| {
            *made += 1;
            change_frame(tag.serializer, &tag.topic, ids, data).into()
        });
        Ok(frame.clone())
    }

    /// How many frames were made.
    pub fn made(&self) -> u64 {
        self.made
    }
}
