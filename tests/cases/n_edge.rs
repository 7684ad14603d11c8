//! What operators must be able to rely on: nothing of the inside is on the edge, and no login of ours is more
//! than it needs to be.

use realtime_testkit::wait::within;
use realtime_tests::world::World;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("the answer", stream.read_to_string(&mut answer))
        .await
        .unwrap();
    answer
}

#[tokio::test]
async fn n04_metrics_and_health_are_not_on_the_edge_and_logins_are_small() {
    let world = World::start().await;
    for path in [
        "/metrics",
        "/metrics/projects",
        "/livez",
        "/readyz",
        "/debug/feeds",
        "/debug/pprof",
        "/",
    ] {
        let answer = get(world.port, path).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    let attributes = "select rolname || ' ' || concat_ws(' ',
           case when rolsuper then 'superuser' end, case when rolcreaterole then 'createrole' end,
           case when rolcreatedb then 'createdb' end, case when rolreplication then 'replication' end,
           case when rolbypassrls then 'bypassrls' end, case when rolcanlogin then 'login' end)
         from pg_roles where rolname like 'anvilbase%' or rolname in ('anon', 'authenticated', 'service_role')
         order by rolname";
    let roles = world.column(attributes).await;
    assert_eq!(
        roles,
        [
            "anon ",
            "anvilbase_realtime_listener login",
            "anvilbase_realtime_owner ",
            "anvilbase_realtime_printer ",
            "anvilbase_realtime_prober login",
            "anvilbase_realtime_service login",
            "authenticated ",
            "service_role bypassrls",
        ]
    );
    world.stop().await;
}
