//! The admin server: liveness, readiness, metrics. On a port of its own, never the edge's.
//!
//! Must never show a row, a token, a claim or a connection string.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use crate::tasks::Tasks;

/// What must be true for the process to be ready, by name. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, bool>>>);

/// What `/debug/feeds` shows: a text made afresh at each request.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// What the admin server serves.
#[derive(Clone)]
pub struct Admin {
    /// `/metrics` and `/metrics/projects`.
    pub metrics: Metrics,
    /// `/readyz`.
    pub readiness: Readiness,
    /// `/debug/feeds`, as JSON.
    pub feeds: Option<Page>,
}

impl Readiness {
    /// Says whether a condition holds. A process is ready while all of them do.
    pub fn set(&self, condition: &'static str, holds: bool) {
        self.0.lock().insert(condition, holds);
    }

    /// Whether all conditions hold.
    pub fn is_ready(&self) -> bool {
        self.0.lock().values().all(|holds| *holds)
    }

    fn unmet(&self) -> Vec<&'static str> {
        self.0
            .lock()
            .iter()
            .filter(|(_, holds)| !**holds)
            .map(|(name, _)| *name)
            .collect()
    }
}

/// Binds `addr` and serves until the tasks are cancelled. Gives the address in force.
///
/// # Errors
/// The address cannot be bound.
pub async fn serve(addr: SocketAddr, admin: Admin, tasks: &Tasks) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(addr)
        .await
        .with_context(|| format!("admin address {addr}: cannot bind"))?;
    let bound = listener
        .local_addr()
        .context("admin address: unknown after bind")?;
    let stop = tasks.cancelled();
    tasks.spawn("admin", async move {
        let served = axum::serve(listener, router(admin))
            .with_graceful_shutdown(stop)
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "admin server ended");
        }
    });
    Ok(bound)
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route(
            "/metrics",
            get(|State(admin): State<Admin>| async move { text(admin.metrics.encode_process()) }),
        )
        .route(
            "/metrics/projects",
            get(|State(admin): State<Admin>| async move { text(admin.metrics.encode_projects()) }),
        )
        .route("/debug/feeds", get(feeds))
        .with_state(admin)
}

async fn readyz(State(admin): State<Admin>) -> impl IntoResponse {
    let unmet = admin.readiness.unmet();
    if unmet.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("waiting for: {}\n", unmet.join(", ")),
        )
    }
}

async fn feeds(State(admin): State<Admin>) -> impl IntoResponse {
    match admin.feeds {
        Some(page) => (StatusCode::OK, [("content-type", "application/json")], page()),
        None => (
            StatusCode::NOT_FOUND,
            [("content-type", "application/json")],
            "{}".to_owned(),
        ),
    }
}

fn text(encoded: Result<String, std::fmt::Error>) -> impl IntoResponse {
    let content_type = [(
        "content-type",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    )];
    match encoded {
        Ok(text) => (StatusCode::OK, content_type, text),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, content_type, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_while_all_conditions_hold() {
        let readiness = Readiness::default();
        readiness.set("bus", false);
        readiness.set("authz", true);
        assert!(!readiness.is_ready());
        assert_eq!(readiness.unmet(), ["bus"]);
        readiness.set("bus", true);
        assert!(readiness.is_ready());
    }
}
