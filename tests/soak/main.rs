//! `realtime-soak`: random faults done to a cluster under continuous writes for as long as asked,
//! from a seed that is printed; at the end, every committed change is accounted for.

use std::time::{Duration, Instant};

use clap::Parser;
use realtime_tests::cluster::Options;
use realtime_tests::cluster::faults::Fault;
use realtime_tests::cluster::run::Run;

/// Does random faults to a cluster of the built binaries and accounts for every committed change.
#[derive(Debug, Parser)]
struct Args {
    /// How long faults are done, in seconds.
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// The order of faults; made up, and printed, where it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// How often each of the two writers writes, in milliseconds.
    #[arg(long, default_value_t = 8)]
    pace_ms: u64,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let pace = Duration::from_millis(args.pace_ms.max(1));
    let mut run = Run::start(Options::default(), 2, pace).await;
    let until = Instant::now() + Duration::from_secs(args.seconds);
    while Instant::now() < until {
        run.suffer(Fault::random(&mut rng)).await;
        let calm = Duration::from_millis(rng.u64(0..3_000));
        tokio::time::sleep(calm).await;
    }
    run.finish().await.assert_accounted();
}
