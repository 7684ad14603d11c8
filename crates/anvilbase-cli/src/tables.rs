//! `anvilbase realtime tables` and `anvilbase realtime set-table`.

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use realtime_node::fetch::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::{Api, ApiArgs, encode};
use crate::output::{columns, harmless, print};

/// Arguments of `anvilbase realtime tables`.
#[derive(Debug, Args)]
pub struct TablesArgs {
    #[command(flatten)]
    api: ApiArgs,
    /// The tables' schema.
    #[arg(long, default_value = "public")]
    schema: String,
}

/// Arguments of `anvilbase realtime set-table`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("setting").required(true).multiple(true))]
pub struct SetTableArgs {
    /// The table, spelled as in the catalog.
    table: String,
    #[command(flatten)]
    api: ApiArgs,
    /// The table's schema.
    #[arg(long, default_value = "public")]
    schema: String,
    /// Whether its changes are on the feed.
    #[arg(long, value_name = "true|false", group = "setting")]
    cdc: Option<bool>,
    /// Whether, without row security, every role with SELECT may follow it.
    #[arg(long, value_name = "true|false", group = "setting")]
    rls_public: Option<bool>,
    /// Whether deletes are delivered to others than service_role.
    #[arg(long, value_name = "true|false", group = "setting")]
    delete_events: Option<bool>,
    /// Whether it is on the feed although it is in another schema than public.
    #[arg(long, value_name = "true|false", group = "setting")]
    emit_events: Option<bool>,
    /// Whether writes under session_replication_role = replica are on the feed too.
    #[arg(long, value_name = "true|false", group = "setting")]
    replica_events: Option<bool>,
}

#[derive(Deserialize)]
struct Page {
    tables: Vec<Box<RawValue>>,
    #[serde(default)]
    next: Option<String>,
}

#[derive(Serialize)]
struct Whole {
    tables: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Table {
    table: String,
    cdc_enabled: bool,
    rls_enabled: bool,
    realtime_public: bool,
    delete_events: bool,
    emitting: bool,
    #[serde(default)]
    notes: Vec<Note>,
}

#[derive(Deserialize)]
struct Note {
    message: String,
}

/// Lists the tables.
pub async fn list(args: &TablesArgs) -> anyhow::Result<()> {
    let api = args.api.api()?;
    let tables = all(&api, &args.schema).await?;
    if args.api.json {
        return print(&format!(
            "{}\n",
            harmless(&serde_json::to_string(&Whole { tables })?)
        ));
    }
    if tables.is_empty() {
        let schema = harmless(&args.schema);
        return print(&format!(
            "no tables in schema {schema} that could be on the feed\n"
        ));
    }
    let tables: Vec<Table> = tables
        .iter()
        .map(|table| read(table.get()))
        .collect::<Result<_, _>>()?;
    print(&shown(&tables))
}

/// Sets a table.
pub async fn set(args: &SetTableArgs) -> anyhow::Result<()> {
    let api = args.api.api()?;
    let named = [
        ("cdc_enabled", args.cdc),
        ("realtime_public", args.rls_public),
        ("delete_events", args.delete_events),
        ("emit_events", args.emit_events),
        ("replica_events", args.replica_events),
    ];
    let body: Map<String, Value> = named
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))))
        .collect();
    let path = format!("tables/{}?schema={}", encode(&args.table), encode(&args.schema));
    let answer = api
        .call(Method::PUT, &path, Some(Value::from(body).to_string()))
        .await?;
    if args.api.json {
        return print(&format!("{}\n", harmless(&answer)));
    }
    print(&shown(&[read(&answer)?]))
}

async fn all(api: &Api, schema: &str) -> anyhow::Result<Vec<Box<RawValue>>> {
    let mut tables = Vec::new();
    let mut path = format!("tables?schema={}", encode(schema));
    loop {
        let page: Page = read(&api.call(Method::GET, &path, None).await?)?;
        let went_on = !page.tables.is_empty();
        tables.extend(page.tables);
        match page.next {
            Some(next) if went_on => {
                path = format!("tables?schema={}&after={}", encode(schema), encode(&next))
            }
            _ => return Ok(tables),
        }
    }
}

fn read<'a, T: Deserialize<'a>>(answer: &'a str) -> anyhow::Result<T> {
    serde_json::from_str(answer)
        .context("the answer is not the management API's: is this the gateway's address?")
}

fn shown(tables: &[Table]) -> String {
    let on = |value: bool| if value { "true" } else { "false" }.to_owned();
    let heads = ["TABLE", "CDC", "RLS", "RLS-PUBLIC", "DELETE-EVENTS", "EMITTING"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(tables.iter().map(|table| {
        vec![
            harmless(&table.table).replace('\n', "\\n"),
            on(table.cdc_enabled),
            on(table.rls_enabled),
            on(table.realtime_public),
            on(table.delete_events),
            on(table.emitting),
        ]
    }));
    let mut text = columns(&rows);
    for table in tables {
        for note in &table.notes {
            let (name, note) = (
                harmless(&table.table).replace('\n', "\\n"),
                harmless(&note.message),
            );
            text.push_str(&format!("note: {name}: {note}\n"));
        }
        if !table.rls_enabled && table.realtime_public {
            let name = harmless(&table.table).replace('\n', "\\n");
            text.push_str(&format!(
                "note: {name}: row security is off, so every role with SELECT sees every change\n"
            ));
        }
    }
    text
}
