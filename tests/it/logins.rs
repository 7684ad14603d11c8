//! The logins of a server, which every project on it has in common.

use std::path::Path;

use realtime_node::catalog::Catalog;
use realtime_node::postgres::{PgOptions, connect};
use realtime_testkit::postgres::Postgres;
use realtime_testkit::process::Process;

async fn provision(url: &str, project: &str, folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let folder = folder.to_str().unwrap();
    let mut args = vec![
        "realtime",
        "provision",
        "--project",
        project,
        "--write-database-file",
        folder,
    ];
    args.extend_from_slice(more);
    let mut cli = Process::start("anvilbase", &args, &[("DATABASE_URL", url)]);
    let code = cli.wait().await;
    (code, cli.log())
}

async fn lets_in(folder: &Path, project: &str) -> bool {
    let catalog = Catalog::load(folder).unwrap();
    let id = realtime_core::id::ProjectId::parse(project).unwrap();
    let Some(config) = catalog.get(&id) else {
        return false;
    };
    let dsn = config.database.as_ref().unwrap().listener_dsn.clone().unwrap();
    connect(&dsn, &PgOptions::new("logins test")).await.is_ok()
}

#[tokio::test]
async fn provisioning_a_second_project_does_not_shut_out_the_first_unless_told_to() {
    let postgres = Postgres::start().await;
    postgres.create_database("one").await;
    postgres.create_database("two").await;
    let [one, two] = ["one", "two"].map(|name| postgres.server.superuser_url(name));
    let folder = tempfile::tempdir().unwrap();
    let (code, log) = provision(&one, "one", folder.path(), &[]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(lets_in(folder.path(), "one").await);

    let (code, log) = provision(&two, "two", folder.path(), &[]).await;
    assert!(code != Some(0) && log.contains("--take-logins"), "{log}");
    assert!(lets_in(folder.path(), "one").await && !lets_in(folder.path(), "two").await);

    let (code, log) = provision(&two, "two", folder.path(), &["--take-logins"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(lets_in(folder.path(), "two").await && !lets_in(folder.path(), "one").await);
}
