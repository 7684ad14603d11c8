//! Where tests on random input begin, and how much they do.
//!
//! Must never make a failure that cannot be repeated: whoever draws prints the seed first.

use clap::Args;
use fastrand::Rng;
use realtime_node::args::from_environment;

/// Of a test on random input.
#[derive(Debug, Clone, Args)]
pub struct Random {
    /// Repeats a run.
    #[arg(long, env = "ANVILBASE_ORACLE_SEED")]
    seed: Option<u64>,
    /// How many times as much as in every run.
    #[arg(long, env = "ANVILBASE_ORACLE_SCALE", default_value_t = 1)]
    pub scale: usize,
}

impl Random {
    /// From the environment.
    pub fn new() -> anyhow::Result<Self> {
        let mut random: Self = from_environment()?;
        random.seed.get_or_insert_with(|| fastrand::u64(..));
        Ok(random)
    }

    /// Where this run begins.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_default()
    }

    /// A generator that begins there; the seed is printed.
    pub fn rng(&self) -> Rng {
        println!("ANVILBASE_ORACLE_SEED={}", self.seed());
        Rng::with_seed(self.seed())
    }
}
