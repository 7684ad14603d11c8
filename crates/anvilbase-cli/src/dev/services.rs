//! Listener, authz and gateway in this process, as their own binaries start them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper_util::rt::TokioIo;
use realtime_authz::{AuthzServer, LimitArgs};
use realtime_gateway::authz::Authz;
use realtime_gateway::limits::Limits;
use realtime_gateway::management::operator::ManagementArgs;
use realtime_gateway::{Config, run};
use realtime_listener::{Listener, ListenerArgs, ListenerConfig};
use realtime_node::admin::{self, Admin, Readiness};
use realtime_node::args::from_environment;
use realtime_node::bus::Bus;
use realtime_node::catalog::{Catalog, ProjectConfig};
use realtime_node::metrics::Metrics;
use realtime_node::tasks::Tasks;
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::project::Project;

/// Bytes that may be on their way between gateway and authz, each way.
const PIPE_BYTES: usize = 256 * 1024;

/// How often the operator token's file is looked at.
const TOKEN_POLL: Duration = Duration::from_secs(5);

/// Where the process is reached.
#[derive(Debug)]
pub struct Addresses {
    /// The edge.
    pub edge: SocketAddr,
    /// The admin server.
    pub admin: SocketAddr,
}

/// Starts the services; when it returns, clients can connect.
pub async fn start(
    project: &Project,
    edge: SocketAddr,
    admin_addr: SocketAddr,
    tasks: &Tasks,
) -> anyhow::Result<Addresses> {
    // Bound first: a port in use is the likeliest mistake.
    let listener = TcpListener::bind(edge)
        .await
        .with_context(|| format!("--port {}: cannot be bound", edge.port()))?;
    let edge = listener.local_addr()?;
    let bus = Bus::local();
    let metrics = Metrics::new();
    let readiness = Readiness::default();

    let databases = catalog(&project.config, |config| config.tokens = None);
    let config = ListenerConfig::from(from_environment::<ListenerArgs>()?);
    Listener::start(config, bus.clone(), databases.clone(), &metrics, tasks).await?;

    let authz = authz_in_memory(databases, &from_environment()?, &metrics, tasks);

    let management = from_environment::<ManagementArgs>()?;
    let config = Config {
        catalog: catalog(&project.config, |config| config.database = None),
        bus,
        authz,
        limits: from_environment::<Limits>()?,
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        name: "dev".to_owned(),
        drain: super::DRAIN / 2,
        operator_token: management.operator_token(TOKEN_POLL, tasks).await?,
    };
    let gateway = run(listener, config, tasks);
    let feeds = Arc::new(move || gateway.feeds_page());
    let admin = Admin {
        metrics,
        readiness,
        feeds: Some(feeds),
    };
    let admin = admin::serve(admin_addr, admin, tasks).await?;
    Ok(Addresses { edge, admin })
}

/// The project as one service may know it: gateways have no database credentials, listener and
/// authz no token secrets, here as in three processes.
fn catalog(project: &ProjectConfig, withhold: impl FnOnce(&mut ProjectConfig)) -> Catalog {
    let mut config = project.clone();
    withhold(&mut config);
    Catalog::from_projects(vec![config])
}

/// authz behind a gRPC transport that is a pipe in memory.
fn authz_in_memory(catalog: Catalog, limits: &LimitArgs, metrics: &Metrics, tasks: &Tasks) -> Authz {
    let (sender, connections) = mpsc::channel::<DuplexStream>(16);
    let server = AuthzServer::new(catalog, limits, metrics, tasks);
    let incoming = ReceiverStream::new(connections).map(Ok::<_, std::io::Error>);
    tasks.spawn("authz server", async move {
        if let Err(error) = server.serve_with_incoming(incoming).await {
            tracing::error!(%error, "authz ended");
        }
    });
    Authz::new([("memory".to_owned(), connect_lazily(sender))])
}

fn connect_lazily(sender: mpsc::Sender<DuplexStream>) -> Channel {
    let connector = tower::service_fn(move |_: Uri| {
        let sender = sender.clone();
        async move {
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            let taken = sender.send(theirs).await;
            taken.map_err(|_| std::io::Error::other("authz has ended"))?;
            Ok::<_, std::io::Error>(TokioIo::new(ours))
        }
    });
    Endpoint::from_static("http://authz.memory").connect_with_connector_lazy(connector)
}
