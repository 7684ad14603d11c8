//! The example of a project's file is one, and names every key there is.

use std::path::Path;

use realtime_core::id::ProjectId;
use realtime_gateway::auth::Verifier;
use realtime_node::catalog::Catalog;

#[test]
fn the_example_of_a_project_file_can_be_used() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/projects");
    let catalog = Catalog::load(&folder).unwrap();
    let project = catalog.get(&ProjectId::parse("example").unwrap()).unwrap();
    let tokens = project.tokens.as_ref().unwrap();
    let verifier = Verifier::new(tokens, &project.roles, &[], 16_384, 32).unwrap();
    for (key, role) in [
        ("sb_publishable_example", "anon"),
        ("sb_secret_example", "service_role"),
    ] {
        assert_eq!(verifier.verify(key, 0).unwrap().claims.role().as_str(), role);
    }
    assert_eq!(tokens.secrets.len(), 2);
    assert!(tokens.jwks.is_some() && tokens.jwks_url.is_some() && tokens.jwks_ca_file.is_some());
    assert!(!tokens.algorithms.is_empty() && !tokens.issuers.is_empty() && !tokens.audiences.is_empty());
    assert_ne!(tokens.leeway_seconds, 0);
}

/// A key that the section takes and the example does not name would be a secret of the code.
#[test]
fn the_example_names_every_key() {
    let example = include_str!("../../deploy/projects/example.toml");
    // The parser lists the keys that it takes.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.toml"), "[tokens]\nx = 1\n").unwrap();
    let said = Catalog::load(folder.path()).unwrap_err().to_string();
    let keys: Vec<&str> = said.split('`').skip(1).step_by(2).collect();
    assert!(keys.len() >= 10, "{said}");
    for key in keys {
        let named =
            example.contains(&format!("\n{key} = ")) || example.contains(&format!("[[tokens.{key}]]"));
        assert!(named, "{key}");
    }
}
