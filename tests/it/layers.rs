//! The workspace's layers: a crate depends on lower layers only, never sideways, and what only
//! some crates may name stays with them.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Who may depend on which of our crates, and with dev-dependencies on the testkit besides.
const ALLOWED: &[(&str, &[&str])] = &[
    ("realtime-core", &[]),
    ("realtime-proto", &["realtime-core"]),
    ("realtime-node", &["realtime-core"]),
    (
        "realtime-listener",
        &["realtime-core", "realtime-proto", "realtime-node"],
    ),
    (
        "realtime-authz",
        &["realtime-core", "realtime-proto", "realtime-node"],
    ),
    (
        "realtime-gateway",
        &["realtime-core", "realtime-proto", "realtime-node"],
    ),
    (
        "realtime-testkit",
        &["realtime-core", "realtime-proto", "realtime-node"],
    ),
    (
        "anvilbase-cli",
        &[
            "realtime-core",
            "realtime-proto",
            "realtime-node",
            "realtime-listener",
            "realtime-authz",
            "realtime-gateway",
        ],
    ),
];

/// Crates that only some of ours may name, with those that may.
const RESERVED: &[(&str, &[&str])] = &[
    (
        "tokio-postgres",
        &[
            "realtime-node",
            "realtime-listener",
            "realtime-authz",
            "realtime-testkit",
            "realtime-tests",
        ],
    ),
    (
        "jsonwebtoken",
        &["realtime-gateway", "realtime-testkit", "anvilbase-cli"],
    ),
    ("async-nats", &["realtime-node"]),
    (
        "tonic",
        &[
            "realtime-proto",
            "realtime-authz",
            "realtime-gateway",
            "anvilbase-cli",
        ],
    ),
];

fn metadata() -> Metadata {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    MetadataCommand::new()
        .manifest_path(manifest)
        .other_options(["--locked".to_owned()])
        .exec()
        .unwrap()
}

fn names(package: &Package, kind: DependencyKind) -> BTreeSet<&str> {
    package
        .dependencies
        .iter()
        .filter(|d| d.kind == kind)
        .map(|d| d.name.as_str())
        .collect()
}

#[test]
fn crates_depend_on_lower_layers_only() {
    let metadata = metadata();
    let ours: BTreeMap<_, _> = metadata
        .workspace_packages()
        .into_iter()
        .map(|package| (package.name.to_string(), package))
        .collect();
    let known: BTreeSet<_> = ALLOWED
        .iter()
        .map(|(name, _)| *name)
        .chain(["realtime-tests"])
        .collect();
    assert_eq!(
        ours.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        known,
        "a crate without a layer"
    );
    for (name, allowed) in ALLOWED {
        for dependency in names(ours[*name], DependencyKind::Normal) {
            if ours.contains_key(dependency) {
                assert!(
                    allowed.contains(&dependency),
                    "{name} must not depend on {dependency}"
                );
            }
        }
        for dependency in names(ours[*name], DependencyKind::Development) {
            if ours.contains_key(dependency) {
                let fine = dependency == "realtime-testkit" || allowed.contains(&dependency);
                assert!(fine, "tests of {name} must not depend on {dependency}");
            }
        }
    }
}

#[test]
fn reserved_crates_stay_with_their_owners() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        for (reserved, owners) in RESERVED {
            if names(package, DependencyKind::Normal).contains(reserved) {
                assert!(
                    owners.contains(&package.name.as_str()),
                    "{} must not name {reserved}",
                    package.name
                );
            }
        }
    }
}

#[test]
fn core_has_neither_a_runtime_nor_a_client() {
    let metadata = metadata();
    let nodes: BTreeMap<_, _> = metadata
        .resolve
        .as_ref()
        .unwrap()
        .nodes
        .iter()
        .map(|node| (&node.id, node))
        .collect();
    let core = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == "realtime-core")
        .unwrap();
    let mut open = vec![&core.id];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in &nodes[id].deps {
            if dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal)
            {
                open.push(&dependency.pkg);
            }
        }
    }
    for package in metadata
        .packages
        .iter()
        .filter(|package| seen.contains(&package.id))
    {
        assert!(
            !["tokio", "mio", "futures-util"].contains(&package.name.as_str()),
            "core pulls {}",
            package.name
        );
    }
}
