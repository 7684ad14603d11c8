//! The `postgres_changes` frame: a head for one channel, and data that all channels share.
//!
//! Must never take a row from anywhere but a [`View`], nor print a value again (invariants 2, 3).

use super::{Serializer, push_json_string};
use crate::change::Operation;
use crate::id::BindingId;
use crate::view::{RowText, View};

/// The text of `payload.data`, made once for each distinct view of a change and shared by every
/// frame that shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct ChangeData(Box<str>);

impl ChangeData {
    /// The data of one view, under the SDKs' names and the product's own.
    ///
    /// | key | INSERT | UPDATE | DELETE |
    /// | --- | --- | --- | --- |
    /// | `record` | the row | the row | absent |
    /// | `old_record` | absent | the old row, `{}` where it is hidden | the old row |
    /// | `new` | the row | the row | `null` |
    /// | `old` | `null` | the old row, `null` where it is hidden | the old row |
    pub fn new(view: &View<'_>) -> Self {
        let new = view.new.as_ref().map(RowText::as_str);
        let old = view.old.as_ref().map(RowText::as_str);
        let rows = 2 * (new.map_or(0, str::len) + old.map_or(0, str::len));
        let mut out = String::with_capacity(rows + 256 + 48 * view.columns.len());
        out.push_str("{\"schema\":");
        push_json_string(&mut out, &view.table.schema);
        out.push_str(",\"table\":");
        push_json_string(&mut out, &view.table.table);
        out.push_str(",\"commit_timestamp\":");
        push_json_string(&mut out, view.commit_timestamp);
        out.push_str(",\"type\":");
        push_json_string(&mut out, view.operation.as_str());
        push_columns(&mut out, view);
        push_errors(&mut out, view);
        out.push_str(",\"eventType\":");
        push_json_string(&mut out, view.operation.as_str());
        push_member(&mut out, "new", new.unwrap_or("null"));
        push_member(&mut out, "old", old.unwrap_or("null"));
        if view.operation != Operation::Delete {
            push_member(&mut out, "record", new.unwrap_or("{}"));
        }
        if view.operation != Operation::Insert {
            push_member(&mut out, "old_record", old.unwrap_or("{}"));
        }
        out.push('}');
        Self(out.into())
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Private data: only the size is shown.
impl std::fmt::Debug for ChangeData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChangeData({} bytes)", self.0.len())
    }
}

/// One channel's frame of a change: `ids` are those of this channel's bindings that matched.
/// Channels of one topic with equal ids share the frame.
pub fn change_frame(serializer: Serializer, topic: &str, ids: &[BindingId], data: &ChangeData) -> String {
    let data = data.as_str();
    let mut out = String::with_capacity(data.len() + topic.len() + 20 * ids.len() + 96);
    match serializer {
        Serializer::V1 => {
            out.push_str("{\"topic\":");
            push_json_string(&mut out, topic);
            out.push_str(",\"event\":\"postgres_changes\",\"payload\":");
            push_payload(&mut out, ids, data);
            out.push_str(",\"ref\":null}");
        }
        Serializer::V2 => {
            out.push_str("[null,null,");
            push_json_string(&mut out, topic);
            out.push_str(",\"postgres_changes\",");
            push_payload(&mut out, ids, data);
            out.push(']');
        }
    }
    out
}

fn push_payload(out: &mut String, ids: &[BindingId], data: &str) {
    out.push_str("{\"ids\":[");
    for (n, id) in ids.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(&id.get().to_string());
    }
    out.push_str("],\"data\":");
    out.push_str(data);
    out.push('}');
}

fn push_member(out: &mut String, key: &str, json: &str) {
    out.push_str(",\"");
    out.push_str(key);
    out.push_str("\":");
    out.push_str(json);
}

fn push_columns(out: &mut String, view: &View<'_>) {
    out.push_str(",\"columns\":[");
    for (n, column) in view.columns.iter().enumerate() {
        out.push_str(if n == 0 { "{\"name\":" } else { ",{\"name\":" });
        push_json_string(out, &column.name);
        out.push_str(",\"type\":");
        push_json_string(out, column.type_name);
        out.push('}');
    }
    out.push(']');
}

fn push_errors(out: &mut String, view: &View<'_>) {
    out.push_str(",\"errors\":");
    match view.marker {
        None => out.push_str("null"),
        Some(marker) => {
            out.push('[');
            push_json_string(out, marker.as_str());
            out.push(']');
        }
    }
}
