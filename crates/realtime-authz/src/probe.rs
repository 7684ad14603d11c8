//! A row looked for by its key under row security, for events that carry no image, or none that
//! settles the matter.
//!
//! Must never be the only judge of an image: the row may have changed since, and then the answer
//! is about another row.

use realtime_core::change::Row;
use realtime_core::verdict::DropReason;
use realtime_node::postgres::quote_identifier;

use crate::policy::Unaskable;
use crate::tables::{Fidelity, KeyColumn, Table};

/// The terms of a look-up by key.
#[derive(Debug)]
pub struct Probe {
    /// One per key column.
    pub terms: Vec<Term>,
}

/// One key column and the value that it must have.
#[derive(Debug)]
pub struct Term {
    /// The parameter's text.
    pub value: String,
    column: String,
    equals: Box<str>,
    form: Form,
}

/// How the parameter becomes a value of the column's type.
#[derive(Debug)]
enum Form {
    /// By a cast to this type.
    Cast(Box<str>),
    /// By way of a row of the table's own type, named here, whose JSON the parameter is: for
    /// arrays, composites and json, and for types that the role may not name.
    Row(String),
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
        let json = json
            .filter(|json| *json != "null")
            .ok_or(Unaskable(DropReason::NoKey))?;
        let form = match (column.fidelity, &key.type_sql) {
            // Its text may be another row's key.
            (Fidelity::Opaque, _) => return Err(Unaskable(DropReason::NoKey)),
            (Fidelity::Exact, Some(type_sql)) if !json.starts_with(['{', '[']) => {
                Form::Cast(type_sql.clone())
            }
            _ => Form::Row(crate::policy::relation(table)),
        };
        let value = match form {
            Form::Row(_) => format!("{{{}:{json}}}", serde_json::Value::from(&**name)),
            Form::Cast(_) if json.starts_with('"') => {
                serde_json::from_str(json).map_err(|_| Unaskable(DropReason::ImageUnreadable))?
            }
            Form::Cast(_) => json.to_owned(),
        };
        Ok(Self {
            value,
            column: quote_identifier(name),
            equals: key.equals_sql.clone(),
            form,
        })
    }

    /// The term as SQL, with its value as parameter `number`.
    pub fn sql(&self, number: usize) -> String {
        let Self {
            column, equals, form, ..
        } = self;
        match form {
            Form::Cast(type_sql) => format!("r.{column} {equals} (${number}::pg_catalog.text::{type_sql})"),
            Form::Row(row_type) => format!(
                "r.{column} {equals} (SELECT v.{column} FROM pg_catalog.json_populate_record(\
                 NULL::{row_type}, ${number}::pg_catalog.text::pg_catalog.json) AS v)"
            ),
        }
    }
}
