//! What a client asks for when it joins a channel.
//!
//! Must never fail a join for a part that nobody uses: wrongly typed parts take their default.
//! A binding is another matter: one that cannot be read is named, with the rule it breaks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::push_json_string;
use crate::change::Row;
use crate::filter::column_names;
use crate::id::{BindingId, TableRef};
use crate::index::EventFilter;

/// How long a join that waits for its feed waits, where it does not say. Milliseconds.
pub const WAIT_DEFAULT_MS: u64 = 15_000;

/// How long such a join may wait at most. Milliseconds.
pub const WAIT_MAX_MS: u64 = 20_000;

/// A join's payload, read with the tolerance that clients rely on.
#[derive(Clone, Default)]
pub struct JoinConfig {
    /// The token that the channel is to run under; `None`: the connection's own.
    pub access_token: Option<Box<str>>,
    /// Broadcasts are acknowledged.
    pub broadcast_ack: bool,
    /// The sender gets its own broadcasts.
    pub broadcast_self: bool,
    /// The presence key; empty: the server makes one.
    pub presence_key: Box<str>,
    /// Presence is on from the start.
    pub presence_enabled: bool,
    /// The channel is in the private namespace.
    pub private: bool,
    /// The change bindings in the client's order, each the JSON text of one element; nulls are left out.
    pub bindings: Vec<Box<str>>,
    /// The reply waits for the feed, at most so long. Milliseconds, up to [`WAIT_MAX_MS`].
    pub wait_ms: Option<u64>,
}

/// One change binding as the client wrote it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BindingParams {
    /// Which operations.
    pub event: EventFilter,
    /// The schema; `public` where the client names none. `None`: every schema.
    pub schema: Option<Box<str>>,
    /// The table; `None`: every table of the schema.
    pub table: Option<Box<str>>,
    /// The filter's text; `None`: every row.
    pub filter: Option<Box<str>>,
    /// The columns that are wanted, at least one, as written; `None`: all.
    pub select: Option<Box<[Box<str>]>>,
    /// The client's own object, to be echoed.
    echo: Box<str>,
}

/// Why a binding cannot be read. Names the field and the rule, never the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// Not an object.
    #[error("must be an object")]
    NotAnObject,
    /// `event` is not one of the four.
    #[error("event: must be *, INSERT, UPDATE or DELETE")]
    Event,
    /// `schema` is not a name.
    #[error("schema: must be a schema's name, * or absent")]
    Schema,
    /// `table` is not a name.
    #[error("table: must be a table's name, * or absent")]
    Table,
    /// Neither schema nor table.
    #[error("schema or table must be given")]
    NoTarget,
    /// `filter` is not a text.
    #[error("filter: must be a text")]
    Filter,
    /// `select` is not a list of names.
    #[error(r#"select: must be a list of column names, as ["col1", "col2"] or "col1,col2""#)]
    Select,
    /// Columns are of one table.
    #[error("select: needs one table")]
    SelectWithoutTable,
    /// A filter needs the types of one table's columns.
    #[error("filter: needs one table")]
    FilterWithoutTable,
}

type Object<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

impl JoinConfig {
    /// Reads a join's payload. `subtopic` is the topic without `realtime:`: a payload without
    /// `config` is of an old API, whose topic names `schema[:table[:filter]]`.
    pub fn parse(payload: &str, subtopic: &str) -> Self {
        let payload: Object<'_> = object(payload);
        let token = text(&payload, "access_token").or_else(|| text(&payload, "user_token"));
        let mut join = Self {
            access_token: token.and_then(usable_token),
            ..Self::default()
        };
        let Some(config) = payload.get("config") else {
            join.bindings = vec![legacy_binding(subtopic)];
            return join;
        };
        let config: Object<'_> = object(config.get());
        let broadcast = member(&config, "broadcast");
        join.broadcast_ack = flag(&broadcast, "ack");
        join.broadcast_self = flag(&broadcast, "self");
        let presence = member(&config, "presence");
        join.presence_key = presence.get("key").map(|raw| scalar(raw)).unwrap_or_default();
        join.presence_enabled = flag(&presence, "enabled");
        join.private = flag(&config, "private");
        join.bindings = config
            .get("postgres_changes")
            .map(|raw| elements(raw))
            .unwrap_or_default();
        let options = member(&config, "postgres_changes_options");
        join.wait_ms = flag(&options, "wait").then(|| {
            let asked = options
                .get("timeout")
                .and_then(|raw| serde_json::from_str::<f64>(raw.get()).ok());
            asked
                .filter(|ms| *ms >= 0.0)
                .map_or(WAIT_DEFAULT_MS, |ms| ms as u64)
                .min(WAIT_MAX_MS)
        });
        join
    }
}

/// A token is private, and so are filters: only the shape is shown.
impl std::fmt::Debug for JoinConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "JoinConfig({} bindings, token: {})",
            self.bindings.len(),
            self.access_token.is_some()
        )
    }
}

impl BindingParams {
    /// Reads one element of `postgres_changes`.
    pub fn parse(json: &str) -> Result<Self, BindingError> {
        let fields: Object<'_> = serde_json::from_str(json).map_err(|_| BindingError::NotAnObject)?;
        let event = name(&fields, "event").map_err(|()| BindingError::Event)?;
        let event = EventFilter::parse(event.as_deref().unwrap_or("*")).ok_or(BindingError::Event)?;
        let schema = name(&fields, "schema").map_err(|()| BindingError::Schema)?;
        let table = name(&fields, "table").map_err(|()| BindingError::Table)?;
        let filter = name(&fields, "filter").map_err(|()| BindingError::Filter)?;
        if schema.is_none() && table.is_none() {
            return Err(BindingError::NoTarget);
        }
        let schema = schema
            .filter(|schema| !schema.is_empty())
            .unwrap_or_else(|| "public".into());
        let schema = Some(schema).filter(|schema| &**schema != "*");
        let table = table.filter(|table| !table.is_empty() && &**table != "*");
        let filter = filter.filter(|filter| !filter.trim().is_empty());
        let select = select(&fields)?;
        if select.is_some() && (table.is_none() || schema.is_none()) {
            return Err(BindingError::SelectWithoutTable);
        }
        if filter.is_some() && (table.is_none() || schema.is_none()) {
            return Err(BindingError::FilterWithoutTable);
        }
        Ok(Self {
            event,
            schema,
            table,
            filter,
            select,
            echo: echo(json, &fields),
        })
    }

    /// The one table that the binding is about; `None` where it is about several.
    pub fn one_table(&self) -> Option<TableRef> {
        Some(TableRef::new(&**self.schema.as_ref()?, &**self.table.as_ref()?))
    }

    /// The binding's element in the reply: the client's own object, byte for byte, and the id.
    pub fn reply(&self, id: BindingId) -> String {
        // The object's text ends with its brace: it was parsed as one.
        let members = self.echo.strip_suffix('}').unwrap_or("{").trim_end();
        let comma = if members.ends_with('{') { "" } else { "," };
        format!(r#"{members}{comma}"id":{}}}"#, id.get())
    }
}

/// Filters carry values: only the target is shown.
impl std::fmt::Debug for BindingParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "BindingParams({:?}, {:?}.{:?})",
            self.event, self.schema, self.table
        )
    }
}

/// The token of an `access_token` event, or `None` where it hands the channel back to the
/// connection's own identity: null, empty or not a text.
pub fn access_token(payload: &str) -> Option<Box<str>> {
    text(&object(payload), "access_token").and_then(usable_token)
}

fn usable_token(token: impl AsRef<str>) -> Option<Box<str>> {
    let trimmed = token.as_ref().trim();
    (!trimmed.is_empty()).then(|| trimmed.into())
}

/// The object without an `id` of the client's own, which would stand beside ours.
fn echo(json: &str, fields: &Object<'_>) -> Box<str> {
    let own_id = fields.contains_key("id");
    if own_id && let Ok(without) = Row::new(json).project(|name| name != "id") {
        return without.into();
    }
    json.trim().into()
}

fn legacy_binding(subtopic: &str) -> Box<str> {
    let mut out = String::from("{\"event\":\"*\"");
    for (key, value) in ["schema", "table", "filter"]
        .into_iter()
        .zip(subtopic.splitn(3, ':'))
    {
        out.push_str(",\"");
        out.push_str(key);
        out.push_str("\":");
        push_json_string(&mut out, value);
    }
    out.push('}');
    out.into()
}

fn object(json: &str) -> Object<'_> {
    serde_json::from_str(json).unwrap_or_default()
}

fn member<'a>(of: &Object<'a>, key: &str) -> Object<'a> {
    of.get(key).map(|raw| object(raw.get())).unwrap_or_default()
}

fn text(of: &Object<'_>, key: &str) -> Option<Box<str>> {
    serde_json::from_str(of.get(key)?.get()).ok()
}

/// A text that may be null or absent; anything else is an error.
fn name(of: &Object<'_>, key: &str) -> Result<Option<Box<str>>, ()> {
    of.get(key)
        .map_or(Ok(None), |raw| serde_json::from_str(raw.get()).map_err(|_| ()))
}

/// A list of names, or a text of such; empty is as if not given.
fn select(of: &Object<'_>) -> Result<Option<Box<[Box<str>]>>, BindingError> {
    let Some(raw) = of.get("select").filter(|raw| raw.get() != "null") else {
        return Ok(None);
    };
    let names: Vec<Box<str>> = match serde_json::from_str::<Box<str>>(raw.get()) {
        Ok(text) if text.trim().is_empty() => Vec::new(),
        Ok(text) => column_names(&text).ok_or(BindingError::Select)?,
        Err(_) => serde_json::from_str(raw.get()).map_err(|_| BindingError::Select)?,
    };
    if names.iter().any(|name| name.is_empty()) {
        return Err(BindingError::Select);
    }
    Ok((!names.is_empty()).then(|| names.into()))
}

fn flag(of: &Object<'_>, key: &str) -> bool {
    let Some(raw) = of.get(key) else { return false };
    raw.get() == "true" || text(of, key).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// Any scalar as text; null, objects and arrays as the empty text.
fn scalar(raw: &RawValue) -> Box<str> {
    match raw.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw.get()).unwrap_or_default(),
        Some(b'n' | b'{' | b'[') | None => Box::default(),
        Some(_) => raw.get().into(),
    }
}

fn elements(raw: &RawValue) -> Vec<Box<str>> {
    let list: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    list.into_iter()
        .map(RawValue::get)
        .filter(|json| *json != "null")
        .map(Box::from)
        .collect()
}
