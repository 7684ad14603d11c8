//! Writing to standard output.

use std::io::Write as _;

/// Writes a text to standard output, all at once.
///
/// # Errors
/// Nobody reads it.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
