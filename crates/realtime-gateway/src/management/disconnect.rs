//! Ending what a user has open.
//!
//! Must never say whether there was anything to end: gateways are told, and do not answer.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use realtime_core::claims::Who;
use realtime_core::code::ApiCode;
use serde::Serialize;

use super::access::find_out;
use super::{Refusal, answer, body};
use crate::Gateway;

/// What a body names somebody by: one of them.
const FIELDS: [&str; 2] = ["sub", "session_id"];

/// Every gateway on the bus was told.
#[derive(Debug, Serialize)]
struct Told {
    told: bool,
}

/// `POST …/disconnect`
pub async fn disconnect(
    State(gateway): State<Gateway>,
    project: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let project = project.ok().map(|Path(project)| project);
    answer(&gateway, async {
        let known = find_out(&gateway, project.as_deref(), &headers).await?;
        let bytes = body::read(body, gateway.limits().management_body_bytes_max as usize).await?;
        let caller = known.enter(&gateway)?;
        let who = who(&bytes)?;
        body::parameters(&uri, &[])?;
        let told = gateway.disconnects().order(&caller.project, &who).await;
        told.map_err(|error| {
            tracing::warn!(project = %caller.project, %error, "gateways cannot be told to disconnect");
            Refusal::from(ApiCode::Unavailable)
        })?;
        tracing::info!(project = %caller.project, by = caller.kind.as_str(), "gateways were told to disconnect a user");
        Ok(Told { told: true })
    })
    .await
}

fn who(body: &[u8]) -> Result<Who, Refusal> {
    let rule = || Refusal::invalid("body: must have one of sub, session_id, and nothing else");
    let members = body::members::<String>(body)?;
    let [(name, value)] = <[_; 1]>::try_from(members).map_err(|_| rule())?;
    let field = FIELDS.into_iter().find(|field| *field == name).ok_or_else(rule)?;
    let value = value.filter(|value| !value.is_empty());
    let value =
        value.ok_or_else(|| Refusal::invalid(format!("{field}: must be a text that is not empty")))?;
    Ok(match field {
        "sub" => Who::Subject(value.into()),
        _ => Who::Session(value.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_names_one_user_or_one_session() {
        assert!(who(br#"{"sub":"u1"}"#).unwrap() == Who::Subject("u1".into()));
        assert!(who(br#"{"session_id":"s1"}"#).unwrap() == Who::Session("s1".into()));
        for (body, said) in [
            ("{}", "body: must have one of"),
            (r#"{"sub":"hunter2","session_id":"s"}"#, "body: must have one of"),
            (r#"{"hunter2":"u"}"#, "body: must have one of"),
            (r#"{"sub":""}"#, "sub: must be a text"),
            (r#"{"sub":null}"#, "sub: must be a text"),
            (r#"{"sub":["hunter2"]}"#, "sub: must be a text"),
            (r#"{"session_id":7}"#, "session_id: must be a text"),
            (r#"{"sub":"a","sub":"b"}"#, "body: must be a JSON object"),
            ("", "body: is empty"),
        ] {
            let refusal = who(body.as_bytes()).unwrap_err();
            assert!(refusal.message.starts_with(said), "{body}: {}", refusal.message);
            assert!(!refusal.message.contains("hunter2"));
        }
    }
}
