//! The feed's tables: listed with their state, and set.
//!
//! Must never look at a parameter, let alone ask the database, before the caller is known.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use realtime_core::code::ApiCode;
use realtime_proto::v1;
use serde::Serialize;

use super::access::find_out;
use super::{Refusal, answer, body};
use crate::Gateway;

/// Most tables of one answer; also where the caller does not say.
const TABLES_MAX: u32 = 10_000;

/// The schema where the caller does not say.
const SCHEMA: &str = "public";

/// The settings that a body may have.
const SETTINGS: [&str; 5] = [
    "cdc_enabled",
    "realtime_public",
    "delete_events",
    "emit_events",
    "replica_events",
];

/// The tables of one schema.
#[derive(Debug, Serialize)]
struct TableList {
    tables: Vec<TableState>,
    /// There are more: the next call's `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A table's state.
#[derive(Debug, Serialize)]
struct TableState {
    schema: String,
    table: String,
    cdc_enabled: bool,
    rls_enabled: bool,
    realtime_public: bool,
    delete_events: bool,
    emit_events: bool,
    replica_events: bool,
    emitting: bool,
    notes: Vec<Note>,
}

/// Something that whoever answers for the table should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Note {
    code: &'static str,
    message: &'static str,
}

const TEXT_KEY: Note = Note {
    code: "text_key",
    message: "The primary key has a text column, and deletes show the key to every subscriber: where it is personal (an e-mail address, a phone number), set delete_events to false",
};

const NOT_EMITTING: Note = Note {
    code: "not_emitting",
    message: "Its triggers are missing or disabled, so that its changes are silent: enable them, or run `anvilbase realtime provision` as the table's owner",
};

/// `GET …/tables`
pub async fn list(
    State(gateway): State<Gateway>,
    project: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let project = project.ok().map(|Path(project)| project);
    answer(&gateway, async {
        let known = find_out(&gateway, project.as_deref(), &headers).await?;
        let caller = known.enter(&gateway)?;
        let mut request = v1::ListTablesRequest {
            project: caller.project.to_string(),
            schema: SCHEMA.to_owned(),
            after: String::new(),
            limit: TABLES_MAX,
        };
        for (name, value) in body::parameters(&uri, &["schema", "after", "limit"])? {
            match name.as_str() {
                "schema" => request.schema = named("schema", value)?,
                "after" => request.after = named("after", value)?,
                _ => request.limit = limit(&value)?,
            }
        }
        let deadline = gateway.limits().management_deadline();
        let listed = gateway
            .authz()
            .list_tables(request, &caller.project, deadline)
            .await?;
        let tables: Vec<TableState> = listed.tables.into_iter().map(TableState::from).collect();
        let last = tables.last().map(|last| last.table.clone());
        Ok(TableList {
            next: last.filter(|_| listed.more),
            tables,
        })
    })
    .await
}

/// `PUT …/tables/{table}`
pub async fn set(
    State(gateway): State<Gateway>,
    path: Result<Path<(String, String)>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let (project, table) = match path {
        Ok(Path((project, table))) => (Some(project), Some(table)),
        // A part of it is not UTF-8; a project's id is plain, and stands where the route says.
        Err(_) => (uri.path().split('/').nth(4).map(str::to_owned), None),
    };
    answer(&gateway, async {
        let known = find_out(&gateway, project.as_deref(), &headers).await?;
        let bytes = body::read(body, gateway.limits().management_body_bytes_max as usize).await?;
        let caller = known.enter(&gateway)?;
        let mut request = settings(&bytes)?;
        request.project = caller.project.to_string();
        request.schema = SCHEMA.to_owned();
        for (_, value) in body::parameters(&uri, &["schema"])? {
            request.schema = named("schema", value)?;
        }
        // No name in UTF-8, no table.
        request.table = table.ok_or(ApiCode::TableNotFound)?;
        let deadline = gateway.limits().management_deadline();
        let set = gateway.authz().set_table(request, &caller.project, deadline).await?;
        let by = caller.kind.as_str();
        tracing::info!(project = %caller.project, schema = set.schema, table = set.table, by, "settings of a table were set");
        Ok(TableState::from(set))
    })
    .await
}

/// The settings of a body; names are still missing.
fn settings(body: &[u8]) -> Result<v1::SetTableRequest, Refusal> {
    let mut request = v1::SetTableRequest::default();
    let members = body::members::<bool>(body)?;
    if members.is_empty() {
        return Err(Refusal::invalid(format!(
            "body: must have one of {}",
            SETTINGS.join(", ")
        )));
    }
    for (name, value) in members {
        let [
            cdc_enabled,
            realtime_public,
            delete_events,
            emit_events,
            replica_events,
        ] = SETTINGS;
        let (field, place) = match name {
            name if name == cdc_enabled => (cdc_enabled, &mut request.cdc_enabled),
            name if name == realtime_public => (realtime_public, &mut request.realtime_public),
            name if name == delete_events => (delete_events, &mut request.delete_events),
            name if name == emit_events => (emit_events, &mut request.emit_events),
            name if name == replica_events => (replica_events, &mut request.replica_events),
            _ => {
                let known = SETTINGS.join(", ");
                return Err(Refusal::invalid(format!(
                    "body: has an unknown field; known are {known}"
                )));
            }
        };
        let value = value.ok_or_else(|| Refusal::invalid(format!("{field}: must be true or false")))?;
        *place = Some(value);
    }
    Ok(request)
}

fn named(field: &str, value: String) -> Result<String, Refusal> {
    if value.is_empty() {
        return Err(Refusal::invalid(format!("{field}: must not be empty")));
    }
    Ok(value)
}

fn limit(value: &str) -> Result<u32, Refusal> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = value
        .parse()
        .ok()
        .filter(|limit| digits && (1..=TABLES_MAX).contains(limit));
    parsed.ok_or_else(|| Refusal::invalid(format!("limit: must be a number from 1 to {TABLES_MAX}")))
}

impl From<v1::TableState> for TableState {
    fn from(state: v1::TableState) -> Self {
        let mut notes = Vec::new();
        if state.text_key && state.delete_events {
            notes.push(TEXT_KEY);
        }
        let wanted = state.cdc_enabled && (state.schema == SCHEMA || state.emit_events);
        if wanted && !state.emitting {
            notes.push(NOT_EMITTING);
        }
        Self {
            schema: state.schema,
            table: state.table,
            cdc_enabled: state.cdc_enabled,
            rls_enabled: state.rls_enabled,
            realtime_public: state.realtime_public,
            delete_events: state.delete_events,
            emit_events: state.emit_events,
            replica_events: state.replica_events,
            emitting: state.emitting,
            notes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_sets_what_it_names() {
        let request = settings(br#"{"cdc_enabled":false,"delete_events":true}"#).unwrap();
        assert_eq!(request.cdc_enabled, Some(false));
        assert_eq!(request.delete_events, Some(true));
        assert_eq!((request.realtime_public, request.emit_events), (None, None));
        for (body, rule) in [
            ("{}", "body: must have one of"),
            (r#"{"cdc_enabled":null}"#, "cdc_enabled: must be true or false"),
            (
                r#"{"realtime_public":"true"}"#,
                "realtime_public: must be true or false",
            ),
            (
                r#"{"realtime_public":1}"#,
                "realtime_public: must be true or false",
            ),
            (
                r#"{"cdc_enabled":true,"hunter2":true}"#,
                "body: has an unknown field",
            ),
            ("[true]", "body: must be a JSON object"),
            ("", "body: is empty"),
        ] {
            let refusal = settings(body.as_bytes()).unwrap_err();
            assert!(refusal.message.starts_with(rule), "{body}: {}", refusal.message);
            assert!(!refusal.message.contains("hunter2"));
        }
    }

    #[test]
    fn a_limit_is_a_plain_number_in_its_range() {
        assert_eq!(limit("1").unwrap(), 1);
        assert_eq!(limit("10000").unwrap(), TABLES_MAX);
        for value in ["0", "10001", "+5", "-1", "", "1.0", " 1", "99999999999"] {
            assert!(limit(value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn notes_say_what_should_be_known() {
        let state = |cdc_enabled, emitting, text_key, delete_events| {
            TableState::from(v1::TableState {
                schema: "public".into(),
                cdc_enabled,
                emitting,
                text_key,
                delete_events,
                ..v1::TableState::default()
            })
            .notes
        };
        assert_eq!(state(true, true, true, true), [TEXT_KEY]);
        assert_eq!(state(true, true, true, false), []);
        assert_eq!(state(true, false, false, true), [NOT_EMITTING]);
        assert_eq!(state(false, false, false, true), []);
    }
}
