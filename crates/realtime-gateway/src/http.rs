//! The edge: who may open a socket, and how a refusal reads.
//!
//! Must never log or repeat a URL's query: it carries the key (invariant 10).

pub mod edge;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::any;
use realtime_core::code::Code;
use realtime_core::id::ProjectId;
use realtime_core::wire::phoenix::Serializer;

use crate::auth::{TokenError, named_project};
use crate::session::socket::{Admitted, serve};
use crate::{Gateway, OpenSession};

/// A socket's read buffer: allocated at once for every socket, so small.
const READ_BUFFER_BYTES: usize = 4 << 10;

/// A socket's write buffer: what is gathered before a write without a flush.
const WRITE_BUFFER_BYTES: usize = 16 << 10;

/// Room above the outbox's own limit, for replies and pings.
const WRITE_BUFFER_SLACK_BYTES: usize = 1 << 20;

/// Why a socket is refused before the upgrade.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: StatusCode,
    text: String,
    /// The label in metrics.
    label: &'static str,
}

/// The routes.
pub fn router(gateway: Gateway) -> Router {
    Router::new()
        .route("/realtime/v1/websocket", any(websocket))
        .route("/socket/websocket", any(websocket))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "not_found", "Not found").response())
        .with_state(gateway)
}

async fn websocket(
    State(gateway): State<Gateway>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match admit(&gateway, &uri, &headers) {
        Ok((admitted, open)) => match upgrade {
            Ok(upgrade) => accept(gateway, admitted, open, upgrade),
            Err(_) => {
                let text = "This is a WebSocket endpoint: an upgrade is required";
                let refusal = Refusal::new(StatusCode::UPGRADE_REQUIRED, "no_upgrade", text);
                refuse(&gateway, &refusal)
            }
        },
        Err(refusal) => refuse(&gateway, &refusal),
    }
}

fn refuse(gateway: &Gateway, refusal: &Refusal) -> Response {
    gateway.metrics().refusal(refusal.label);
    refusal.response()
}

fn admit(gateway: &Gateway, uri: &Uri, headers: &HeaderMap) -> Result<(Admitted, OpenSession), Refusal> {
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
    let key = key.ok_or_else(|| Refusal::new(StatusCode::UNAUTHORIZED, "no_key", "API key is missing"))?;
    let unknown = || Refusal::new(StatusCode::NOT_FOUND, "project", "Tenant not found");
    let project = match named_project(key) {
        Some(name) => ProjectId::parse(&name).map_err(|_| unknown())?,
        None => gateway.only_project().ok_or_else(unknown)?,
    };
    let verifier = gateway.verifier(&project).ok_or_else(unknown)?;
    let identity = verifier.verify(key, gateway.now_ms()).map_err(Refusal::from)?;
    let busy = |text| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "restarting", text);
    if gateway.session_tasks().is_cancelled() {
        return Err(busy("Realtime is restarting, please standby"));
    }
    let (id, open) = gateway.open_session().ok_or_else(|| {
        Refusal::new(
            StatusCode::TOO_MANY_REQUESTS,
            "sockets_max",
            "Too many connected users",
        )
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

fn accept(gateway: Gateway, admitted: Admitted, open: OpenSession, upgrade: WebSocketUpgrade) -> Response {
    let limits = gateway.limits();
    let inbound_max = limits.inbound_bytes_max as usize;
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
            label,
        }
    }

    fn response(&self) -> Response {
        let body = serde_json::json!({ "error": self.text }).to_string();
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
        let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::UNAUTHORIZED);
        let label = match error.code {
            Code::Unauthorized => "role",
            _ => "token",
        };
        Self::new(status, label, &error.message)
    }
}
