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
