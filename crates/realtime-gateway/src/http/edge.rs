//! The accept loop: connections that are not sockets yet.
//!
//! Must never hold a connection for a peer that asks for nothing, or does not take its answer: up to the upgrade
//! a connection has one deadline in all, and they are so many at once and no more.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use realtime_node::tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::metrics::GatewayMetrics;

/// How long a refused accept, such as for want of file descriptors, is waited out.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long a connection that has not become a socket may go on once the process stops.
const LEAVE_DEADLINE: Duration = Duration::from_secs(1);

/// How long, and how many.
#[derive(Debug, Clone, Copy)]
pub struct EdgeLimits {
    /// Longest time from the first byte to the end of a request's head.
    pub head: Duration,
    /// Longest time from the first byte until the connection is a socket, or has taken its answer.
    pub request: Duration,
    /// Connections that are not sockets yet. Further ones wait to be accepted, in their order.
    pub pending_max: usize,
}

/// Accepts connections until `tasks` are told to stop. HTTP/1.1 only: a WebSocket needs no more.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: EdgeLimits,
    metrics: GatewayMetrics,
    tasks: Tasks,
) {
    let pending = Arc::new(Semaphore::new(limits.pending_max));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head);
    loop {
        let placed = async {
            // Closed by nobody.
            let place = Arc::clone(&pending).acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = tasks.cancelled() => return,
            placed = placed => placed,
        };
        match accepted {
            Ok((stream, _)) => {
                let (builder, routes, group) = (builder.clone(), routes.clone(), tasks.clone());
                let metrics = metrics.clone();
                tasks.spawn("connection", async move {
                    // Given back last, when the stream is closed or a socket's.
                    let _place = place;
                    // The library's own deadline begins with the first byte only.
                    let mut first = [0];
                    let begun = tokio::select! {
                        () = group.cancelled() => return,
                        begun = timeout(limits.head, stream.peek(&mut first)) => begun,
                    };
                    if let Ok(Ok(1..)) = begun {
                        let connection = connection(builder, stream, routes, group);
                        if timeout(limits.request, connection).await.is_err() {
                            metrics.refusal("request_deadline");
                        }
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::select! {
                    () = tasks.cancelled() => return,
                    () = sleep(ACCEPT_AGAIN_AFTER) => {}
                }
            }
        }
    }
}

/// Serves one connection until it ends or becomes a socket, which lives on in a task of its own.
async fn connection(builder: Builder<TokioExecutor>, stream: TcpStream, routes: Router, tasks: Tasks) {
    // A change is one small write: it is not held back to wait for another.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY cannot be set");
    }
    let service = TowerToHyperService::new(routes);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = tasks.cancelled() => {
            serving.as_mut().graceful_shutdown();
            match timeout(LEAVE_DEADLINE, serving).await {
                Ok(served) => served,
                Err(_) => return,
            }
        }
    };
    if served.is_err() {
        // Without the error: it may repeat what the peer sent, and a request's head carries the key.
        tracing::debug!("a connection failed before it became a socket");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use realtime_node::metrics::Metrics;
    use realtime_testkit::wait::within;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn edge(limits: EdgeLimits, tasks: &Tasks) -> (SocketAddr, Metrics) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new()
            .route("/", get(async || ([("connection", "close")], "here")))
            .route("/large", get(async || "x".repeat(64 << 20)));
        let metrics = Metrics::new();
        let counted = GatewayMetrics::new(&metrics);
        tasks.spawn("edge", serve(listener, routes, limits, counted, tasks.clone()));
        (address, metrics)
    }

    async fn asking(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn connections_that_ask_for_nothing_are_few_and_soon_gone() {
        let tasks = Tasks::new();
        let limits = EdgeLimits {
            head: Duration::from_millis(200),
            request: Duration::from_secs(30),
            pending_max: 2,
        };
        let (address, _) = edge(limits, &tasks).await;
        let idle = [
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        ];
        let mut answer = String::new();
        let mut third = asking(address, "/").await;
        within("the third's answer", third.read_to_string(&mut answer))
            .await
            .unwrap();
        assert!(answer.ends_with("here"), "{answer}");
        // It was one of the first two whose place it has had: the end of that is there already.
        let ended = idle
            .iter()
            .filter(|stream| matches!(stream.try_read(&mut [0]), Ok(0)));
        assert!(ended.count() >= 1);
        assert!(tasks.drain(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_taken_is_given_up() {
        let tasks = Tasks::new();
        let limits = EdgeLimits {
            head: Duration::from_secs(30),
            request: Duration::from_millis(500),
            pending_max: 1,
        };
        let (address, metrics) = edge(limits, &tasks).await;
        // Larger than what the system takes for a peer that does not read.
        let stuck = asking(address, "/large").await;
        let mut answer = String::new();
        let mut next = asking(address, "/").await;
        within("the next one's answer", next.read_to_string(&mut answer))
            .await
            .unwrap();
        assert!(answer.ends_with("here"), "{answer}");
        let text = metrics.encode_process().unwrap();
        let refused = "anvilbase_realtime_gateway_refusals_total{reason=\"request_deadline\"} 1";
        assert!(text.contains(refused), "{text}");
        drop(stuck);
        assert!(tasks.drain(Duration::from_secs(5)).await);
    }
}
