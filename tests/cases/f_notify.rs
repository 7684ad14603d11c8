//! What NOTIFY does to those who build on it. The rest of this group is in the listener's own tests.

use std::path::Path;

use realtime_core::id::ProjectId;
use realtime_tests::world::{Who, World, binding};

/// Nothing that anybody can name ever comes into LISTEN or NOTIFY, nor into any statement but as a parameter or quoted.
#[tokio::test]
async fn f06_no_name_is_pasted_into_a_statement() {
    for hostile in [
        "x\"; drop table notes; --",
        "X",
        "a b",
        "a.b",
        "a*",
        "_cluster",
        "é",
        "",
        &"x".repeat(64),
    ] {
        assert!(ProjectId::parse(hostile).is_err(), "{hostile:?}");
    }
    // LISTEN is said in one place, by the database itself and of a name that it has made up.
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates"));
    let mut said = Vec::new();
    for file in sources(crates) {
        let text = std::fs::read_to_string(&file).unwrap().to_lowercase();
        for line in text.lines().map(str::trim) {
            let spoken = ["'listen ", "\"listen ", "'notify ", "\"notify "];
            if spoken.iter().any(|spoken| line.contains(spoken)) && !line.starts_with("//") {
                said.push(format!("{}: {line}", file.file_name().unwrap().to_str().unwrap()));
            }
        }
    }
    assert_eq!(
        said,
        ["feed.sql: execute format('listen %i', v_settings.channel);"]
    );

    // Names that would be statements, and names that differ by case alone, are names.
    let world = World::start().await;
    let hostile = "t\"; drop table sentinel; --";
    world
        .run(
            "create table \"t\"\"; drop table sentinel; --\" (id int primary key); create table \"Notes\" (id int primary key)",
        )
        .await;
    let bindings = [
        binding("*", hostile),
        binding("*", "Notes"),
        binding("*", "notes"),
    ];
    let mut service = world.subscriber(&Who::service(), &bindings).await;
    world
        .run("insert into \"t\"\"; drop table sentinel; --\" values (1); insert into \"Notes\" values (2); insert into notes (id) values (3)")
        .await;
    let tables: Vec<_> = world
        .changes(&mut service)
        .await
        .iter()
        .map(|change| change["table"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(tables, [hostile, "Notes", "notes"]);
    world.stop().await;
}

/// The services' own code: not their tests.
fn sources(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && !["tests", "target", "gen"].contains(&name.as_str()) {
            found.extend(sources(&path));
        } else if name != "tests.rs" && (name.ends_with(".rs") || name.ends_with(".sql")) {
            found.push(path);
        }
    }
    found.sort();
    found
}
