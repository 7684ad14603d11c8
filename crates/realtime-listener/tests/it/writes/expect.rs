//! What must have been announced: what the witness saw, in its order, byte for byte.

use std::collections::BTreeMap;

use realtime_core::change::Row;
use realtime_core::envelope::{ENVELOPE_BYTES_MAX, Message, decode};
use serde_json::value::RawValue;

use crate::support::{Envelope, Fixture, Tap};

/// Key columns and the names of their types, per table.
pub struct Keys {
    tables: BTreeMap<String, Vec<(String, String)>>,
    recoded: bool,
}

/// What the witness wrote down of one row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    table: String,
    operation: String,
    new: String,
    old: String,
    /// Its JSON could be printed and carried.
    printed: bool,
    /// Of both rows, in the encoding of the database.
    bytes: i32,
}

impl Keys {
    pub async fn read(fixture: &Fixture) -> Self {
        let rows = fixture
            .admin
            .query(
                "select i.indrelid::regclass::oid::text, c.relname::text, \
                   array(select a.attname::text from unnest(i.indkey) with ordinality k(n, place) \
                     join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.n order by k.place), \
                   array(select t.typname::text from unnest(i.indkey) with ordinality k(n, place) \
                     join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.n \
                     join pg_type t on t.oid = a.atttypid order by k.place) \
                 from pg_index i join pg_class c on c.oid = i.indrelid \
                 where i.indisprimary and c.relnamespace = 'public'::regnamespace",
                &[],
            )
            .await
            .unwrap();
        let tables = rows.iter().map(|row| {
            let (names, types): (Vec<String>, Vec<String>) = (row.get(2), row.get(3));
            (row.get(1), names.into_iter().zip(types).collect())
        });
        Self {
            tables: tables.collect(),
            recoded: fixture
                .text("select pg_catalog.getdatabaseencoding()::text")
                .await
                != "UTF8",
        }
    }

    /// `,"pk":…,"pt":…` as the envelope has it.
    fn tail(&self, table: &str) -> String {
        let none = Vec::new();
        let key = self.tables.get(table).unwrap_or(&none);
        let (names, types): (Vec<_>, Vec<_>) = key.iter().cloned().unzip();
        format!(",\"pk\":{},\"pt\":{}", json(&names), json(&types))
    }

    /// The key columns of a row's JSON, values byte for byte.
    fn cut(&self, table: &str, row: &str) -> String {
        if row == "null" {
            return row.to_owned();
        }
        let cells: BTreeMap<String, &RawValue> = serde_json::from_str(row).unwrap();
        let none = Vec::new();
        let key = self.tables.get(table).unwrap_or(&none).iter();
        let cut: Vec<_> = key
            .map(|(name, _)| format!("{}:{}", json(name), cells[name].get()))
            .collect();
        format!("{{{}}}", cut.join(","))
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

/// Compares what came through the channel with what the witness saw, and gives the number of rows.
pub async fn announced(fixture: &Fixture, tap: &mut Tap, keys: &Keys, about: &str) -> usize {
    let events: Vec<_> = tap.all(fixture).await;
    let events: Vec<_> = events.iter().filter(|event| event.operation() != "X").collect();
    let (ours, mut seen) = (witness(fixture, "public").await, witness(fixture, "twin").await);
    fixture.run("delete from witness.log").await;
    let mut sorted: Vec<_> = ours.iter().collect();
    sorted.sort();
    seen.sort();
    assert!(
        sorted.iter().copied().eq(seen.iter()),
        "the twin changed otherwise\n{about}"
    );
    let told: Vec<_> = events
        .iter()
        .map(|event| brief(event.operation(), event.json["t"].as_str().unwrap()))
        .collect();
    let expected: Vec<_> = ours
        .iter()
        .map(|row| {
            brief(
                if row.printed || row.operation == "T" {
                    &row.operation
                } else {
                    "L"
                },
                &row.table,
            )
        })
        .collect();
    assert_eq!(told, expected, "{about}");
    for (event, row) in events.iter().zip(&ours) {
        if row.printed {
            compare(event, row, keys, about);
        }
    }
    ours.len()
}

fn brief(operation: &str, table: &str) -> String {
    format!("{operation} {table}")
}

async fn witness(fixture: &Fixture, schema: &str) -> Vec<Seen> {
    let rows = fixture
        .admin
        .query(
            "select t, o, n, d, printed, bytes from witness.log where s = $1 order by seq",
            &[&schema],
        )
        .await
        .unwrap();
    let seen = rows.iter().map(|row| Seen {
        table: row.get(0),
        operation: row.get(1),
        new: row.get(2),
        old: row.get(3),
        printed: row.get(4),
        bytes: row.get(5),
    });
    seen.collect()
}

/// One event against one row: the whole row exactly where it fits, else its key, else nothing.
fn compare(event: &Envelope, row: &Seen, keys: &Keys, about: &str) {
    let text = |name: &str| event.json[name].as_str().unwrap();
    let head = format!(
        "{{\"v\":1,\"n\":{},\"r\":{},\"s\":\"public\",\"t\":{},\"o\":\"{}\",\"c\":\"{}\",\"new\":",
        event.json["n"],
        event.json["r"],
        json(&row.table),
        row.operation,
        text("c")
    );
    let tail = if row.operation == "D" {
        keys.tail(&row.table)
    } else {
        String::new()
    };
    let whole = format!("{head}{},\"old\":{}{tail}}}", row.new, row.old);
    // The server counts in its own encoding, the listener in UTF-8, and neither may be too long.
    let in_server = whole.len() - row.new.len() - row.old.len() + usize::try_from(row.bytes).unwrap();
    let largest = whole.len().max(in_server);
    // Names are not counted there.
    let doubt = if keys.recoded { 16 } else { 0 };
    if largest + doubt <= ENVELOPE_BYTES_MAX || (largest <= ENVELOPE_BYTES_MAX + doubt && !event.too_large())
    {
        same(&event.text, &whole, about);
        // And so does the listener read it.
        match decode(&event.text) {
            Ok(Message::Change(change)) => {
                same(change.new.as_ref().map_or("null", Row::text), &row.new, about);
                same(change.old.as_ref().map_or("null", Row::text), &row.old, about);
                for image in change.new.iter().chain(&change.old) {
                    assert!(image.columns().unwrap().count() > 0, "{about}");
                }
            }
            other => panic!("{other:?}: {about}"),
        }
        return;
    }
    let reference = |new: &str, old: &str| {
        format!(
            "{head}{new},\"old\":{old}{},\"e\":[\"payload_too_large\"]}}",
            keys.tail(&row.table)
        )
    };
    let (new, old) = (keys.cut(&row.table, &row.new), keys.cut(&row.table, &row.old));
    let key = reference(&new, &old);
    let nothing = |row: &str| if row == "null" { "null" } else { "{}" };
    let bare = reference(nothing(&row.new), nothing(&row.old));
    if key.len() > ENVELOPE_BYTES_MAX {
        same(&event.text, &bare, about);
    } else if keys.recoded && event.text == bare && bare != key {
        // What fits is reckoned at the worst of the recoding.
        assert!(new.len() + old.len() > ENVELOPE_BYTES_MAX / 4, "{about}");
    } else {
        same(&event.text, &key, about);
    }
}

fn same(text: &str, expected: &str, about: &str) {
    let start = |text: &str| text.chars().take(600).collect::<String>();
    assert!(
        text == expected,
        "{about}\n{}\nis not\n{}",
        start(text),
        start(expected)
    );
}
