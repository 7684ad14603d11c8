//! The service on its transport: a TCP port, or any stream of connections.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use futures_util::Stream;
use realtime_node::catalog::Catalog;
use realtime_node::metrics::Metrics;
use realtime_node::tasks::Tasks;
use realtime_proto::v1::authz_service_server::AuthzServiceServer;
use realtime_proto::v1::table_service_server::TableServiceServer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::{Connected, Router};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::args::{AuthzArgs, LimitArgs, Tls};
use crate::metrics::AuthzMetrics;
use crate::pools::Pools;
use crate::projects::Projects;
use crate::service::Service;
use crate::settings::Settings;

/// Largest request: 256 subjects' claims and an event.
const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest request for settings: a few names.
const SETTINGS_BYTES_MAX: usize = 64 * 1024;

/// The services, ready to be served.
#[derive(Clone)]
pub struct AuthzServer {
    service: Service,
    settings: Settings,
    tasks: Tasks,
}

impl AuthzServer {
    /// A service over a catalog's projects; its connections live in `tasks`.
    pub fn new(catalog: Catalog, limits: &LimitArgs, metrics: &Metrics, tasks: &Tasks) -> Self {
        let counted = AuthzMetrics::new(metrics);
        let pools = Pools::new(limits.pools(), tasks, counted.clone());
        let settings = Settings::new(catalog.clone(), Arc::clone(&pools), limits.settings());
        let projects = Projects::new(catalog, pools, limits.facts());
        Self {
            settings,
            service: Service::new(projects, limits.service(), counted),
            tasks: tasks.clone(),
        }
    }

    /// The service itself, for callers in the same process.
    pub fn service(&self) -> Service {
        self.service.clone()
    }

    /// The service of table settings, for callers in the same process.
    pub fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// Serves connections of any kind until the tasks are cancelled; open calls are finished first.
    ///
    /// # Errors
    /// The transport failed.
    pub async fn serve_with_incoming<I, IO, E>(self, incoming: I) -> anyhow::Result<()>
    where
        I: Stream<Item = Result<IO, E>> + Send + 'static,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
        IO::ConnectInfo: Clone + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let stop = self.tasks.cancelled();
        let served = self
            .router(None)?
            .serve_with_incoming_shutdown(incoming, stop)
            .await;
        served.context("authz: the gRPC server failed")
    }

    /// Binds, then serves in a task. Returns the address, which is the asked one but for port 0.
    ///
    /// # Errors
    /// The address cannot be bound, or is not loopback and `tls` is missing, or `tls` cannot be used.
    pub async fn bind(self, address: SocketAddr, tls: Option<Tls>) -> anyhow::Result<SocketAddr> {
        if tls.is_none() && !address.ip().is_loopback() {
            return Err(crate::args::ArgsError::TlsRequired.into());
        }
        let router = self.router(tls)?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("authz: cannot bind {address}"))?;
        let bound = listener.local_addr().context("authz: no local address")?;
        let stop = self.tasks.cancelled();
        self.tasks.spawn("authz server", async move {
            let served = router
                .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop)
                .await;
            if let Err(error) = served {
                tracing::error!(%error, "the gRPC server failed");
            }
        });
        Ok(bound)
    }

    fn router(&self, tls: Option<Tls>) -> anyhow::Result<Router> {
        let mut server = Server::builder().tcp_nodelay(true);
        if let Some(tls) = tls {
            let config = ServerTlsConfig::new()
                .identity(Identity::from_pem(tls.certificate, tls.key))
                .client_ca_root(Certificate::from_pem(tls.client_ca));
            server = server
                .tls_config(config)
                .context("authz: the TLS files cannot be used")?;
        }
        let service =
            AuthzServiceServer::new(self.service.clone()).max_decoding_message_size(REQUEST_BYTES_MAX);
        let settings =
            TableServiceServer::new(self.settings.clone()).max_decoding_message_size(SETTINGS_BYTES_MAX);
        Ok(server.add_service(service).add_service(settings))
    }
}

/// Starts authz: checks the arguments, binds, and serves in tasks.
///
/// # Errors
/// See [`AuthzArgs::tls`] and [`AuthzServer::bind`].
pub async fn run(
    args: &AuthzArgs,
    catalog: Catalog,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<SocketAddr> {
    let tls = args.tls()?;
    let bound = AuthzServer::new(catalog, &args.limits, metrics, tasks)
        .bind(args.authz_addr, tls)
        .await?;
    tracing::info!(address = %bound, "authz serves");
    Ok(bound)
}
