//! Writing to standard output.

use std::fmt::Write as _;
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

/// A text of somebody else's, a table's name for instance, such that it moves no terminal: characters that a
/// terminal obeys, and those that turn the direction of writing, are written as JSON would escape them. JSON
/// stays the same JSON.
pub fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (c.is_control() && c != '\n') || turns {
            // Into a String: cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Rows as columns that stand below each other.
pub fn columns(rows: &[Vec<String>]) -> String {
    let wide = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
    };
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            let width = wide(at).unwrap_or_default();
            format!("{cell:<width$}")
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_moves_no_terminal() {
        assert_eq!(harmless("Örders 2"), "Örders 2");
        assert_eq!(
            harmless("a\u{1b}[2Jb\u{9b}\u{202e}\rc"),
            "a\\u001b[2Jb\\u009b\\u202e\\u000dc"
        );
    }

    #[test]
    fn columns_are_as_wide_as_what_they_hold() {
        let rows = [["TABLE", "CDC"], ["é", "on"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "TABLE  CDC\né      on\n");
    }
}
