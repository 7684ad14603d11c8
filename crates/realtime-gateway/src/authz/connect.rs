//! Where authz is, and how the connection to it is secured.
//!
//! Must never send claims or rows over an open network in plain text: without TLS only a loopback
//! address is accepted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Uri};

use super::Authz;

/// Arguments of the connection to authz.
#[derive(Debug, Clone, Args)]
pub struct AuthzArgs {
    /// Replicas of authz, comma separated: `http://` on loopback, `https://` elsewhere. Every gateway is given the same texts.
    #[arg(
        long,
        env = "ANVILBASE_REALTIME_AUTHZ_URLS",
        default_value = "http://127.0.0.1:50051",
        value_delimiter = ','
    )]
    pub authz_urls: Vec<String>,
    /// File with the certificate authority of authz (PEM).
    #[arg(long, env = "ANVILBASE_REALTIME_AUTHZ_CA_FILE")]
    pub authz_ca_file: Option<PathBuf>,
    /// File with this gateway's certificate towards authz (PEM).
    #[arg(long, env = "ANVILBASE_REALTIME_AUTHZ_CERT_FILE", requires = "authz_key_file")]
    pub authz_cert_file: Option<PathBuf>,
    /// File with the key of that certificate (PEM).
    #[arg(long, env = "ANVILBASE_REALTIME_AUTHZ_KEY_FILE", requires = "authz_cert_file")]
    pub authz_key_file: Option<PathBuf>,
}

impl AuthzArgs {
    /// A client whose connections are made when they are first needed, and again after a loss.
    ///
    /// # Errors
    /// A URL is not one, is plain HTTP to another host, or a file cannot be read.
    pub async fn client(&self) -> anyhow::Result<Authz> {
        let tls = self.tls().await?;
        let mut replicas = Vec::new();
        for url in &self.authz_urls {
            let uri: Uri = url.parse().context("authz URL: not a URL")?;
            let mut endpoint = Endpoint::from(uri.clone())
                .connect_timeout(Duration::from_secs(2))
                .tcp_nodelay(true)
                .http2_keep_alive_interval(Duration::from_secs(10))
                .keep_alive_timeout(Duration::from_secs(5));
            match uri.scheme_str() {
                Some("https") => {
                    endpoint = endpoint
                        .tls_config(tls.clone())
                        .context("authz TLS: not usable")?;
                }
                Some("http") if is_loopback(uri.host()) => {}
                Some("http") => bail!("authz URL: must be https:// unless the host is loopback"),
                _ => bail!("authz URL: must begin with http:// or https://"),
            }
            replicas.push((url.clone(), endpoint.connect_lazy()));
        }
        if replicas.is_empty() {
            bail!("authz URLs: at least one must be given");
        }
        Ok(Authz::new(replicas))
    }

    async fn tls(&self) -> anyhow::Result<ClientTlsConfig> {
        let mut tls = ClientTlsConfig::new();
        tls = match &self.authz_ca_file {
            Some(path) => tls.ca_certificate(Certificate::from_pem(read(path, "authz CA file").await?)),
            None => tls.with_native_roots(),
        };
        if let (Some(certificate), Some(key)) = (&self.authz_cert_file, &self.authz_key_file) {
            let certificate = read(certificate, "authz certificate file").await?;
            let key = read(key, "authz key file").await?;
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        Ok(tls)
    }
}

async fn read(path: &Path, what: &str) -> anyhow::Result<Vec<u8>> {
    tokio::fs::read(path)
        .await
        .with_context(|| format!("{what} {}: cannot be read", path.display()))
}

fn is_loopback(host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> Option<String> {
        let args = AuthzArgs {
            authz_urls: vec![url.into()],
            authz_ca_file: None,
            authz_cert_file: None,
            authz_key_file: None,
        };
        args.client().await.err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn plain_text_stays_on_this_machine() {
        for url in [
            "http://127.0.0.1:50051",
            "http://localhost:1",
            "http://[::1]:1",
            "https://authz.example:443",
        ] {
            assert_eq!(refusal(url).await, None, "{url}");
        }
        for url in [
            "http://authz.example",
            "http://127.0.0.1.example:1",
            "ftp://127.0.0.1",
            "nonsense",
        ] {
            assert!(refusal(url).await.is_some(), "{url}");
        }
    }
}
