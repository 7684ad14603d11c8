//! Structured logs: JSON lines on standard error.
//!
//! Must never be given row data, filter values, tokens or claims (invariant 10), and never end what it reports
//! on: a line that cannot be written is lost.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogFormat;

/// Starts logging for the process. `filter` has the form of `tracing`'s directives, such as
/// `info,realtime_gateway=debug`.
///
/// # Errors
/// The filter does not parse, or the process already logs.
pub fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter =
        EnvFilter::try_new(filter).map_err(|_| anyhow::anyhow!("log filter: not a list of directives"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would report that on standard error too, by a macro that panics where that is full.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
        LogFormat::Text => builder.with_target(true).finish().try_init()?,
    }
    Ok(())
}
