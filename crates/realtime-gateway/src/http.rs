//! The edge: who may open a socket, and how a refusal reads.
//!
//! Must never log or repeat a URL's query: it carries the key (invariant 10).

pub mod edge;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::any;
use realtime_core::code::Code;
use realtime_core::id::ProjectId;
use realtime_core::wire::phoenix::Serializer;
use tokio::time::timeout;

use crate::auth::{Identity, TokenError, Verifier, named_project};
use crate::session::socket::{Admitted, serve};
use crate::{Gateway, OpenSession, management};

/// A socket's read buffer: allocated at once for every socket, so small.
const READ_BUFFER_BYTES: usize = 4 << 10;

/// A socket's write buffer: what is gathered before a write without a flush.
const WRITE_BUFFER_BYTES: usize = 16 << 10;

/// Room above the outbox's own limit, for replies and pings.
const WRITE_BUFFER_SLACK_BYTES: usize = 1 << 20;

/// Longest message that is read from a peer who was refused.
const REFUSED_BYTES_MAX: usize = 4 << 10;

/// How long a peer who was refused may take to answer the close.
const REFUSED_DEADLINE: Duration = Duration::from_secs(2);

/// Longest reason of a close, in bytes: the protocol's own limit.
const CLOSE_REASON_BYTES_MAX: usize = 123;

/// Why a socket is refused before the upgrade.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: StatusCode,
    text: String,
    /// The code that clients may match on, where there is one.
    code: Option<Code>,
    /// The label in metrics.
    label: &'static str,
}

/// The routes.
pub fn router(gateway: Gateway) -> Router {
    Router::new()
        .route("/realtime/v1/websocket", any(websocket))
        .route("/socket/websocket", any(websocket))
        .merge(management::router())
        .fallback(not_found)
        .with_state(gateway)
}

async fn not_found(uri: Uri) -> Response {
    if uri.path().starts_with("/api/v1/") {
        return management::not_found();
    }
    Refusal::new(StatusCode::NOT_FOUND, "not_found", "Not found").response()
}

async fn websocket(
    State(gateway): State<Gateway>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match admit(&gateway, &uri, &headers).await {
        Ok((admitted, open)) => match upgrade {
            Ok(upgrade) => accept(gateway, admitted, open, upgrade),
            Err(_) => {
                let text = "This is a WebSocket endpoint: an upgrade is required";
                let refusal = Refusal::new(StatusCode::UPGRADE_REQUIRED, "no_upgrade", text);
                refuse(&gateway, &refusal)
            }
        },
        Err(refusal) => match upgrade {
            Ok(upgrade) if gateway.limits().refuse_by_close => {
                gateway.metrics().refusal(refusal.label);
                refuse_by_close(gateway, upgrade, refusal.close())
            }
            _ => refuse(&gateway, &refusal),
        },
    }
}

/// Opens a socket only to close it: nothing that comes on it is read for longer than a moment.
fn refuse_by_close(gateway: Gateway, upgrade: WebSocketUpgrade, close: CloseFrame) -> Response {
    let upgrade = upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_message_size(REFUSED_BYTES_MAX)
        .max_frame_size(REFUSED_BYTES_MAX);
    upgrade
        .on_failed_upgrade(|_| {})
        .on_upgrade(async move |mut socket| {
            let closed = async move {
                if socket.send(Message::Close(Some(close))).await.is_ok() {
                    while let Some(Ok(_)) = socket.recv().await {}
                }
            };
            // Whoever does not answer the close is left.
            let closed = timeout(REFUSED_DEADLINE, closed);
            let _ = gateway.session_tasks().spawn("refused socket", closed).await;
        })
}

fn refuse(gateway: &Gateway, refusal: &Refusal) -> Response {
    gateway.metrics().refusal(refusal.label);
    refusal.response()
}

async fn admit(
    gateway: &Gateway,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(Admitted, OpenSession), Refusal> {
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map(|query| query.0)
        .unwrap_or_default();
    let value = |name: &str| {
        query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    let serializer = Serializer::from_vsn(value("vsn"))
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, "version", &error.to_string()))?;
    let header = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    let key = header
        .or(value("apikey"))
        .map(str::trim)
        .filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| Refusal::coded(Code::InvalidApiKey, "no_key", "API key is missing"))?;
    let project = project_of(gateway, key)?;
    let (identity, verifier) = identify(gateway, &project, key).await?;
    if gateway.session_tasks().is_cancelled() {
        let text = "Realtime is restarting, please standby";
        return Err(Refusal::coded(Code::Restarting, "restarting", text));
    }
    let (id, open) = gateway.open_session().ok_or_else(|| {
        let max = gateway.limits().sockets_max;
        let text = format!("Too many connected users (at most {max} sockets on a gateway)");
        Refusal::coded(Code::TooManyConnections, "sockets_max", &text)
    })?;
    let admitted = Admitted {
        id,
        project,
        serializer,
        identity,
        verifier,
    };
    Ok((admitted, open))
}

fn unknown_project() -> Refusal {
    Refusal::coded(Code::TenantNotFound, "project", "Tenant not found")
}

/// The project that a key is for: the one that it names, the one that it is a static key of, or
/// the only one.
fn project_of(gateway: &Gateway, key: &str) -> Result<ProjectId, Refusal> {
    if let Some(name) = named_project(key) {
        return ProjectId::parse(&name).map_err(|_| unknown_project());
    }
    gateway
        .only_project()
        .or_else(|| gateway.verifiers().project_of_static(key))
        .ok_or_else(unknown_project)
}

/// Who a connection's key speaks for. Waits for the project's key set where the key needs it.
async fn identify(
    gateway: &Gateway,
    project: &ProjectId,
    key: &str,
) -> Result<(Identity, Arc<Verifier>), Refusal> {
    let verifier = gateway.verifier(project).ok_or_else(unknown_project)?;
    match verifier.verify(key, gateway.now_ms()) {
        Ok(identity) => return Ok((identity, verifier)),
        Err(error) if error.code != Code::KeysUnavailable => return Err(error.into()),
        Err(_) => {}
    }
    let refresh = gateway.verifiers().refresh(project).await;
    let verifier = gateway.verifier(project).ok_or_else(unknown_project)?;
    let identity = verifier.verify(key, gateway.now_ms());
    let identity = identity.map_err(|error| error.after(refresh))?;
    Ok((identity, verifier))
}

fn accept(gateway: Gateway, admitted: Admitted, open: OpenSession, upgrade: WebSocketUpgrade) -> Response {
    let limits = gateway.limits();
    // The session refuses by a close that says why; what is larger still is not even read.
    let inbound_max = 2 * limits.inbound_bytes_max as usize;
    let outbound_max = limits.outbox_bytes_max as usize + WRITE_BUFFER_SLACK_BYTES;
    let upgrade = upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(outbound_max)
        .max_message_size(inbound_max)
        .max_frame_size(inbound_max);
    let failed = gateway.clone();
    upgrade
        .on_failed_upgrade(move |_| failed.metrics().refusal("upgrade_failed"))
        .on_upgrade(move |socket| async move {
            let session = serve(gateway.clone(), admitted, socket);
            // Awaited by its own task: a panic ends this socket alone.
            let served = gateway.session_tasks().spawn("session", session).await;
            if served.is_err() {
                gateway.metrics().close("panic");
            }
            drop(open);
        })
}

impl Refusal {
    fn new(status: StatusCode, label: &'static str, text: &str) -> Self {
        Self {
            status,
            text: text.into(),
            code: None,
            label,
        }
    }

    fn coded(code: Code, label: &'static str, text: &str) -> Self {
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::UNAUTHORIZED);
        Self {
            code: Some(code),
            ..Self::new(status, label, text)
        }
    }

    /// The same as a close: 4000 and the status (1013, try again later, for statuses from 500), and
    /// `<code>: <text>`.
    fn close(&self) -> CloseFrame {
        let status = self.status.as_u16();
        let mut reason = match self.code {
            Some(code) => format!("{}: {}", code.as_str(), self.text),
            None => self.text.clone(),
        };
        reason.truncate(reason.floor_char_boundary(CLOSE_REASON_BYTES_MAX));
        CloseFrame {
            code: if status < 500 { 4_000 + status } else { 1_013 },
            reason: reason.into(),
        }
    }

    fn response(&self) -> Response {
        let body = match self.code {
            Some(code) => serde_json::json!({ "error": self.text, "code": code.as_str() }),
            None => serde_json::json!({ "error": self.text }),
        };
        let body = body.to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        // Whoever is refused tries again on a new connection: this one is not held for it.
        let close = header::HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        response
    }
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Self {
        let label = match error.code {
            Code::Unauthorized => "role",
            Code::KeysUnavailable => "key_set",
            _ => "token",
        };
        Self::coded(error.code, label, &error.message)
    }
}
