//! The `anvilbase` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    anvilbase_cli::main()
}
