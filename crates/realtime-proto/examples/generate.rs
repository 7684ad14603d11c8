//! Writes the generated code of `proto/` into `src/gen`: `make proto`.

#[path = "../tests/it/generate.rs"]
mod generate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    generate::generate(&generate::committed_dir())
}
