//! A provisioned database, a tap on its channel, and a listener on a bus.

use std::collections::{BTreeMap, VecDeque};

use realtime_core::envelope::ENVELOPE_BYTES_MAX;
use realtime_listener::provision::{PLATFORM_SQL, Password, ProvisionOptions, ProvisionReport, provision};
use realtime_node::postgres::{Dsn, PgConnection, PgOptions, connect};
use realtime_node::tasks::Tasks;
use realtime_testkit::postgres::Postgres;
use realtime_testkit::wait::within;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

pub const PASSWORD: &str = "a listener's password";
pub const DATABASE: &str = "app";

/// A server with one provisioned database.
pub struct Fixture {
    pub pg: Postgres,
    /// A superuser's client.
    pub admin: Client,
}

/// Everything that comes through the feed's channel, as the listener's login gets it.
pub struct Tap {
    envelopes: mpsc::Receiver<String>,
    sentinels: u64,
    _client: Client,
}

/// One envelope.
#[derive(Debug, Clone)]
pub struct Envelope {
    pub text: String,
    pub json: Value,
}

pub fn options() -> ProvisionOptions {
    let password = || Password::of(PASSWORD);
    ProvisionOptions {
        listener_password: password(),
        prober_password: password(),
        service_password: password(),
        rotate_channel: false,
    }
}

impl Fixture {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        let pg = Postgres::start_with(settings).await;
        pg.create_database(DATABASE).await;
        Self::provisioned(pg).await
    }

    /// The database keeps its text in another encoding than UTF-8.
    pub async fn start_in(encoding: &str) -> Self {
        let pg = Postgres::start().await;
        let create =
            format!("create database {DATABASE} encoding '{encoding}' locale 'C' template template0");
        pg.connect("postgres").await.batch_execute(&create).await.unwrap();
        Self::provisioned(pg).await
    }

    async fn provisioned(pg: Postgres) -> Self {
        let mut admin = pg.connect(DATABASE).await;
        let report = provision(&mut admin, options()).await.unwrap();
        assert!(report.superuser && report.not_attached.is_empty(), "{report:?}");
        admin.batch_execute(PLATFORM_SQL).await.unwrap();
        admin
            .batch_execute("create table public.sentinel (n bigint)")
            .await
            .unwrap();
        Self { pg, admin }
    }

    pub async fn provision_again(&mut self) -> ProvisionReport {
        provision(&mut self.admin, ProvisionOptions::default())
            .await
            .unwrap()
    }

    pub fn listener_dsn(&self) -> Dsn {
        self.login_dsn("anvilbase_realtime_listener")
    }

    pub fn login_dsn(&self, role: &str) -> Dsn {
        Dsn::parse(&self.pg.server.url(role, PASSWORD, DATABASE)).unwrap()
    }

    /// Taps the channel as a listener would.
    pub async fn tap(&self) -> Tap {
        let (client, connection) = connect(&self.listener_dsn(), &PgOptions::new("tap"))
            .await
            .unwrap();
        let (sender, envelopes) = mpsc::channel(100_000);
        Tasks::new().spawn("tap", tap(connection, sender));
        let row = client
            .query_one("select outcome from anvilbase_realtime.open_feed()", &[])
            .await
            .unwrap();
        assert_eq!(row.get::<_, String>(0), "taken");
        Tap {
            envelopes,
            sentinels: 0,
            _client: client,
        }
    }

    pub async fn run(&self, sql: &str) {
        if let Err(error) = self.admin.batch_execute(sql).await {
            panic!("{sql}: {error:?}");
        }
    }

    pub async fn text(&self, sql: &str) -> String {
        self.admin.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub async fn channel(&self) -> String {
        self.text("select channel from anvilbase_realtime.settings").await
    }

    /// A login with a schema of its own, as a tenant's developer might have.
    pub async fn mallory(&self) -> Client {
        self.run(
            "create role mallory login password 'mallory'; create schema mallory authorization mallory; \
             grant create, usage on schema public to mallory",
        )
        .await;
        self.pg.connect_login("mallory", "mallory", DATABASE).await
    }
}

async fn tap(mut connection: PgConnection, sender: mpsc::Sender<String>) {
    while let Some(Ok(message)) = connection.next_message().await {
        if let AsyncMessage::Notification(notification) = message {
            assert!(notification.payload().len() <= ENVELOPE_BYTES_MAX);
            if sender.send(notification.payload().to_owned()).await.is_err() {
                return;
            }
        }
    }
}

impl Tap {
    async fn next(&mut self) -> Envelope {
        let text = within("an envelope", self.envelopes.recv())
            .await
            .expect("the tap's session ended");
        let members: BTreeMap<String, &RawValue> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        // PostgreSQL prints numbers that this parser has no type for; such a row's text is there all the same.
        let json = members
            .into_iter()
            .map(|(name, value)| {
                (
                    name,
                    serde_json::from_str::<Value>(value.get()).unwrap_or_default(),
                )
            })
            .collect();
        Envelope { text, json }
    }

    /// Everything committed before this call, ended by a sentinel that must arrive.
    pub async fn all(&mut self, fixture: &Fixture) -> Vec<Envelope> {
        self.sentinels += 1;
        let sentinel = self.sentinels;
        fixture
            .run(&format!("insert into public.sentinel values ({sentinel})"))
            .await;
        let mut envelopes = Vec::new();
        loop {
            let envelope = self.next().await;
            if envelope.is("I", "sentinel") && envelope.json["new"]["n"] == sentinel {
                return envelopes;
            }
            envelopes.push(envelope);
        }
    }

    /// The row changes among [`Tap::all`].
    pub async fn changes(&mut self, fixture: &Fixture) -> Vec<Envelope> {
        let all = self.all(fixture).await;
        all.into_iter()
            .filter(|envelope| matches!(envelope.operation(), "I" | "U" | "D"))
            .collect()
    }

    /// The others among [`Tap::all`], as `operation schema.table`, repetitions beside each other left out.
    pub async fn notices(&mut self, fixture: &Fixture) -> Vec<String> {
        let all = self.all(fixture).await;
        let others = all
            .iter()
            .filter(|envelope| !matches!(envelope.operation(), "I" | "U" | "D"));
        let mut notices: Vec<String> = others
            .map(|envelope| {
                let name = |key: &str| envelope.json[key].as_str().unwrap().to_owned();
                format!("{} {}.{}", name("o"), name("s"), name("t"))
            })
            .collect();
        notices.dedup();
        notices
    }
}

impl Envelope {
    pub fn operation(&self) -> &str {
        self.json["o"].as_str().unwrap()
    }

    pub fn is(&self, operation: &str, table: &str) -> bool {
        self.operation() == operation && self.json["t"] == table
    }

    pub fn too_large(&self) -> bool {
        self.json["e"] == serde_json::json!(["payload_too_large"])
    }

    /// The text of `new`, byte for byte.
    pub fn new_text(&self) -> &str {
        let (_, rest) = self.text.split_once(r#","new":"#).unwrap();
        rest.rsplit_once(r#","old":"#).unwrap().0
    }
}

/// `operation new.column` of each, for short comparisons.
pub fn brief(envelopes: &[Envelope], column: &str) -> Vec<String> {
    let row = |envelope: &Envelope| match envelope.operation() {
        "D" => envelope.json["old"][column].to_string(),
        _ => envelope.json["new"][column].to_string(),
    };
    envelopes
        .iter()
        .map(|envelope| format!("{} {}", envelope.operation(), row(envelope)))
        .collect()
}

/// Distinct values, in order of first appearance.
pub fn distinct(values: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = VecDeque::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push_back(value);
        }
    }
    seen.into()
}
