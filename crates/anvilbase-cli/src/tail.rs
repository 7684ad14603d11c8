//! `anvilbase realtime tail`: what internal services get of a project's feed, on standard output.
//!
//! Must never hide a hole: what the feed, or the way to here, lost is a line of its own.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use clap::Args;
use prost::Message as _;
use realtime_core::change::{ChangeEvent, Position, Row};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::subject::{self, Kind};
use realtime_node::args::NatsArgs;
use realtime_node::bus::{BusMessage, Delivery};
use realtime_node::process;
use realtime_node::tasks::Tasks;
use realtime_proto::v1;
use realtime_proto::v1::feed_status;
use serde_json::json;

use crate::output::print;

/// Arguments of `anvilbase realtime tail`.
#[derive(Debug, Args)]
pub struct TailArgs {
    /// The project's id.
    #[arg(long)]
    project: String,
    /// One table only: `name` in `public`, or `schema.name`. What concerns the whole feed is told all the same.
    #[arg(long)]
    table: Option<String>,
    /// One JSON object a line: `{"change": …}`, `{"status": …}` or `{"lost": …}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    nats: NatsArgs,
}

/// Messages that wait for standard output; what comes on top is a line that says so.
const WAITING_MAX: usize = 4_096;

/// Prints until told to stop, or until nobody reads.
pub async fn run(args: TailArgs) -> anyhow::Result<()> {
    let project = ProjectId::parse(&args.project).context("--project")?;
    let table = args.table.as_deref().map(table).transpose()?;
    let tasks = Tasks::new();
    let bus = args.nats.connect("anvilbase realtime tail", &tasks).await?;
    let mut feed = bus
        .subscribe(&subject::project_all(&project), WAITING_MAX)
        .await?;
    eprintln!(
        "anvilbase: following {project}; its feed must be held (a gateway has sessions of it, or listen = \"always\")"
    );
    let stop = process::terminated();
    tokio::pin!(stop);
    loop {
        let delivery = tokio::select! {
            delivery = feed.next() => delivery,
            signal = &mut stop => return signal,
        };
        let line = match delivery {
            Some(Delivery::Message(message)) => line(&project, table.as_ref(), args.json, &message)?,
            Some(Delivery::Lost(count)) => Some(lost(count, args.json)),
            None => bail!("the connection to NATS has ended"),
        };
        if let Some(line) = line {
            print(&line)?;
        }
    }
}

/// `public.name` of `name`, or the two parts of `schema.name`.
fn table(text: &str) -> anyhow::Result<TableRef> {
    match text.split_once('.') {
        None if !text.is_empty() => Ok(TableRef::new("public", text)),
        Some((schema, name)) if !schema.is_empty() && !name.is_empty() => Ok(TableRef::new(schema, name)),
        _ => bail!("--table: must be a table's name, or schema.name"),
    }
}

fn line(
    project: &ProjectId,
    only: Option<&TableRef>,
    as_json: bool,
    message: &BusMessage,
) -> anyhow::Result<Option<String>> {
    match subject::kind(project, &message.subject) {
        Kind::Change => {
            let event = v1::ChangeEvent::decode(message.body.clone())
                .ok()
                .and_then(|event| ChangeEvent::try_from(event).ok())
                .context("a change that cannot be decoded: this command and the listener are of different versions")?;
            let wanted = only.is_none_or(|table| *table == event.table);
            Ok(wanted.then(|| change(&event, as_json)))
        }
        Kind::Control => {
            let status = v1::FeedStatus::decode(message.body.clone()).context(
                "a status that cannot be decoded: this command and the listener are of different versions",
            )?;
            Ok(status_line(&status, only, as_json))
        }
        Kind::Other => Ok(None),
    }
}

fn change(event: &ChangeEvent, as_json: bool) -> String {
    let row = |row: &Option<Row>| row.as_ref().map_or("null", Row::text).to_owned();
    let (new, old) = (row(&event.new), row(&event.old));
    let errors = event.marker.map(|marker| marker.as_str());
    let mut out = String::with_capacity(new.len() + old.len() + 256);
    if as_json {
        // The rows' own text, not printed anew: numbers beyond a double stay what they are.
        let head = json!({
            "schema": &*event.table.schema,
            "table": &*event.table.table,
            "type": event.operation.as_str(),
            "commit_timestamp": &*event.commit_timestamp,
            "errors": errors.map(|error| [error]),
            "position": position(event.position),
        });
        let head = head.to_string();
        let members = head.strip_suffix('}').unwrap_or(&head);
        let _ = writeln!(out, "{{\"change\":{members},\"new\":{new},\"old\":{old}}}}}");
    } else {
        let _ = write!(
            out,
            "{} {} {}.{} new={new} old={old}",
            event.commit_timestamp,
            event.operation.as_str(),
            event.table.schema,
            event.table.table
        );
        if let Some(error) = errors {
            let _ = write!(out, " errors={error}");
        }
        out.push('\n');
    }
    out
}

/// A line for what a reader must know; the beat is not among it.
fn status_line(status: &v1::FeedStatus, only: Option<&TableRef>, as_json: bool) -> Option<String> {
    let kind = status.kind.as_ref()?;
    let concerns = |schema: &str, table: &str| {
        table.is_empty() || only.is_none_or(|only| &*only.schema == schema && &*only.table == table)
    };
    let (name, schema, table, reason) = match kind {
        feed_status::Kind::Up(_) => return None,
        feed_status::Kind::Down(down) => ("down", "", "", down.reason().as_str_name().to_owned()),
        feed_status::Kind::Gap(gap) => ("gap", &*gap.schema, &*gap.table, gap.reason.clone()),
        feed_status::Kind::TableChanged(changed) => {
            ("table_changed", &*changed.schema, &*changed.table, String::new())
        }
        feed_status::Kind::Truncated(emptied) => {
            ("truncated", &*emptied.schema, &*emptied.table, String::new())
        }
    };
    if !concerns(schema, table) {
        return None;
    }
    Some(if as_json {
        let position = status.position.map(|at| position(at.into()));
        let line = json!({ "status": { "kind": name, "schema": schema, "table": table, "reason": reason, "position": position } });
        format!("{line}\n")
    } else {
        let place = if table.is_empty() {
            "all tables".to_owned()
        } else {
            format!("{schema}.{table}")
        };
        format!("-- {name} {place} {reason}").trim_end().to_owned() + "\n"
    })
}

fn lost(count: u64, as_json: bool) -> String {
    if as_json {
        format!("{}\n", json!({ "lost": { "at_least": count } }))
    } else {
        format!("-- lost on the way here: at least {count} messages\n")
    }
}

fn position(position: Position) -> serde_json::Value {
    json!({ "epoch": position.epoch, "seq": position.seq })
}

#[cfg(test)]
mod tests;
