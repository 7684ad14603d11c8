//! Generates the Rust code of `proto/` with a compiler written in Rust, so that nobody needs protoc.

use std::path::{Path, PathBuf};

/// The workspace's `proto` folder.
pub fn proto_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto")
}

/// Where the generated code is committed.
pub fn committed_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gen")
}

/// Generates every file of `proto/anvilbase/realtime/v1` into `out`.
pub fn generate(out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let root = proto_dir();
    let folder = root.join("anvilbase/realtime/v1");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "proto"));
    files.sort();
    let descriptors = protox::compile(&files, [&root])?;
    tonic_prost_build::configure()
        .bytes(".")
        .emit_rerun_if_changed(false)
        .out_dir(out)
        .compile_fds(descriptors)?;
    Ok(())
}
