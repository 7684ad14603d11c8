//! A row looked for by its key under row security, for events that carry no image, or none that
//! settles the matter.
//!
//! Must never be the only judge of an image: the row may have changed since, and then the answer
//! is about another row.

use realtime_core::change::Row;
use realtime_core::verdict::DropReason;
use realtime_node::postgres::quote_identifier;

use crate::policy::Unaskable;
use crate::tables::{KeyColumn, Table};

/// The terms of a look-up by key.
#[derive(Debug)]
pub struct Probe {
    /// One per key column.
    pub terms: Vec<Term>,
}

/// One key column and the value that it must have.
#[derive(Debug)]
pub struct Term {
    /// The value as text in the type's own input form; JSON where `json` is set.
    pub value: String,
    column: String,
    key: KeyColumn,
    /// The value is an array or a composite: its JSON becomes the value by way of a row of this type.
    row_type: Option<String>,
}

impl Probe {
    /// The look-up for a row by the key values that its image carries.
    ///
    /// # Errors
    /// The table has no key, the image does not carry it, or the role may not read it.
    pub fn new(table: &Table, row: &Row) -> Result<Self, Unaskable> {
        if table.key.is_empty() {
            return Err(Unaskable(DropReason::NoKey));
        }
        let terms = table
            .key
            .iter()
            .map(|key| Term::new(table, key, row))
            .collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }
}

impl Term {
    fn new(table: &Table, key: &KeyColumn, row: &Row) -> Result<Self, Unaskable> {
        let column = table
            .columns
            .get(key.column)
            .ok_or(Unaskable(DropReason::NoKey))?;
        if !column.facts.readable {
            return Err(Unaskable(DropReason::NoPrivilege));
        }
        let name = &column.facts.name;
        let json = row
            .get(name)
            .map_err(|_| Unaskable(DropReason::ImageUnreadable))?;
        let json = json.ok_or(Unaskable(DropReason::NoKey))?;
        let nested = json.starts_with(['{', '[']);
        let value = match json.as_bytes().first() {
            Some(b'"') => serde_json::from_str(json).map_err(|_| Unaskable(DropReason::ImageUnreadable))?,
            _ if json == "null" => return Err(Unaskable(DropReason::NoKey)),
            _ if nested => format!("{{{}:{json}}}", serde_json::Value::from(&**name)),
            _ => json.to_owned(),
        };
        Ok(Self {
            value,
            column: quote_identifier(name),
            key: key.clone(),
            row_type: nested.then(|| crate::policy::relation(table)),
        })
    }

    /// The term as SQL, with its value as parameter `number`.
    pub fn sql(&self, number: usize) -> String {
        let Self {
            column,
            key,
            row_type,
            ..
        } = self;
        let KeyColumn {
            type_sql,
            collate_sql,
            equals_sql,
            ..
        } = key;
        match row_type {
            None => format!("r.{column} {equals_sql} (${number}::pg_catalog.text::{type_sql}{collate_sql})"),
            Some(row_type) => format!(
                "r.{column} {equals_sql} (SELECT v.{column}{collate_sql} FROM pg_catalog.json_populate_record(\
                 NULL::{row_type}, ${number}::pg_catalog.text::pg_catalog.json) AS v)"
            ),
        }
    }
}
