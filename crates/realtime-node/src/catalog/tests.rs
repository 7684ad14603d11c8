use super::*;

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn reads_one_project_per_file() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "prj-a.toml",
        "listen = \"always\"\n[tokens]\njwt_secret = \"s3cret\"\n",
    );
    write(
        folder.path(),
        "prj-b.toml",
        "roles = [\"anon\"]\n[database]\nlistener_dsn = \"postgresql://l:pw@h/d\"\n",
    );
    write(folder.path(), "notes.txt", "not a project");
    let catalog = Catalog::load(folder.path()).unwrap();
    let a = catalog.get(&ProjectId::parse("prj-a").unwrap()).unwrap();
    assert_eq!(a.listen, Listen::Always);
    assert!(a.allows_role(&Role::new("service_role")) && !a.allows_role(&Role::new("postgres")));
    assert_eq!(a.tokens.as_ref().unwrap().jwt_secret.expose(), "s3cret");
    let b = catalog.get(&ProjectId::parse("prj-b").unwrap()).unwrap();
    assert!(!b.allows_role(&Role::new("authenticated")) && b.tokens.is_none());
    assert_eq!(catalog.projects().len(), 2);
    let shown = format!("{catalog:?}");
    assert!(!shown.contains("s3cret") && !shown.contains("pw"), "{shown}");
}

#[test]
fn mistakes_are_named_without_the_value() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "Bad_Name.toml", "");
    assert!(matches!(Catalog::load(folder.path()), Err(CatalogError::Name(_))));
    std::fs::remove_file(folder.path().join("Bad_Name.toml")).unwrap();
    for (text, rule) in [
        ("[tokens]\njwt_secret = \"hunter2\n", "line 2"),
        ("[tokens]\njwt_secrets = \"hunter2\"\n", "expected `jwt_secret`"),
        ("[tokens]\njwt_secret = [\"hunter2\"]\n", "expected a string"),
        ("[tokens]\n", "missing field `jwt_secret`"),
        ("tokens = \"hunter2\"\n", "line 1"),
        ("roles = \"hunter2, expected hunter2\"\n", "expected a sequence"),
        ("listen = \"hunter2\"\n", "expected `demand` or `always`"),
        ("listen = hunter2\n", "line 1"),
        ("hunter2 = 1\n", "expected one of `listen`"),
        ("hunter2\n", "line 1"),
        ("listen = \"always\"\nlisten = \"hunter2\"\n", "line 2"),
        (
            "[database]\nlistener_dsn = \"postgresql://l:hunter2@h:x/d\"\n",
            "connection string: cannot be parsed",
        ),
    ] {
        write(folder.path(), "prj.toml", text);
        let error = Catalog::load(folder.path()).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("prj.toml") && shown.contains(rule), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_folder_is_read_again_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "prj-a.toml", "");
    let tasks = Tasks::new();
    let catalog = Catalog::watch(folder.path().to_owned(), Duration::from_secs(1), &tasks).unwrap();
    let mut changed = catalog.changed();
    write(folder.path(), "prj-b.toml", "roles = [\"anon\"]");
    changed.changed().await.unwrap();
    assert_eq!(catalog.projects().len(), 2);
    write(folder.path(), "prj-c.toml", "no such thing = 1");
    write(folder.path(), "prj-d.toml", "roles = [\"anon\"]");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(catalog.projects().len(), 2);
    std::fs::remove_file(folder.path().join("prj-c.toml")).unwrap();
    changed.changed().await.unwrap();
    assert_eq!(catalog.projects().len(), 3);
    assert!(tasks.drain(Duration::from_secs(1)).await);
}
