//! The committed code is what `proto/` says.

mod generate;

#[test]
fn generated_code_is_fresh() {
    let out = tempfile::tempdir().unwrap();
    generate::generate(out.path()).unwrap();
    for entry in std::fs::read_dir(out.path()).unwrap() {
        let entry = entry.unwrap();
        let committed =
            std::fs::read_to_string(generate::committed_dir().join(entry.file_name())).unwrap_or_default();
        let fresh = std::fs::read_to_string(entry.path()).unwrap();
        assert!(
            committed == fresh,
            "{:?} is not what proto/ gives: run `make proto`",
            entry.file_name()
        );
    }
}
