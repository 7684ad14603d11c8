//! What becomes of a process whose log cannot be written.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use realtime_node::postgres::private::free_port;
use realtime_testkit::process::{binary, http_status};
use realtime_testkit::wait::until;

#[tokio::test]
async fn a_log_that_is_full_ends_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, authz) = (free_port().unwrap(), free_port().unwrap());
    let mut child = Command::new(binary("realtime-authz"))
        .env_clear()
        .env("ANVILBASE_REALTIME_PROJECTS_DIR", folder.path())
        .env("ANVILBASE_REALTIME_ADMIN_ADDR", format!("127.0.0.1:{admin}"))
        .env("ANVILBASE_REALTIME_AUTHZ_ADDR", format!("127.0.0.1:{authz}"))
        .env("ANVILBASE_REALTIME_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // Every write there fails for want of space.
        .stderr(OpenOptions::new().write(true).open("/dev/full").unwrap())
        .spawn()
        .unwrap();
    let child = std::cell::RefCell::new(&mut child);
    until("authz is ready", || async {
        assert_eq!(child.borrow_mut().try_wait().unwrap(), None, "it ended");
        (http_status(admin, "/readyz").await == Some(200)).then_some(())
    })
    .await;
    child.borrow_mut().kill().unwrap();
    child.borrow_mut().wait().unwrap();
}
