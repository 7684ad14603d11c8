//! Writes the configuration table into the README: `make readme`.

#[path = "../it/config_table.rs"]
mod config_table;

fn main() -> anyhow::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(path)?;
    let renewed = config_table::renew(&readme)
        .ok_or_else(|| anyhow::anyhow!("README.md has no place for the table"))?;
    std::fs::write(path, renewed)?;
    Ok(())
}
