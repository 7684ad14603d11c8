//! What `anvilbase dev` says once it serves.

use serde::Serialize;

use super::Output;
use super::database::Database;
use super::project::{PROJECT, Project};
use super::services::Addresses;
use crate::output::print;

#[derive(Serialize)]
struct Ready<'a> {
    url: &'a str,
    database_url: &'a str,
    project: &'a str,
    anon_key: &'a str,
    user_key: &'a str,
    user_id: &'a str,
    service_key: &'a str,
    jwt_secret: &'a str,
    admin_url: &'a str,
}

/// Tells address and keys on standard output. They are what the caller asked for; a named
/// database's connection string is not repeated.
pub fn announce(
    output: Output,
    database: &Database,
    project: &Project,
    addresses: &Addresses,
) -> anyhow::Result<()> {
    let url = format!("http://{}", addresses.edge);
    let admin_url = format!("http://{}", addresses.admin);
    let secret = project
        .config
        .tokens
        .as_ref()
        .and_then(|tokens| Some(tokens.secrets.first()?.expose()))
        .unwrap_or_default();
    let database_url = if database.server.is_some() {
        database.url.expose()
    } else {
        ""
    };
    let ready = Ready {
        url: &url,
        database_url,
        project: PROJECT,
        anon_key: &project.anon_key,
        user_key: &project.user_key,
        user_id: &project.user_id,
        service_key: &project.service_key,
        jwt_secret: secret,
        admin_url: &admin_url,
    };
    print(&match output {
        Output::Json => format!("{}\n", serde_json::to_string(&ready)?),
        Output::Text => text(&ready),
    })
}

fn text(ready: &Ready<'_>) -> String {
    let database = if ready.database_url.is_empty() {
        "the one that DATABASE_URL names"
    } else {
        ready.database_url
    };
    let Ready {
        url,
        anon_key,
        user_key,
        user_id,
        service_key,
        admin_url,
        ..
    } = ready;
    format!(
        r#"AnvilBase Realtime serves.

  realtime   {url}
  database   {database}
  metrics    {admin_url}/metrics

  anon key      {anon_key}
  service key   {service_key}
  user key      {user_key}
  (of the user  {user_id})

Try it:

  npm install @supabase/supabase-js ws

  // watch.mjs
  import {{ createClient }} from '@supabase/supabase-js'
  import ws from 'ws'

  const db = createClient('{url}', '{service_key}', {{ realtime: {{ transport: ws }} }})
  db.channel('first')
    .on('postgres_changes', {{ event: '*', schema: 'public' }}, (change) => console.log(change))
    .subscribe((status) => console.log(status))

  node watch.mjs

  psql '{database}' -c 'create table hello (id int primary key, body text)'
  psql '{database}' -c "insert into hello values (1, 'it works')"

Ctrl-C ends it; the data stays. `--reset` starts over.
"#
    )
}
