//! Fetching one small document over HTTP: a key set, for instance.
//!
//! Must never follow a redirect, read without a limit or a deadline, speak in clear to another
//! machine, nor repeat an address or a body in an error: either may hold a secret.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls::client_config;

/// An address that may be fetched from: `https`, or `http` on this machine.
#[derive(Clone, PartialEq, Eq)]
pub struct FetchUrl {
    uri: Uri,
    host: Box<str>,
    port: u16,
    tls: bool,
}

/// A text is no address to fetch from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an https:// address, or http:// on loopback, without a user name")]
pub struct BadUrl;

/// How much, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// Size of the document in bytes.
    pub bytes_max: usize,
    /// From the look-up of the name to the last byte.
    pub deadline: Duration,
}

/// Why a document could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// TLS cannot be set up from the given authorities.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
    /// The server cannot be reached.
    #[error("the server cannot be reached: {0}")]
    Connect(io::ErrorKind),
    /// Its certificate is not believed, or is of another name.
    #[error("TLS with the server: {0}")]
    Tls(Box<rustls::Error>),
    /// The server does not speak HTTP/1.1 to its end.
    #[error("the answer is not HTTP")]
    Protocol,
    /// The server answered with something else than 200; a redirect is not followed.
    #[error("the server answered with status {}", .0.as_u16())]
    Status(StatusCode),
    /// The document is too large.
    #[error("the document is larger than {0} bytes")]
    TooLarge(usize),
    /// It took too long.
    #[error("no document within {0:?}")]
    Deadline(Duration),
}

impl FromStr for FetchUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let uri: Uri = text.parse().map_err(|_| BadUrl)?;
        let authority = uri.authority().ok_or(BadUrl)?;
        if authority.as_str().contains('@') {
            return Err(BadUrl);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if is_loopback(host) => false,
            _ => return Err(BadUrl),
        };
        if host.is_empty() {
            return Err(BadUrl);
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self {
            host: host.into(),
            port,
            tls,
            uri,
        })
    }
}

/// Only names that cannot be made to mean another machine, but for the hosts file.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl FetchUrl {
    /// The host's name, for logs: the rest may hold a secret.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl std::fmt::Debug for FetchUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FetchUrl({})", self.host)
    }
}

/// Fetches a document with GET. `ca_file`: the authorities that are believed, the system's without one.
///
/// # Errors
/// There is no answer of status 200 and of the allowed size in time.
pub async fn get(url: &FetchUrl, ca_file: Option<&Path>, limits: FetchLimits) -> Result<Bytes, FetchError> {
    let exchange = async {
        let connected = TcpStream::connect((&*url.host, url.port)).await;
        let stream = connected.map_err(|error| FetchError::Connect(error.kind()))?;
        if !url.tls {
            return exchange(stream, url, limits.bytes_max).await;
        }
        let config = client_config(ca_file).map_err(FetchError::Setup)?;
        let name = ServerName::try_from(url.host.to_string()).map_err(|_| FetchError::Protocol)?;
        let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let stream = connected.map_err(|error| tls_error(&error))?;
        exchange(stream, url, limits.bytes_max).await
    };
    tokio::time::timeout(limits.deadline, exchange)
        .await
        .unwrap_or(Err(FetchError::Deadline(limits.deadline)))
}

fn tls_error(error: &io::Error) -> FetchError {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(inner) => FetchError::Tls(Box::new(inner.clone())),
        None => FetchError::Connect(error.kind()),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    url: &FetchUrl,
    bytes_max: usize,
) -> Result<Bytes, FetchError> {
    let protocol = |_| FetchError::Protocol;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(protocol)?;
    let authority = url.uri.authority().map_or("", |authority| authority.as_str());
    let target = url.uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::get(target)
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, "anvilbase-realtime")
        .body(Empty::<Bytes>::new())
        .map_err(|_| FetchError::Protocol)?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(protocol)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        match Limited::new(response.into_body(), bytes_max).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge(bytes_max)),
            Err(_) => Err(FetchError::Protocol),
        }
    };
    // Not a task of its own: the connection ends with the answer, or with whoever waited for it.
    tokio::pin!(connection, answered);
    let mut driven = false;
    loop {
        tokio::select! {
            answer = &mut answered => return answer,
            _ = &mut connection, if !driven => driven = true,
        }
    }
}

#[cfg(test)]
mod tests;
