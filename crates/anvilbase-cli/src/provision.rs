//! `anvilbase realtime provision`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use realtime_core::id::ProjectId;
use realtime_listener::provision::{
    LISTENER_ROLE, PROBER_ROLE, Password, ProvisionOptions, ProvisionReport, SERVICE_ROLE, provision,
};
use realtime_node::postgres::{Dsn, PgOptions, connect};
use realtime_node::secret::Secret;
use realtime_node::tasks::Tasks;

use crate::output::print;
use crate::project_file::{Logins, write};

/// Arguments of `anvilbase realtime provision`.
#[derive(Debug, Args)]
pub struct ProvisionArgs {
    /// The project; its catalog file is named after it.
    #[arg(long)]
    project: ProjectId,
    /// The database, as a superuser or as the owner of its tables. From the environment, so that
    /// its password is not an argument.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Secret,
    /// Folder for the catalog file that listeners and authz read: gives their logins new
    /// passwords and writes them there. Without it, passwords are left as they are.
    #[arg(long, value_name = "DIR")]
    write_database_file: Option<PathBuf>,
    /// With --write-database-file, where the server has these logins already: they are of the whole server, so that new
    /// passwords shut out whatever uses them now, other projects' services too.
    #[arg(long, requires = "write_database_file")]
    take_logins: bool,
    /// Make a new secret channel. Events of the moment are lost, and announced.
    #[arg(long)]
    rotate_channel: bool,
}

/// Provisions a project's database and tells what it did.
pub async fn run(args: ProvisionArgs) -> anyhow::Result<()> {
    let dsn = database(&args.database_url)?;
    if args.write_database_file.is_some() && !args.take_logins && has_logins(&dsn).await? {
        bail!(
            "this server has AnvilBase's logins already, and another project's services may use them: leave out --write-database-file, and write this project's file with the passwords that they have; or give them new ones with --take-logins, which shuts out whatever uses them now"
        );
    }
    let logins = args
        .write_database_file
        .as_ref()
        .map(|_| Logins::random())
        .transpose()?;
    let report = install(&dsn, logins.as_ref(), args.rotate_channel).await?;
    print(&summary(&report))?;
    if let (Some(folder), Some(logins)) = (&args.write_database_file, &logins) {
        let path = folder.join(format!("{}.toml", args.project));
        write(&path, &logins.section(&dsn))?;
        print(&format!("logins written to {}\n", path.display()))?;
    }
    Ok(())
}

/// The connection string of `DATABASE_URL`. Parsed here and not by clap, whose errors repeat the
/// value, and with it a password.
///
/// # Errors
/// It does not parse; its text is not repeated.
pub fn database(url: &Secret) -> anyhow::Result<Dsn> {
    Dsn::parse(url.expose()).context("DATABASE_URL")
}

/// Provisions a database; `None`: logins keep their passwords.
///
/// # Errors
/// It cannot be reached, or refuses.
pub async fn install(
    dsn: &Dsn,
    logins: Option<&Logins>,
    rotate_channel: bool,
) -> anyhow::Result<ProvisionReport> {
    let (mut client, connection) = connect(dsn, &PgOptions::new("anvilbase provision")).await?;
    Tasks::new().spawn("provision connection", connection.drive());
    let mut options = ProvisionOptions {
        rotate_channel,
        ..ProvisionOptions::default()
    };
    if let Some(logins) = logins {
        options.listener_password = Password::of(logins.listener.expose());
        options.prober_password = Password::of(logins.prober.expose());
        options.service_password = Password::of(logins.service.expose());
    }
    provision(&mut client, options).await.context("provisioning")
}

/// Whether the server has our logins. They are of the whole server: new passwords would end the
/// services that another project, or another deployment, runs on it.
///
/// # Errors
/// It cannot be reached, or refuses.
pub async fn has_logins(dsn: &Dsn) -> anyhow::Result<bool> {
    let (client, connection) = connect(dsn, &PgOptions::new("anvilbase logins")).await?;
    Tasks::new().spawn("logins connection", connection.drive());
    let roles: [&str; 3] = [LISTENER_ROLE, PROBER_ROLE, SERVICE_ROLE];
    let asked = client
        .query(
            "select from pg_catalog.pg_roles where rolname = any ($1)",
            &[&&roles[..]],
        )
        .await;
    let rows =
        asked.map_err(|error| anyhow::anyhow!("logins: {}", realtime_node::postgres::describe(&error)))?;
    Ok(!rows.is_empty())
}

fn summary(report: &ProvisionReport) -> String {
    let mut text = format!("provisioned; {} tables joined the feed\n", report.attached.len());
    for table in &report.attached {
        text.push_str(&format!("  {table}\n"));
    }
    for (table, reason) in &report.not_attached {
        text.push_str(&format!("not on the feed: {table}: {reason}\n"));
    }
    for notice in &report.notices {
        text.push_str(&format!("note: {notice}\n"));
    }
    text
}
