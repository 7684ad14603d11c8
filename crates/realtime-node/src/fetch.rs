//! One small exchange over HTTP: a key set is fetched, or a management API is called.
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
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
pub use hyper::Method;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::secret::Secret;
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

/// What is asked of an API.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The method.
    pub method: Method,
    /// Who asks: sent as `Authorization: Bearer`.
    pub token: &'a Secret,
    /// JSON to send along.
    pub body: Option<String>,
}

/// What an API answered, whatever its status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
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
    /// The token has a character that no header can carry.
    #[error("the key: has a character that cannot be sent")]
    Token,
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
pub(crate) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl FetchUrl {
    /// The host's name, for logs: the rest may hold a secret.
    pub fn host(&self) -> &str {
        &self.host
    }

    fn request(&self, method: Method) -> Builder {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, authority)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, "anvilbase-realtime")
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
    let request = url.request(Method::GET).body(Full::default());
    let (_, body) = connected(url, ca_file, limits, request, Some(StatusCode::OK)).await?;
    Ok(body)
}

/// Calls an API. `ca_file`: the authorities that are believed, the system's without one.
///
/// # Errors
/// There is no answer of the allowed size in time, or the token cannot be sent in a header.
pub async fn call(
    url: &FetchUrl,
    call: Call<'_>,
    ca_file: Option<&Path>,
    limits: FetchLimits,
) -> Result<Answer, FetchError> {
    let bearer = HeaderValue::from_str(&format!("Bearer {}", call.token.expose()));
    let mut bearer = bearer.map_err(|_| FetchError::Token)?;
    bearer.set_sensitive(true);
    let mut request = url.request(call.method).header(AUTHORIZATION, bearer);
    if call.body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::from(call.body.unwrap_or_default()));
    let (status, body) = connected(url, ca_file, limits, request, None).await?;
    Ok(Answer {
        status: status.as_u16(),
        body,
    })
}

async fn connected(
    url: &FetchUrl,
    ca_file: Option<&Path>,
    limits: FetchLimits,
    request: Result<Request<Full<Bytes>>, hyper::http::Error>,
    wanted: Option<StatusCode>,
) -> Result<(StatusCode, Bytes), FetchError> {
    let request = request.map_err(|_| FetchError::Protocol)?;
    let exchange = async {
        let connected = TcpStream::connect((&*url.host, url.port)).await;
        let stream = connected.map_err(|error| FetchError::Connect(error.kind()))?;
        if !url.tls {
            return exchange(stream, request, limits.bytes_max, wanted).await;
        }
        let config = client_config(ca_file).map_err(FetchError::Setup)?;
        let name = ServerName::try_from(url.host.to_string()).map_err(|_| FetchError::Protocol)?;
        let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let stream = connected.map_err(|error| tls_error(&error))?;
        exchange(stream, request, limits.bytes_max, wanted).await
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
    request: Request<Full<Bytes>>,
    bytes_max: usize,
    wanted: Option<StatusCode>,
) -> Result<(StatusCode, Bytes), FetchError> {
    let protocol = |_| FetchError::Protocol;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(protocol)?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(protocol)?;
        let status = response.status();
        if wanted.is_some_and(|wanted| wanted != status) {
            return Err(FetchError::Status(status));
        }
        match Limited::new(response.into_body(), bytes_max).collect().await {
            Ok(body) => Ok((status, body.to_bytes())),
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
