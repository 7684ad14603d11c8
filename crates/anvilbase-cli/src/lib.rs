//! The `anvilbase` command: all of AnvilBase Realtime in one process, and the work of an
//! operator on a project.
//!
//! Must never take a secret as an argument, nor print one that it was not asked for.

mod api;
mod dev;
mod disconnect;
mod output;
mod project_file;
mod provision;
mod tables;
mod tail;
mod token;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

/// AnvilBase Realtime: a change feed for PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "anvilbase", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one database with everything in this process: for a first look and for development.
    Dev(dev::DevArgs),
    /// Work on a project's realtime.
    #[command(subcommand)]
    Realtime(RealtimeCommand),
    /// Make a token of a project.
    Token(token::TokenArgs),
    /// Print a script that completes this command in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
enum RealtimeCommand {
    /// Install the change feed into a project's database, or bring it up to date.
    Provision(provision::ProvisionArgs),
    /// Follow a project's feed as internal services get it, from NATS.
    Tail(tail::TailArgs),
    /// List the tables of a project with their state on the feed.
    Tables(tables::TablesArgs),
    /// Set a table on the feed, off it, or what it shows to whom.
    SetTable(tables::SetTableArgs),
    /// End what a user has open, on every gateway.
    Disconnect(disconnect::DisconnectArgs),
}

/// Runs the command line of this process. Exit codes: 0 done, 1 failed, 2 used wrongly.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let done = runtime.block_on(async {
        match cli.command {
            Command::Dev(args) => dev::run(args).await,
            Command::Realtime(RealtimeCommand::Provision(args)) => provision::run(args).await,
            Command::Realtime(RealtimeCommand::Tail(args)) => tail::run(args).await,
            Command::Realtime(RealtimeCommand::Tables(args)) => tables::list(&args).await,
            Command::Realtime(RealtimeCommand::SetTable(args)) => tables::set(&args).await,
            Command::Realtime(RealtimeCommand::Disconnect(args)) => disconnect::run(&args).await,
            Command::Token(args) => token::run(&args).await,
            Command::Completions { shell } => completions(shell),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "anvilbase", &mut script);
    output::print(&String::from_utf8(script)?)
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("anvilbase: {error:#}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
