//! Unmodified SDKs against the services as they are deployed.

use std::path::Path;
use std::process::Stdio;

use realtime_tests::stack::{JWT_SECRET, Stack};

#[tokio::test]
async fn supabase_js_and_realtime_py_through_two_gateways() {
    let stack = Stack::start(2).await;
    let (anon, service) = (Stack::key("anon"), Stack::key("service_role"));
    for suite in ["js", "python"] {
        run_suite(&stack, suite, &anon, &service).await;
    }
    stack.stop(&[&anon, &service]).await;
}

async fn run_suite(stack: &Stack, suite: &str, anon: &str, service: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/run.sh");
    let url = |n: usize| format!("http://127.0.0.1:{}", stack.gateways[n].port);
    let output = tokio::process::Command::new(script)
        .arg(suite)
        .env("ANVILBASE_URL", url(0))
        .env("ANVILBASE_URL_2", url(1))
        .env("DATABASE_URL", stack.postgres.server.superuser_url("postgres"))
        .env("ANVILBASE_ANON_KEY", anon)
        .env("ANVILBASE_SERVICE_KEY", service)
        .env("ANVILBASE_JWT_SECRET", JWT_SECRET)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the {suite} suite failed");
}
