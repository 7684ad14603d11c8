use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const LIMITS: FetchLimits = FetchLimits {
    bytes_max: 64,
    deadline: Duration::from_millis(400),
};

/// Answers one request with these bytes and, where `stays`, keeps the connection open. Gives the
/// address and what was asked.
async fn server(answer: String, stays: bool) -> (FetchUrl, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = crate::tasks::Tasks::new().spawn("server", async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        if stays {
            // Until the client leaves.
            let _ = stream.read_u8().await;
        }
        String::from_utf8(request).unwrap()
    });
    let url = format!("http://127.0.0.1:{port}/keys?a=b").parse().unwrap();
    (url, served)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_document_is_fetched_and_the_connection_given_up() {
    for stays in [false, true] {
        let (url, served) = server(ok("{}"), stays).await;
        assert_eq!(&get(&url, None, LIMITS).await.unwrap()[..], b"{}");
        let request = served.await.unwrap();
        assert!(request.starts_with("GET /keys?a=b HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("host: 127.0.0.1:"), "{request}");
    }
}

#[tokio::test]
async fn neither_redirects_nor_large_nor_slow_answers_are_taken() {
    let at_limit = "x".repeat(64);
    let (url, _served) = server(ok(&at_limit), false).await;
    assert_eq!(get(&url, None, LIMITS).await.unwrap().len(), 64);
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n41\r\n{at_limit}x\r\n0\r\n\r\n");
    for (answer, expected) in [
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "status 302",
        ),
        (
            "HTTP/1.1 503 No\r\ncontent-length: 6\r\n\r\nsecret".to_owned(),
            "status 503",
        ),
        (ok(&format!("{at_limit}x")), "larger than 64 bytes"),
        (chunked, "larger than 64 bytes"),
        ("secret\r\n\r\n".to_owned(), "not HTTP"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 64\r\n\r\nsecret".to_owned(),
            "no document within",
        ),
    ] {
        let (url, _served) = server(answer, true).await;
        let error = get(&url, None, LIMITS).await.unwrap_err();
        let shown = format!("{error} {error:?} {url:?}");
        assert!(shown.contains(expected), "{shown}");
        assert!(!shown.contains("secret") && !shown.contains("a=b"), "{shown}");
    }
}

#[test]
fn only_https_and_this_machine_may_be_named() {
    for good in [
        "https://id.example/.well-known/jwks.json",
        "https://id.example:8443/k?x=1",
        "http://localhost:80/k",
        "http://127.0.0.1/k",
        "http://127.9.9.9:1/k",
        "http://[::1]:8080/k",
    ] {
        assert!(good.parse::<FetchUrl>().is_ok(), "{good}");
    }
    for bad in [
        "",
        "id.example",
        "/keys",
        "http://id.example/k",
        "http://localhost.example/k",
        "http://127.0.0.1.example/k",
        "http://10.0.0.1/k",
        "http://[::2]/k",
        "http://localhost@id.example/k",
        "https://user:pw@id.example/k",
        "file:///etc/passwd",
        "ftp://localhost/k",
    ] {
        assert!(bad.parse::<FetchUrl>().is_err(), "{bad}");
    }
}

/// An https server of this machine's name, and the authority that its certificate is from.
async fn secure_server() -> (u16, std::path::PathBuf) {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../realtime-authz/tests/it/tls");
    let chain = CertificateDer::pem_file_iter(folder.join("server.pem")).unwrap();
    let chain: Vec<_> = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    // 127.0.0.2 leads here too, and is not in the certificate.
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    crate::tasks::Tasks::new().spawn("server", async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Whoever does not believe the certificate ends the handshake.
            if let Ok(mut stream) = acceptor.accept(stream).await {
                stream.write_all(ok("{}").as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
    (port, folder.join("authority.pem"))
}

#[tokio::test]
async fn a_certificate_is_believed_by_its_authority_and_name_only() {
    let (port, authority) = secure_server().await;
    let named = |host: &str| format!("https://{host}:{port}/keys").parse::<FetchUrl>().unwrap();
    let got = get(&named("localhost"), Some(&authority), LIMITS).await;
    assert_eq!(&got.unwrap()[..], b"{}");
    let stranger = get(&named("localhost"), None, LIMITS).await;
    assert!(matches!(stranger, Err(FetchError::Tls(_))), "{stranger:?}");
    let other_name = get(&named("127.0.0.2"), Some(&authority), LIMITS).await;
    assert!(matches!(other_name, Err(FetchError::Tls(_))), "{other_name:?}");
    let no_file = get(&named("localhost"), Some(Path::new("/nowhere.pem")), LIMITS).await;
    assert!(matches!(no_file, Err(FetchError::Setup(_))), "{no_file:?}");
}
