//! The look-up of a channel's bindings: filters read and bound, tables described, numbers given.
//!
//! Must never bind a filter to a column that the role may not read: the filter would tell its values.

use std::sync::Arc;
use std::time::Duration;

use realtime_core::change::Operation;
use realtime_core::claims::{Claims, Role};
use realtime_core::code::Hint;
use realtime_core::filter::{FilterError, FilterExpr, FilterLimits};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::index::EventFilter;
use realtime_core::table::{CannotEmit, TableFacts};
use realtime_core::view::Selection;
use realtime_core::wire::phoenix::BindingParams;
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::patterns::Hold;
use super::tables::Tables;
use super::{PrepareError, Prepared, PreparedBinding, PreparedFilter};
use crate::ids::Interner;
use crate::limits::Limits;

/// How long a channel's look-up may take in all: below the 10 s after which clients give up a join.
const LOOK_UP_DEADLINE: Duration = Duration::from_secs(8);

/// How long a channel waits for what other channels of its socket are about to let go of, such as
/// itself under its last role.
const PATTERNS_DEADLINE: Duration = Duration::from_secs(1);

/// How often it looks whether a table's are fewer.
const PATTERNS_EVERY: Duration = Duration::from_millis(50);

/// Patterns are counted in units of so many bytes.
const PATTERN_UNIT: usize = 1_024;

/// What all channels of a socket share when they are looked up.
#[derive(Debug)]
pub struct Share {
    /// Whose turn it is to ask authz: see [`Tables::describe_in_turn`].
    turn: Semaphore,
    /// What the patterns of its filters may still take, in units.
    patterns: Arc<Semaphore>,
}

impl Share {
    /// A socket's, before any channel.
    pub fn new(limits: &Limits) -> Self {
        Self {
            turn: Semaphore::new(1),
            patterns: Arc::new(Semaphore::new(
                limits.socket_pattern_bytes_max as usize / PATTERN_UNIT,
            )),
        }
    }

    /// Takes a part for a channel's patterns. `None`: too much is taken.
    async fn patterns(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(PATTERN_UNIT)).ok()?;
        let taken = Arc::clone(&self.patterns).acquire_many_owned(units);
        timeout(PATTERNS_DEADLINE, taken).await.ok()?.ok()
    }
}

/// Looks a channel's bindings up for the role that it runs as.
///
/// # Errors
/// A binding is not valid, or facts could not be read.
pub async fn prepare(
    tables: &Tables,
    share: &Share,
    limits: &Limits,
    interner: &Interner,
    project: &ProjectId,
    claims: &Claims,
    bindings: &[BindingParams],
) -> Result<Prepared, PrepareError> {
    let filters = read_filters(bindings, &limits.filter())?;
    // Before the questions: a change heard of meanwhile makes the answers doubtful.
    let facts_at = tables.changed_at(project);
    let mut named: Vec<TableRef> = bindings.iter().filter_map(BindingParams::one_table).collect();
    named.sort_unstable();
    named.dedup();
    let look_up = async {
        let mut facts = FxHashMap::default();
        for table in named {
            let answer = tables
                .describe_in_turn(project, &table, claims.role(), &share.turn)
                .await;
            facts.insert(table, answer.map_err(|_| PrepareError::Unavailable)?);
        }
        Ok(facts)
    };
    let facts = timeout(LOOK_UP_DEADLINE, look_up)
        .await
        .unwrap_or(Err(PrepareError::Unavailable))?;
    let mut prepared = Vec::with_capacity(bindings.len());
    let mut pattern_bytes = 0;
    for (index, (params, filter)) in bindings.iter().zip(filters).enumerate() {
        let table = params.one_table().and_then(|table| facts.get(&table));
        let binding = match table {
            Some(facts) => prepare_one(params, filter, facts, claims.role(), index)?,
            // Of several tables there is nothing to look up; a filter needs one table.
            None => PreparedBinding {
                params: params.clone(),
                filter: PreparedFilter::None,
                selection: None,
                hint: None,
                hint_text: None,
            },
        };
        let bytes = binding.filter.pattern_bytes();
        if bytes > 0 {
            pattern_bytes += bytes;
            if pattern_bytes > limits.channel_pattern_bytes_max as usize {
                return Err(PrepareError::Patterns {
                    binding: index,
                    of: "channel",
                    bytes_max: limits.channel_pattern_bytes_max,
                });
            }
            // Compiling takes a while: others come first.
            tokio::task::yield_now().await;
        }
        prepared.push(binding);
    }
    let patterns = match pattern_bytes {
        0 => None,
        bytes => Some(share.patterns(bytes).await.ok_or(PrepareError::Patterns {
            binding: bindings.len() - 1,
            of: "socket",
            bytes_max: limits.socket_pattern_bytes_max,
        })?),
    };
    let table_patterns = match pattern_bytes {
        0 => None,
        _ => Some(hold(tables, limits, project, &prepared).await?),
    };
    let ids = interner.intern(project, bindings).ok_or(PrepareError::NoIds)?;
    Ok(Prepared {
        ids,
        bindings: prepared,
        facts: facts_at,
        patterns,
        table_patterns,
    })
}

/// Takes hold of the bindings' patterns on their tables, waiting a while for what others are about to let go of.
async fn hold(
    tables: &Tables,
    limits: &Limits,
    project: &ProjectId,
    bindings: &[PreparedBinding],
) -> Result<Hold, PrepareError> {
    let filters = || {
        bindings.iter().enumerate().filter_map(|(place, binding)| {
            Some((place, binding.params.one_table()?, binding.filter.expression()?))
        })
    };
    let patterns_max = limits.table_patterns_max;
    let until = Instant::now() + PATTERNS_DEADLINE;
    loop {
        match tables.patterns().hold(project, filters(), patterns_max as usize) {
            Ok(hold) => return Ok(hold),
            Err(binding) if Instant::now() >= until => {
                return Err(PrepareError::TablePatterns {
                    binding,
                    patterns_max,
                });
            }
            Err(_) => sleep(PATTERNS_EVERY).await,
        }
    }
}

fn read_filters(
    bindings: &[BindingParams],
    limits: &FilterLimits,
) -> Result<Vec<Option<FilterExpr>>, PrepareError> {
    let read = |(index, binding): (usize, &BindingParams)| match &binding.filter {
        None => Ok(None),
        Some(text) => FilterExpr::parse(text, limits).map_err(|error| PrepareError::Filter {
            binding: index,
            error,
        }),
    };
    bindings.iter().enumerate().map(read).collect()
}

fn prepare_one(
    params: &BindingParams,
    filter: Option<FilterExpr>,
    facts: &TableFacts,
    role: &Role,
    index: usize,
) -> Result<PreparedBinding, PrepareError> {
    let filter = match filter {
        None => PreparedFilter::None,
        Some(filter) => bind(filter, facts).map_err(|error| PrepareError::Filter {
            binding: index,
            error,
        })?,
    };
    let unknown = params.select.iter().flatten().find(|name| {
        let column = facts.column(name);
        has_columns(facts) && !column.is_some_and(|column| column.readable)
    });
    if let Some(column) = unknown {
        return Err(PrepareError::Select {
            binding: index,
            column: column.clone(),
        });
    }
    let (hint, hint_text) = match facts.cannot_emit {
        Some(reason) => (Some(hint_of(reason)), text_of(reason)),
        None => deletes_lost(params.event, &filter, facts, role),
    };
    Ok(PreparedBinding {
        params: params.clone(),
        filter,
        selection: select(params, facts),
        hint,
        hint_text,
    })
}

/// The columns that a binding shows: those that it names, and the key's. `None`: all.
pub fn select(params: &BindingParams, facts: &TableFacts) -> Option<Selection> {
    let names = params.select.as_ref()?.iter().cloned();
    let key = facts.columns.iter().filter(|column| column.key);
    Some(Selection::new(names.chain(key.map(|column| column.name.clone()))))
}

/// Whether the facts name the table's columns, so that what is not among them is none.
fn has_columns(facts: &TableFacts) -> bool {
    match facts.cannot_emit {
        Some(
            CannotEmit::NoSuchTable
            | CannotEmit::NotABaseTable(_)
            | CannotEmit::Partition
            | CannotEmit::NoPrivilege,
        ) => false,
        Some(CannotEmit::OptedOut | CannotEmit::RlsDisabled) | None => true,
    }
}

/// Binds a filter to a table, or keeps it for later where the table has no columns to bind to.
///
/// # Errors
/// The filter does not fit the table.
pub fn bind(filter: FilterExpr, facts: &TableFacts) -> Result<PreparedFilter, FilterError> {
    if !has_columns(facts) {
        return Ok(PreparedFilter::Unbound(filter));
    }
    let bound = filter.bind(facts)?;
    Ok(PreparedFilter::Bound(filter, bound))
}

/// Why a binding that asks for deletes, among others perhaps, gets none, with the sentence.
fn deletes_lost(
    event: EventFilter,
    filter: &PreparedFilter,
    facts: &TableFacts,
    role: &Role,
) -> (Option<Hint>, Option<Box<str>>) {
    let asks = matches!(event, EventFilter::All | EventFilter::Only(Operation::Delete));
    if !asks || role.is_service() {
        return (None, None);
    }
    if !facts.delete_events {
        return (Some(Hint::DeletesWithheld), None);
    }
    let PreparedFilter::Bound(_, bound) = filter else {
        return (None, None);
    };
    let mut others: Vec<&str> = Vec::new();
    for condition in bound.conditions() {
        let key = facts.column(&condition.column).is_some_and(|column| column.key);
        if !key && !others.contains(&&*condition.column) {
            others.push(&condition.column);
        }
    }
    if others.is_empty() {
        return (None, None);
    }
    // What the role may not read it is not told of, not even by name.
    let key = facts
        .columns
        .iter()
        .filter(|column| column.key && column.readable);
    let key: Vec<&str> = key.map(|column| &*column.name).collect();
    let key = if key.is_empty() {
        "none that you may read".to_owned()
    } else {
        key.join(", ")
    };
    let text = format!(
        "No DELETE arrives under a filter on {}: a deleted row shows its primary key only ({key})",
        others.join(", ")
    );
    (Some(Hint::DeleteFilter), Some(text.into()))
}

/// The sentence of a reason that has one of its own.
fn text_of(reason: CannotEmit) -> Option<Box<str>> {
    match reason {
        CannotEmit::NotABaseTable(kind) => {
            let kind = kind.noun();
            Some(format!("This is {kind}, and only tables are on the change feed: no changes arrive").into())
        }
        _ => None,
    }
}

fn hint_of(reason: CannotEmit) -> Hint {
    match reason {
        CannotEmit::NoSuchTable => Hint::NoSuchTable,
        CannotEmit::NotABaseTable(_) => Hint::NotABaseTable,
        CannotEmit::Partition => Hint::Partition,
        CannotEmit::OptedOut => Hint::OptedOut,
        CannotEmit::RlsDisabled => Hint::RlsDisabled,
        CannotEmit::NoPrivilege => Hint::NoPrivilege,
    }
}
