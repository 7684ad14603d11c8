//! The accept loop: connections that are not sockets yet.
//!
//! Must never hold a connection for a peer that asks for nothing: up to the upgrade every wait has
//! a deadline, since nothing else limits such connections.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use realtime_node::tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// How long a refused accept, such as for want of file descriptors, is waited out.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long a connection that has not become a socket may go on once the process stops.
const LEAVE_DEADLINE: Duration = Duration::from_secs(1);

/// Accepts connections until `tasks` are told to stop. Each must have sent the head of its request within
/// `head_deadline`. HTTP/1.1 only: a WebSocket needs no more.
pub async fn serve(listener: TcpListener, routes: Router, head_deadline: Duration, tasks: Tasks) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head_deadline);
    loop {
        let accepted = tokio::select! {
            () = tasks.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (builder, routes, group) = (builder.clone(), routes.clone(), tasks.clone());
                tasks.spawn("connection", async move {
                    // The library's own deadline begins with the first byte only.
                    let mut first = [0];
                    let begun = tokio::select! {
                        () = group.cancelled() => return,
                        begun = timeout(head_deadline, stream.peek(&mut first)) => begun,
                    };
                    if let Ok(Ok(1..)) = begun {
                        connection(builder, stream, routes, group).await;
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
