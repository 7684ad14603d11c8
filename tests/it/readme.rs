//! What the README says is so.

use crate::config_table;

#[test]
fn n03_the_configuration_table_is_what_the_services_take() {
    let readme = include_str!("../../README.md");
    let renewed = config_table::renew(readme).expect("README.md has no place for the table");
    assert!(
        readme == renewed,
        "README.md: the configuration table is out of date: run `make readme`"
    );
}

/// Each statement of the documentation has a test, and the test is there.
#[test]
fn every_statement_of_the_documentation_is_held_by_a_test() {
    let readme = include_str!("../../README.md");
    let table = readme
        .split_once("<!-- contract -->")
        .and_then(|(_, rest)| rest.split_once("<!-- end of contract -->"))
        .expect("README.md has no table of statements")
        .0;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let sources = crate::case_list::sources(root);
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut statements = 0;
    for row in rows.filter(|row| !row.starts_with("| ---")) {
        statements += 1;
        let (_, tests) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let names: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            let forms = [
                format!("fn {name}("),
                format!("test('{name}'"),
                format!("def {name}("),
            ];
            let found = sources
                .iter()
                .any(|text| forms.iter().any(|form| text.contains(form)));
            assert!(found, "no test has the name {name:?}: {row}");
        }
    }
    assert!(statements > 40, "only {statements} statements");
}
