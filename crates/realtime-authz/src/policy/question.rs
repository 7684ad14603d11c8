//! The one statement that is asked for each subject, and what its answer means.
//!
//! Must never hold a user's value in its text: names are quoted, conditions are the catalog's
//! own, and everything else is a parameter.

use std::fmt::Write as _;

use realtime_core::change::{ChangeEvent, Operation, Row};
use realtime_core::claims::Role;
use realtime_core::verdict::DropReason;
use realtime_node::postgres::quote_identifier;

use super::image::{Image, Unreadable};
use super::{Outcome, Sight, statement_key};
use crate::pools::{Plans, StatementKey};
use crate::probe::Probe;
use crate::tables::Table;

/// `true` while the subject's role and claims are in force; `$1` and `$2` are theirs.
const IN_FORCE: &str = "(current_user::pg_catalog.text OPERATOR(pg_catalog.=) $1 \
     AND pg_catalog.current_setting('request.jwt.claims', true) OPERATOR(pg_catalog.=) $2)";

/// A statement with its parameters, the same for every subject of one role but for `$1` and `$2`.
#[derive(Debug)]
pub struct Question {
    /// What to prepare.
    pub key: StatementKey,
    /// Parameters from `$3` on.
    pub values: Vec<String>,
    /// Whether one subject's plan may serve the next.
    pub plans: Plans,
    layout: Layout,
    simpler: Option<Box<Question>>,
    image_check: Option<Box<Question>>,
}

/// Which columns of the answer mean what; the checks stand between them.
#[derive(Debug, Clone, Copy, Default)]
struct Layout {
    /// Ways to read the new image.
    new: usize,
    /// The new image's ways hold the right one.
    new_exact: bool,
    /// The row was also looked for by its key.
    probed: bool,
    /// Ways to read the old image.
    old: usize,
    /// The old image's ways hold the right one.
    old_exact: bool,
}

/// What the database said for one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    new: Reading,
    probe: Option<bool>,
    old: Reading,
}

/// What came of an image's ways to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// There is no such image.
    Absent,
    /// Every way says so, and one of them is right.
    Certain(bool),
    /// Visible by one way at least, but not for certain.
    Possible,
}

/// Why there is nothing to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unaskable(pub DropReason);

impl From<Unreadable> for Unaskable {
    fn from(_: Unreadable) -> Self {
        Self(DropReason::ImageUnreadable)
    }
}

/// How an image is made ready.
type Prepare = fn(&Table, &Row) -> Result<Image, Unreadable>;

impl Question {
    /// Are the event's images visible? `condition` is the table's policy.
    ///
    /// # Errors
    /// An image cannot be turned back into a row.
    pub fn images(
        table: &Table,
        event: &ChangeEvent,
        role: &Role,
        condition: &str,
    ) -> Result<Self, Unaskable> {
        let new = event.new.as_ref().ok_or(Unaskable(DropReason::ImageUnreadable))?;
        let old = event
            .old
            .as_ref()
            .filter(|_| event.operation == Operation::Update);
        let over = |old, prepare: Prepare| Self::over(table, role, condition, (new, old), prepare);
        let mut question = over(None, Image::plain)?;
        // From the last resort to the whole question: an error about the row before must not hide the
        // row after, nor one way to read an image another.
        let fuller: [(Option<&Row>, Prepare); 3] =
            [(None, Image::new), (old, Image::plain), (old, Image::new)];
        for (old, prepare) in fuller {
            let next = over(old, prepare)?;
            if next.key != question.key {
                question = Self {
                    simpler: Some(Box::new(question)),
                    ..next
                };
            }
        }
        Ok(question)
    }

    /// Is the row with the event's key there, and visible?
    ///
    /// # Errors
    /// The event or the table has no key, or the role may not read it.
    pub fn key(table: &Table, event: &ChangeEvent, role: &Role) -> Result<Self, Unaskable> {
        let row = event.new.as_ref().ok_or(Unaskable(DropReason::NoKey))?;
        let probe = Probe::new(table, row)?;
        let mut builder = Builder::new();
        builder.push_probe(table, probe);
        Ok(builder.finish(
            table,
            role,
            Layout {
                probed: true,
                ..Layout::default()
            },
        ))
    }

    fn over(
        table: &Table,
        role: &Role,
        condition: &str,
        (new, old): (&Row, Option<&Row>),
        prepare: Prepare,
    ) -> Result<Self, Unaskable> {
        let mut builder = Builder::new();
        let mut check = Builder::new();
        let new_image = prepare(table, new)?;
        let mut layout = Layout {
            new: new_image.ways.len(),
            new_exact: new_image.exact,
            ..Layout::default()
        };
        builder.push_image(table, &new_image, condition);
        check.push_image(table, &new_image, "true");
        if !new_image.exact || new_image.ways.len() > 1 {
            // Without a key there is nothing to add, and what is only possible stays unseen.
            if let Ok(probe) = Probe::new(table, new) {
                builder.push_probe(table, probe);
                layout.probed = true;
            }
        }
        // A row before that cannot be read is not shown; the row after may be.
        if let Some(old_image) = old.and_then(|old| prepare(table, old).ok()) {
            builder.push_image(table, &old_image, condition);
            layout.old = old_image.ways.len();
            layout.old_exact = old_image.exact;
        }
        let mut question = builder.finish(table, role, layout);
        let checked = Layout {
            new: layout.new,
            new_exact: layout.new_exact,
            ..Layout::default()
        };
        question.image_check = Some(Box::new(check.finish(table, role, checked)));
        Ok(question)
    }

    /// Parameters of the statement.
    pub fn parameters(&self) -> usize {
        self.values.len() + 2
    }

    /// A question that asks for less: of the new row only, or with fewer ways to read it. What was
    /// left out may have raised an error that is not the row's own.
    pub fn simpler(&self) -> Option<&Question> {
        self.simpler.as_deref()
    }

    /// Whether the images become rows at all, without the policy.
    pub fn image_check(&self) -> Option<&Question> {
        self.image_check.as_deref()
    }

    /// Reads an answer; `None` where the subject's role or claims were not in force all along.
    pub fn answer(&self, said: &[Option<bool>]) -> Option<Answer> {
        let asked = self.layout.new + usize::from(self.layout.probed) + self.layout.old;
        let is_true = |at: usize| said.get(at) == Some(&Some(true));
        // The checks stand between, before and behind what was asked.
        if said.len() != 2 * asked + 1 || !(0..=asked).all(|at| is_true(2 * at)) {
            return None;
        }
        let said: Vec<bool> = (0..asked).map(|at| is_true(2 * at + 1)).collect();
        let (new, rest) = said.split_at(self.layout.new);
        let (probe, old) = rest.split_at(usize::from(self.layout.probed));
        Some(Answer {
            new: Reading::of(new, self.layout.new_exact),
            probe: probe.first().copied(),
            old: Reading::of(old, self.layout.old_exact),
        })
    }
}

impl Reading {
    fn of(ways: &[bool], exact: bool) -> Self {
        if ways.is_empty() {
            Self::Absent
        } else if ways.iter().all(|visible| !visible) {
            Self::Certain(false)
        } else if exact && ways.iter().all(|visible| *visible) {
            Self::Certain(true)
        } else {
            Self::Possible
        }
    }
}

impl Answer {
    /// What the subject sees. An image that is only possibly visible needs the row itself to be
    /// visible too; of the row before the change nobody can ask that any more.
    pub fn outcome(&self) -> Outcome {
        let probed = self.probe == Some(true);
        let new = match self.new {
            Reading::Certain(visible) => visible,
            Reading::Possible | Reading::Absent => probed,
        };
        Outcome::Sees(Sight {
            new,
            old: self.old == Reading::Certain(true),
        })
    }
}

/// Builds the statement, which gives one list: `check, part, check, part, …, check`.
struct Builder {
    sql: String,
    values: Vec<String>,
}

impl Builder {
    fn new() -> Self {
        Self {
            sql: format!("SELECT ARRAY[{IN_FORCE}"),
            values: Vec::new(),
        }
    }

    fn push_image(&mut self, table: &Table, image: &Image, condition: &str) {
        let alias = quote_identifier(&table.table.table);
        self.values.push(image.json.clone());
        // $1 and $2 are the subject's.
        let json = format!("${}::pg_catalog.text::pg_catalog.json", self.values.len() + 2);
        for json_nulls in &image.ways {
            // A function in FROM, so that the alias stands for a row of the table's own type; the
            // condition in WHERE, where PostgreSQL orders its parts as it does those of row security.
            // Writing to a String cannot fail.
            let row = row(table, &json, json_nulls);
            let _ = write!(
                self.sql,
                ", EXISTS (SELECT FROM {row} AS {alias} WHERE {condition}), {IN_FORCE}"
            );
        }
    }

    fn push_probe(&mut self, table: &Table, probe: Probe) {
        let mut terms = Vec::with_capacity(probe.terms.len());
        for term in probe.terms {
            // $1 and $2 are the subject's.
            terms.push(term.sql(self.values.len() + 3));
            self.values.push(term.value);
        }
        let relation = relation(table);
        let terms = terms.join(" AND ");
        let _ = write!(
            self.sql,
            ", EXISTS (SELECT FROM {relation} AS r WHERE {terms}), {IN_FORCE}"
        );
    }

    fn finish(self, table: &Table, role: &Role, layout: Layout) -> Question {
        let key = statement_key(table, role, self.sql + "]");
        Question {
            key,
            values: self.values,
            plans: if table.plans_lie { Plans::Anew } else { Plans::Kept },
            layout,
            simpler: None,
            image_check: None,
        }
    }
}

/// The row of an image as an item of FROM, with the JSON value null in the columns at `json_nulls`:
/// what JSON calls null, `json_populate_record` makes SQL NULL of.
fn row(table: &Table, json: &str, json_nulls: &[usize]) -> String {
    let row_type = relation(table);
    if json_nulls.is_empty() {
        return format!("pg_catalog.json_populate_record(NULL::{row_type}, {json})");
    }
    let columns = table
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| match json_nulls.contains(&at) {
            true => "'null'".to_owned(),
            false => format!("v.{}", quote_identifier(&column.facts.name)),
        });
    let columns: Vec<String> = columns.collect();
    // A row laid over with nothing stays as it is, and is an item of FROM like the other.
    format!(
        "pg_catalog.json_populate_record((SELECT ROW({})::{row_type} \
         FROM pg_catalog.json_populate_record(NULL::{row_type}, {json}) AS v), '{{}}'::pg_catalog.json)",
        columns.join(", ")
    )
}

/// A table's name as SQL, which is also the name of its row type.
pub(crate) fn relation(table: &Table) -> String {
    format!(
        "{}.{}",
        quote_identifier(&table.table.schema),
        quote_identifier(&table.table.table)
    )
}
