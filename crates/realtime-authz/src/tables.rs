//! Facts about tables, as far as a verdict needs them: what a table is, what a role may do with
//! it, and which policies stand between the two.
//!
//! Must never be asked for more than it was read for: facts belong to one `(table, role)`, were
//! read after one position of the feed, and are read again after a later one. A notice of a change can come behind the
//! row that its transaction wrote: so nothing is delivered by facts whose stamp is not the catalog's own just then.

mod cache;
mod columns;
mod load;
mod reads;

pub use cache::{Facts, FactsLimits};
pub use reads::Reads;

use realtime_core::change::{Row, RowError};
use realtime_core::id::TableRef;
use realtime_core::table::{CannotEmit, ColumnFacts, RelationKind, TableFacts};

/// One table as one role meets it.
#[derive(Debug, Clone)]
pub struct Table {
    /// The relation's oid.
    pub relid: u32,
    /// Its name just now.
    pub table: TableRef,
    /// What kind of relation it is.
    pub kind: Kind,
    /// Its rows are printed by its partitions, whose columns may stand in another order.
    pub partitioned: bool,
    /// What was set for it.
    pub settings: Settings,
    /// The emitting trigger is there and fires.
    pub attached: bool,
    /// Its columns, in order.
    pub columns: Box<[Column]>,
    /// Its primary key, in key order; empty where there is none.
    pub key: Box<[KeyColumn]>,
    /// What the role may do.
    pub access: Access,
    /// What row security asks of a row before the role may see it.
    pub policy: Policy,
    /// A plan made for one subject may hold that subject's answers: none is to serve another.
    pub plans_lie: bool,
    /// Stands for what all this was read from: see `sql/stamp.sql`.
    pub stamp: i64,
}

/// What kind of relation a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An ordinary or a partitioned table.
    Base,
    /// A partition: its root is the one that emits.
    Partition,
    /// Something else.
    Other(RelationKind),
}

/// The feed's settings of a table; their defaults where nothing was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Changes are emitted.
    pub cdc_enabled: bool,
    /// Without row security, everybody with SELECT may follow it.
    pub realtime_public: bool,
    /// Deletes are delivered.
    pub delete_events: bool,
}

/// What a role may do with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// USAGE on the schema.
    pub schema_usage: bool,
    /// SELECT on the table, or on one of its columns at least.
    pub select: bool,
    /// Row security is in force for this role on this table.
    pub rls_active: bool,
}

/// A column, with what is needed to turn its JSON back into its value.
#[derive(Debug, Clone)]
pub struct Column {
    /// `pg_attribute.attnum`.
    pub attnum: i16,
    /// The column as filters and clients know it.
    pub facts: ColumnFacts,
    /// How far its printed JSON stands for its value.
    pub fidelity: Fidelity,
    /// Its type is a domain: a NOT NULL domain refuses a row that leaves it out.
    pub domain: bool,
}

/// How far the JSON that a column was printed as stands for the column's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// The value comes back as it was.
    Exact,
    /// `json` or `jsonb`: SQL NULL and the JSON value null both print `null`.
    JsonNull,
    /// Holds json inside an array or a composite: a null or an inner array may have been another value.
    JsonInside,
    /// The printed text need not be the value at all: a user's cast to json, names of objects, a
    /// value that is only computed on reading.
    Opaque,
}

/// A key column, with how to compare it to a value given as text.
#[derive(Debug, Clone)]
pub struct KeyColumn {
    /// Its place in [`Table::columns`].
    pub column: usize,
    /// Its type and collation, written out for SQL: `character varying(12) COLLATE pg_catalog."C"`.
    /// `None` where the role may not name them.
    pub type_sql: Option<Box<str>>,
    /// The key's equality, written out for SQL: `OPERATOR("pg_catalog".=)`.
    pub equals_sql: Box<str>,
}

/// The table's SELECT policies that apply to the role, as one condition.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The condition in SQL, over the table's columns; `None`: no policy admits any row.
    pub condition: Option<Box<str>>,
    /// What of the row the condition looks at.
    pub reads: Reads,
}

impl Table {
    /// The facts for a gateway.
    pub fn describe(&self) -> TableFacts {
        TableFacts {
            table: self.table.clone(),
            relid: self.relid,
            columns: self.columns.iter().map(|column| column.facts.clone()).collect(),
            cannot_emit: self.cannot_emit(),
            delete_events: self.settings.delete_events,
        }
    }

    /// Why the table emits nothing to the role just now.
    fn cannot_emit(&self) -> Option<CannotEmit> {
        match self.kind {
            Kind::Other(kind) => return Some(CannotEmit::NotABaseTable(kind)),
            Kind::Partition => return Some(CannotEmit::Partition),
            Kind::Base => {}
        }
        if !self.settings.cdc_enabled || !self.attached {
            return Some(CannotEmit::OptedOut);
        }
        if !self.access.rls_active && !self.settings.realtime_public {
            return Some(CannotEmit::RlsDisabled);
        }
        if !self.may_select() {
            return Some(CannotEmit::NoPrivilege);
        }
        None
    }

    /// The facts as service_role meets them: it bypasses row security, and is asked for nothing.
    pub fn for_service(mut self) -> TableFacts {
        self.access = Access {
            schema_usage: true,
            select: true,
            rls_active: true,
        };
        for column in &mut self.columns {
            column.facts.readable = true;
        }
        self.describe()
    }

    /// Whether the role may SELECT anything of the table.
    pub fn may_select(&self) -> bool {
        self.access.schema_usage && self.access.select
    }

    /// Whether a name stands for the same column as before, where it stands for one at all: an image has only names, and
    /// may have been printed before or after the change.
    pub fn names_mean_the_same(&self, before: &Table) -> bool {
        self.columns.iter().all(|column| {
            let known = before.column(&column.facts.name);
            known.is_none_or(|known| known.attnum == column.attnum)
        })
    }

    /// Whether an image may have been printed by the table as it is, apart from columns that came or went since: of
    /// those that both have, the order is the same. After columns have swapped names it is not.
    pub fn could_have_printed(&self, image: &Row) -> Result<bool, RowError> {
        if self.partitioned {
            return Ok(true);
        }
        let mut known = self.columns.iter();
        let mut names = image
            .columns()?
            .filter(|column| self.column(&column.name).is_some());
        Ok(names.all(|column| known.any(|known| *known.facts.name == *column.name)))
    }

    /// A column by its exact name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| &*column.facts.name == name)
    }
}

/// What is told of a name that no table has.
pub fn no_such_table(table: TableRef) -> TableFacts {
    TableFacts {
        table,
        relid: 0,
        columns: Box::default(),
        cannot_emit: Some(CannotEmit::NoSuchTable),
        delete_events: false,
    }
}

#[cfg(test)]
pub(crate) mod fixture;
