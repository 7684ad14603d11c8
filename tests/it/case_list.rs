//! `tests/cases.toml` tells the truth: what it says is held has a test of that name, what waits
//! for a feature is still waiting for it, and no test names a case that is not listed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    features: BTreeMap<String, PathBuf>,
    cases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    about: String,
    /// Would be a leak or a loss of data.
    #[serde(default)]
    severe: bool,
    waits_for: Option<String>,
    /// The part that waits; the other parts are held now.
    rest: Option<String>,
}

#[test]
fn every_case_is_held_or_waits_for_a_feature_that_is_not_there_yet() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let list: List =
        toml::from_str(&std::fs::read_to_string(root.join("tests/cases.toml")).unwrap()).unwrap();
    let held = ids_of_tests(root);
    let mut wrong = Vec::new();
    for (id, case) in &list.cases {
        let what = format!("{id} ({})", case.about);
        let waits = case.waits_for.is_some() && case.rest.is_none();
        if !waits && !held.contains(id) {
            wrong.push(format!("{what}: no test's name begins with its id"));
        }
        if let Some(feature) = &case.waits_for {
            match list.features.get(feature) {
                None => wrong.push(format!("{what}: {feature} is not among the features")),
                Some(path) if root.join(path).exists() => {
                    let severe = if case.severe { " (severe)" } else { "" };
                    wrong.push(format!(
                        "{what}: {feature} is there{severe}; test what waited and drop the mark"
                    ));
                }
                Some(_) => {}
            }
        }
    }
    for id in held.iter().filter(|id| !list.cases.contains_key(*id)) {
        wrong.push(format!("{id}: a test names it, but it is not listed"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The ids that names of tests begin with, in all three languages.
fn ids_of_tests(root: &Path) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for folder in ["crates", "tests"] {
        walk(&root.join(folder), &mut |path| {
            let begins: &[&str] = match path.extension().and_then(|e| e.to_str()) {
                Some("rs") => &["fn "],
                Some("mjs") => &["test('", "test(`", "test(\""],
                Some("py") => &["def test_"],
                _ => return,
            };
            let text = std::fs::read_to_string(path).unwrap();
            for begin in begins {
                ids.extend(text.split(begin).skip(1).filter_map(id_at_start));
            }
        });
    }
    ids
}

/// The text of every source file.
pub fn sources(root: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for folder in ["crates", "tests"] {
        walk(&root.join(folder), &mut |path| {
            if matches!(
                path.extension().and_then(|e| e.to_str()),
                Some("rs" | "mjs" | "py")
            ) {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        });
    }
    texts
}

/// `A07` of `a07_…` or `A07 …`.
fn id_at_start(name: &str) -> Option<String> {
    let bytes = name.as_bytes();
    let is_id = bytes.len() > 3
        && bytes[0].is_ascii_alphabetic()
        && bytes[1..3].iter().all(u8::is_ascii_digit)
        && matches!(bytes[3], b'_' | b' ');
    is_id.then(|| name[..3].to_ascii_uppercase())
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("node_modules") || path.ends_with("__pycache__") {
            continue;
        }
        if path.is_dir() {
            walk(&path, visit);
        } else {
            visit(&path);
        }
    }
}
