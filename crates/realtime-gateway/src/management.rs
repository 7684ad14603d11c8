//! The management API: what an operator, or a project's own trusted server, sets for a project.
//!
//! Must never tell a caller who has not shown a token of the project anything about it, not even that it
//! exists; nor take from the database what verdicts need: calls are few at a time.

pub mod access;
pub mod body;
mod disconnect;
pub mod operator;
mod tables;

use std::collections::BTreeMap;
use std::future::Future;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post, put};
use realtime_core::code::ApiCode;
use serde::Serialize;
use tokio::time::timeout;

use crate::Gateway;

/// What the API's document is served under. It is the same for everybody, and needs no token.
pub const DOCUMENT_PATH: &str = "/api/v1/openapi.json";

/// The API's description in the OpenAPI form. A test holds it against [`routes`].
pub const DOCUMENT: &str = include_str!("management/openapi.json");

/// One operation of the API.
pub struct Route {
    /// Its method.
    pub method: Method,
    /// Its path, with parameters in braces as in the document.
    pub path: &'static str,
    handler: MethodRouter<Gateway>,
}

/// Why a call was refused: a code that callers match on, and a sentence for a person, without any value that
/// the caller sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: ApiCode,
    /// The sentence.
    pub message: String,
}

/// Every operation.
pub fn routes() -> Vec<Route> {
    vec![
        Route {
            method: Method::GET,
            path: DOCUMENT_PATH,
            handler: get(async || json(StatusCode::OK, DOCUMENT.to_owned())),
        },
        Route {
            method: Method::GET,
            path: "/api/v1/projects/{id}/realtime/tables",
            handler: get(tables::list),
        },
        Route {
            method: Method::PUT,
            path: "/api/v1/projects/{id}/realtime/tables/{table}",
            handler: put(tables::set),
        },
        Route {
            method: Method::POST,
            path: "/api/v1/projects/{id}/realtime/disconnect",
            handler: post(disconnect::disconnect),
        },
    ]
}

/// The API's routes.
pub fn router() -> Router<Gateway> {
    let mut by_path: BTreeMap<&'static str, MethodRouter<Gateway>> = BTreeMap::new();
    for route in routes() {
        let known = by_path.remove(route.path).unwrap_or_default();
        by_path.insert(route.path, known.merge(route.handler));
    }
    let refuse = async || Refusal::from(ApiCode::MethodNotAllowed).response();
    by_path
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| {
            router.route(path, methods)
        })
        .method_not_allowed_fallback(refuse)
}

/// The answer of a path that is not there.
pub fn not_found() -> Response {
    Refusal::from(ApiCode::NotFound).response()
}

/// Works on one call within its deadline, and makes its answer.
async fn answer<T: Serialize>(gateway: &Gateway, work: impl Future<Output = Result<T, Refusal>>) -> Response {
    let deadline = gateway.limits().management_deadline();
    let done = timeout(deadline, work).await;
    let done = done.unwrap_or_else(|_| Err(ApiCode::DeadlineExceeded.into()));
    match done.and_then(|value| serde_json::to_string(&value).map_err(|_| ApiCode::Unavailable.into())) {
        Ok(body) => {
            gateway.metrics().management("ok");
            json(StatusCode::OK, body)
        }
        Err(refusal) => {
            gateway.metrics().management(refusal.code.as_str());
            refusal.response()
        }
    }
}

fn json(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, "application/json");
    set(header::CACHE_CONTROL, "no-store");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // One call a connection: none is held for a caller who asks for nothing.
    set(header::CONNECTION, "close");
    response
}

impl Refusal {
    /// A refusal with a sentence of its own.
    pub fn new(code: ApiCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// A rule of a parameter or of the body that was broken.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ApiCode::InvalidRequest, message)
    }

    fn response(&self) -> Response {
        let status = StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let body = serde_json::json!({ "error": { "code": self.code.as_str(), "message": self.message } });
        let mut response = json(status, body.to_string());
        let headers = response.headers_mut();
        if self.code == ApiCode::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.code.is_passing() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<ApiCode> for Refusal {
    fn from(code: ApiCode) -> Self {
        let message = match code {
            ApiCode::Unauthorized => {
                "A service_role token of the project, or an operator token, is required: Authorization: Bearer …"
            }
            ApiCode::Forbidden => "The token's role is not service_role",
            ApiCode::NotFound => "There is nothing under this path",
            ApiCode::TableNotFound => {
                "There is no such table: it must be a table or a partitioned table that service_role may SELECT from, not a view, a partition, a foreign or a temporary table, nor an extension's own"
            }
            ApiCode::MethodNotAllowed => "The path does not take this method",
            ApiCode::InvalidRequest => "The request is not valid",
            ApiCode::RequestTimeout => "The body did not come in time",
            ApiCode::BodyTooLarge => "The body is too long (ANVILBASE_REALTIME_MANAGEMENT_BODY_BYTES_MAX)",
            ApiCode::TooManyRequests => {
                "Too many calls at once or in a second (ANVILBASE_REALTIME_MANAGEMENT_CALLS_MAX, ANVILBASE_REALTIME_MANAGEMENT_CALLS_PER_SECOND_MAX)"
            }
            ApiCode::TableBusy => {
                "Another transaction holds a lock on the table; nothing was changed, try again"
            }
            ApiCode::TableNotOwned => {
                "The login that provisioned the database does not own the table, and cannot change its triggers; nothing was changed"
            }
            ApiCode::NotProvisioned => {
                "The project's database is not provisioned for table settings: run `anvilbase realtime provision` with --write-database-file"
            }
            ApiCode::Unavailable => "The project's database cannot be reached just now",
            ApiCode::DeadlineExceeded => {
                "No answer in time; what was asked for may or may not have been done: look before you try again"
            }
        };
        Self::new(code, message)
    }
}

#[cfg(test)]
mod tests;
