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
        "listen = \"always\"\n[tokens]\njwt_secret = \"s3cret-s3cret-s3cret-s3cret-s3cret\"\n",
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
    let secrets = &a.tokens.as_ref().unwrap().secrets;
    assert_eq!(secrets[0].expose(), "s3cret-s3cret-s3cret-s3cret-s3cret");
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
        (
            "[tokens]\njwt_secrets = \"hunter2\"\n",
            "expected one of `jwt_secret`",
        ),
        ("[tokens]\njwt_secret = [\"hunter2\"]\n", "expected a string"),
        (
            "[tokens]\n",
            "tokens: needs jwt_secret, jwks_file, jwks_url or keys",
        ),
        (
            "[tokens]\njwt_secret = \"hunter2\"\n",
            "jwt_secret: must be at least 32 bytes",
        ),
        (
            "[tokens]\njwt_secret = \"0123456789012345678901234567890123456789\"\nprevious_jwt_secrets = [\"hunter2\"]\n",
            "previous_jwt_secrets: must be at least 32 bytes",
        ),
        (
            "[tokens]\nprevious_jwt_secrets = [\"0123456789012345678901234567890123456789\"]\n",
            "previous_jwt_secrets: needs jwt_secret",
        ),
        (
            "[tokens]\njwks_url = \"http://hunter2.example/k\"\n",
            "jwks_url: must be an https:// address",
        ),
        (
            "[tokens]\njwks_url = \"https://u:hunter2@a.example/k\"\n",
            "jwks_url: must be an https:// address",
        ),
        (
            "[tokens]\njwks_ca_file = \"hunter2\"\n",
            "jwks_ca_file: needs jwks_url",
        ),
        (
            "[tokens]\nalgorithms = [\"hunter2\"]\n",
            "algorithms: must be of HS256",
        ),
        (
            "[tokens]\nalgorithms = [\"none\"]\n",
            "algorithms: must be of HS256",
        ),
        (
            "[tokens]\nleeway_seconds = 601\n",
            "leeway_seconds: must be at most 600",
        ),
        ("[tokens]\nleeway_seconds = -1\n", "line 2"),
        (
            "[[tokens.keys]]\nrole = \"anon\"\nsha256 = \"hunter2\"\n",
            "keys[0].sha256: must be the key's SHA-256",
        ),
        (
            "[[tokens.keys]]\nrole = \"hunter2\"\nsha256 = \"\"\n",
            "keys[0].role: must be one of the project's roles",
        ),
        (
            "[[tokens.keys]]\nrole = \"anon\"\nkey = \"hunter2\"\n",
            "expected `role` or `sha256`",
        ),
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
async fn a_changed_folder_is_read_again_but_for_its_broken_files() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "prj-a.toml", "");
    let tasks = Tasks::new();
    let catalog = Catalog::watch(folder.path().to_owned(), Duration::from_secs(1), &tasks).unwrap();
    let mut changed = catalog.changed();
    write(folder.path(), "prj-b.toml", "roles = [\"anon\"]");
    changed.changed().await.unwrap();
    assert_eq!(catalog.projects().len(), 2);
    let metrics = Metrics::new();
    catalog.register(&metrics);
    let unusable = |count: u32| {
        let text = metrics.encode_process().unwrap();
        text.contains(&format!(
            "anvilbase_realtime_node_project_files_unusable {count}\n"
        ))
    };
    // Broken, whether it is new or was good before: the others count, and its own last good state.
    write(folder.path(), "prj-b.toml", "no such thing = 1");
    write(folder.path(), "prj-c.toml", "no such thing = 1");
    write(folder.path(), "prj-d.toml", "roles = [\"anon\"]");
    changed.changed().await.unwrap();
    let ids = |catalog: &Catalog| {
        let projects = catalog.projects();
        projects
            .iter()
            .map(|project| project.id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&catalog), ["prj-a", "prj-b", "prj-d"]);
    assert_eq!(
        catalog
            .get(&ProjectId::parse("prj-b").unwrap())
            .unwrap()
            .roles
            .len(),
        1
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(unusable(2));
    // Mended, and gone.
    write(
        folder.path(),
        "prj-b.toml",
        "roles = [\"anon\", \"authenticated\"]",
    );
    std::fs::remove_file(folder.path().join("prj-c.toml")).unwrap();
    std::fs::remove_file(folder.path().join("prj-d.toml")).unwrap();
    changed.changed().await.unwrap();
    assert_eq!(ids(&catalog), ["prj-a", "prj-b"]);
    assert_eq!(
        catalog
            .get(&ProjectId::parse("prj-b").unwrap())
            .unwrap()
            .roles
            .len(),
        2
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(unusable(0));
    assert!(tasks.drain(Duration::from_secs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_file_in_place_of_another_is_seen_whatever_its_time_and_size() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("prj-a.toml"), folder.path().join("other"));
    write(folder.path(), "prj-a.toml", "roles = [\"anon\"]");
    let tasks = Tasks::new();
    let catalog = Catalog::watch(folder.path().to_owned(), Duration::from_secs(1), &tasks).unwrap();
    let mut changed = catalog.changed();
    write(folder.path(), "other", "roles = [\"four\"]");
    let times = std::fs::metadata(&path).unwrap().modified().unwrap();
    let file = std::fs::File::options().write(true).open(&other).unwrap();
    file.set_modified(times).unwrap();
    std::fs::rename(&other, &path).unwrap();
    changed.changed().await.unwrap();
    let project = catalog.get(&ProjectId::parse("prj-a").unwrap()).unwrap();
    assert!(project.allows_role(&Role::new("four")));
    assert!(tasks.drain(Duration::from_secs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_set_beside_a_project_is_read_and_watched() {
    let folder = tempfile::tempdir().unwrap();
    let id = ProjectId::parse("prj-a").unwrap();
    write(
        folder.path(),
        "prj-a.toml",
        "[tokens]\njwks_file = \"keys/a.json\"\n",
    );
    let missing = Catalog::load(folder.path()).unwrap_err();
    assert!(missing.to_string().contains("keys/a.json"), "{missing}");
    std::fs::create_dir(folder.path().join("keys")).unwrap();
    write(folder.path(), "keys/a.json", "{\"keys\":[]}");
    let tasks = Tasks::new();
    let catalog = Catalog::watch(folder.path().to_owned(), Duration::from_secs(1), &tasks).unwrap();
    let jwks = |catalog: &Catalog| {
        let tokens = catalog.get(&id).unwrap().tokens.clone().unwrap();
        tokens.jwks.unwrap().expose().to_owned()
    };
    assert_eq!(jwks(&catalog), "{\"keys\":[]}");
    let mut changed = catalog.changed();
    write(folder.path(), "keys/a.json", "{\"keys\":[{}]}");
    changed.changed().await.unwrap();
    assert_eq!(jwks(&catalog), "{\"keys\":[{}]}");
    // Gone for a moment, as while it is replaced: the last good state stays.
    std::fs::remove_file(folder.path().join("keys/a.json")).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(jwks(&catalog), "{\"keys\":[{}]}");
    write(folder.path(), "keys/a.json", "{\"keys\":[{},{}]}");
    changed.changed().await.unwrap();
    assert_eq!(jwks(&catalog), "{\"keys\":[{},{}]}");
    assert!(tasks.drain(Duration::from_secs(1)).await);
}
