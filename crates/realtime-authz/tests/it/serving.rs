//! The service over its transports.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use realtime_authz::{AuthzArgs, AuthzServer};
use realtime_core::change::Position;
use realtime_node::metrics::Metrics;
use realtime_proto::v1;
use realtime_proto::v1::authz_service_client::AuthzServiceClient;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::fixture::*;

const T: &str = "create table t(id int primary key, owner uuid); alter table t enable row level security; \
     create policy p on t for select to authenticated using (owner = auth.uid());";

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    authz: AuthzArgs,
}

async fn verdicts(client: &mut AuthzServiceClient<Channel>, request: v1::CheckRequest) -> Vec<Seen> {
    client
        .check(request)
        .await
        .unwrap()
        .into_inner()
        .verdicts
        .into_iter()
        .map(Seen::from)
        .collect()
}

#[tokio::test]
async fn serves_over_tcp_and_drains() {
    let db = Fixture::start().await;
    db.run(T).await;
    let event = db.change(&format!("insert into t values (1, '{U1}')")).await;
    let group = db.tasks.child();
    let args = Cli::parse_from(["authz", "--authz-addr", "127.0.0.1:0"]).authz;
    let bound = realtime_authz::run(&args, db.catalog.clone(), &Metrics::new(), &group)
        .await
        .unwrap();
    let mut client = AuthzServiceClient::connect(format!("http://{bound}"))
        .await
        .unwrap();
    let request = v1::CheckRequest {
        project: "app".into(),
        event: Some((&event).into()),
        subjects: vec![user(U1), user(U2)],
        facts: Some(Position::default().into()),
    };
    assert_eq!(verdicts(&mut client, request.clone()).await, [WHOLE, HIDDEN]);
    assert!(group.drain(Duration::from_secs(10)).await, "tasks were left");
    assert!(client.check(request).await.is_err());
}

#[tokio::test]
async fn serves_in_process_over_a_stream() {
    let db = Fixture::start().await;
    db.run(T).await;
    let event = db.change(&format!("insert into t values (1, '{U1}')")).await;
    let group = db.tasks.child();
    let server = AuthzServer::new(db.catalog.clone(), &limits(), &Metrics::new(), &group);
    let (near, far) = tokio::io::duplex(64 * 1024);
    let incoming = tokio_stream::once(Ok::<_, std::io::Error>(far));
    // The stream of connections must not end: that would be the server's end.
    let incoming = futures_util::StreamExt::chain(incoming, futures_util::stream::pending());
    group.spawn("in-process server", server.serve_with_incoming(incoming));
    let mut near = Some(hyper_util::rt::TokioIo::new(near));
    let channel = Endpoint::from_static("http://authz")
        .connect_with_connector(tower::service_fn(move |_| {
            let near = near.take();
            async move { near.ok_or_else(|| std::io::Error::other("one connection only")) }
        }))
        .await
        .unwrap();
    let mut client = AuthzServiceClient::new(channel);
    let request = v1::CheckRequest {
        project: "app".into(),
        event: Some((&event).into()),
        subjects: vec![user(U1)],
        facts: None,
    };
    assert_eq!(verdicts(&mut client, request).await, [WHOLE]);
}

#[tokio::test]
async fn a_call_that_is_not_well_formed_is_refused_as_a_whole() {
    let db = Fixture::start().await;
    db.run(T).await;
    let event = db.change(&format!("insert into t values (1, '{U1}')")).await;
    use realtime_proto::v1::authz_service_server::AuthzService as _;
    let good = v1::CheckRequest {
        project: "app".into(),
        event: Some((&event).into()),
        subjects: vec![user(U1)],
        facts: None,
    };
    let mut unmarked = good.clone();
    unmarked.event.as_mut().unwrap().operation = 0;
    let refused = [
        (
            v1::CheckRequest {
                project: "Not An Id".into(),
                ..good.clone()
            },
            Code::InvalidArgument,
            "project id",
        ),
        (
            v1::CheckRequest {
                project: "other".into(),
                ..good.clone()
            },
            Code::NotFound,
            "project",
        ),
        (
            v1::CheckRequest {
                event: None,
                ..good.clone()
            },
            Code::InvalidArgument,
            "event",
        ),
        (unmarked, Code::InvalidArgument, "operation"),
        (
            v1::CheckRequest {
                subjects: vec![user(U1); 257],
                ..good.clone()
            },
            Code::InvalidArgument,
            "subjects: at most 256",
        ),
    ];
    for (request, code, text) in refused {
        let status = db.authz.check(tonic::Request::new(request)).await.unwrap_err();
        assert_eq!(status.code(), code, "{text}");
        assert!(status.message().contains(text), "{}", status.message());
        assert!(!status.message().contains("Not An Id"));
    }
    let none = v1::CheckRequest {
        subjects: vec![],
        ..good
    };
    assert!(
        db.authz
            .check(tonic::Request::new(none))
            .await
            .unwrap()
            .into_inner()
            .verdicts
            .is_empty()
    );
}

#[tokio::test]
async fn an_address_that_others_can_reach_needs_mutual_tls() {
    let db = Fixture::start().await;
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let args = Cli::parse_from(["authz", "--authz-addr", "0.0.0.0:0"]).authz;
    let refused = realtime_authz::run(&args, db.catalog.clone(), &Metrics::new(), &db.tasks)
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("ANVILBASE_REALTIME_AUTHZ_TLS_CERT_FILE"),
        "{refused}"
    );
    let server = AuthzServer::new(db.catalog.clone(), &limits(), &Metrics::new(), &db.tasks);
    assert!(server.bind(everywhere, None).await.is_err());
    let some = ["authz", "--authz-tls-cert-file", "/nowhere"];
    assert!(
        Cli::parse_from(some)
            .authz
            .tls()
            .is_err_and(|error| error.to_string().contains("all three or none"))
    );
}

fn tls_file(name: &str) -> String {
    format!("{}/tests/it/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test]
async fn with_mutual_tls_only_the_authoritys_clients_are_served() {
    let db = Fixture::start().await;
    db.run(T).await;
    let event = db.change(&format!("insert into t values (1, '{U1}')")).await;
    let files = [
        tls_file("server.pem"),
        tls_file("server.key"),
        tls_file("authority.pem"),
    ];
    let args = Cli::parse_from([
        "authz",
        "--authz-addr=0.0.0.0:0",
        &format!("--authz-tls-cert-file={}", files[0]),
        &format!("--authz-tls-key-file={}", files[1]),
        &format!("--authz-tls-client-ca-file={}", files[2]),
    ]);
    let bound = realtime_authz::run(&args.authz, db.catalog.clone(), &Metrics::new(), &db.tasks)
        .await
        .unwrap();
    let request = v1::CheckRequest {
        project: "app".into(),
        event: Some((&event).into()),
        subjects: vec![user(U1)],
        facts: None,
    };
    let ask = async |name: Option<&str>| {
        let read = |name: &str| std::fs::read(tls_file(name)).unwrap();
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read("authority.pem")))
            .domain_name("localhost");
        if let Some(name) = name {
            tls = tls.identity(Identity::from_pem(
                read(&format!("{name}.pem")),
                read(&format!("{name}.key")),
            ));
        }
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", bound.port()))
            .unwrap()
            .tls_config(tls)
            .unwrap();
        // A client that is turned away may only learn of it with its first call.
        let channel = endpoint.connect().await.map_err(drop)?;
        AuthzServiceClient::new(channel)
            .check(request.clone())
            .await
            .map(drop)
            .map_err(drop)
    };
    assert!(ask(Some("gateway")).await.is_ok());
    assert!(ask(Some("intruder")).await.is_err());
    assert!(ask(None).await.is_err());
    let plain = Endpoint::from_shared(format!("http://127.0.0.1:{}", bound.port())).unwrap();
    let refused = match plain.connect().await {
        Ok(channel) => AuthzServiceClient::new(channel)
            .check(request.clone())
            .await
            .is_err(),
        Err(_) => true,
    };
    assert!(refused);
    assert!(ask(Some("gateway")).await.is_ok());
}

#[test]
fn defaults_are_the_same_with_and_without_clap() {
    let parsed = Cli::parse_from(["authz"]).authz.limits;
    assert_eq!(
        format!("{parsed:?}"),
        format!("{:?}", realtime_authz::LimitArgs::default())
    );
}
