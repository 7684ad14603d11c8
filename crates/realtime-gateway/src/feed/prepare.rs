//! The look-up of a channel's bindings: filters read and bound, tables described, numbers given.
//!
//! Must never bind a filter to a column that the role may not read: the filter would tell its values.

use std::time::Duration;

use realtime_core::change::Operation;
use realtime_core::claims::{Claims, Role};
use realtime_core::code::Hint;
use realtime_core::filter::{FilterError, FilterExpr, FilterLimits};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::index::EventFilter;
use realtime_core::table::{CannotEmit, TableFacts};
use realtime_core::wire::phoenix::BindingParams;
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::tables::Tables;
use super::{PrepareError, Prepared, PreparedBinding, PreparedFilter};
use crate::ids::Interner;

/// How long a channel's look-up may take in all: below the 10 s after which clients give up a join.
const LOOK_UP_DEADLINE: Duration = Duration::from_secs(8);

/// Looks a channel's bindings up for the role that it runs as. `turn` is the session's: see
/// [`Tables::describe_in_turn`].
///
/// # Errors
/// A filter is not valid, or facts could not be read.
pub async fn prepare(
    tables: &Tables,
    turn: &Semaphore,
    interner: &Interner,
    project: &ProjectId,
    claims: &Claims,
    bindings: &[BindingParams],
) -> Result<Prepared, PrepareError> {
    let filters = read_filters(bindings)?;
    // Before the questions: a change heard of meanwhile makes the answers doubtful.
    let facts_at = tables.changed_at(project);
    let mut named: Vec<TableRef> = bindings.iter().filter_map(BindingParams::one_table).collect();
    named.sort_unstable();
    named.dedup();
    let look_up = async {
        let mut facts = FxHashMap::default();
        for table in named {
            let answer = tables
                .describe_in_turn(project, &table, claims.role(), turn)
                .await;
            facts.insert(table, answer.map_err(|_| PrepareError::Unavailable)?);
        }
        Ok(facts)
    };
    let facts = timeout(LOOK_UP_DEADLINE, look_up)
        .await
        .unwrap_or(Err(PrepareError::Unavailable))?;
    let mut prepared = Vec::with_capacity(bindings.len());
    for (index, (params, filter)) in bindings.iter().zip(filters).enumerate() {
        let table = params.one_table().and_then(|table| facts.get(&table));
        let binding = match table {
            Some(facts) => {
                prepare_one(params, filter, facts, claims.role()).map_err(|error| PrepareError::Filter {
                    binding: index,
                    error,
                })?
            }
            // Of several tables there is nothing to look up; a filter needs one table.
            None => PreparedBinding {
                params: params.clone(),
                filter: PreparedFilter::None,
                hint: None,
                hint_text: None,
            },
        };
        prepared.push(binding);
    }
    let ids = interner.intern(project, bindings).ok_or(PrepareError::NoIds)?;
    Ok(Prepared {
        ids,
        bindings: prepared,
        facts: facts_at,
    })
}

fn read_filters(bindings: &[BindingParams]) -> Result<Vec<Option<FilterExpr>>, PrepareError> {
    let limits = FilterLimits::default();
    let read = |(index, binding): (usize, &BindingParams)| match &binding.filter {
        None => Ok(None),
        Some(text) => FilterExpr::parse(text, &limits).map_err(|error| PrepareError::Filter {
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
) -> Result<PreparedBinding, FilterError> {
    let filter = match filter {
        None => PreparedFilter::None,
        Some(filter) => bind(filter, facts)?,
    };
    let (hint, hint_text) = match facts.cannot_emit {
        Some(reason) => (Some(hint_of(reason)), text_of(reason)),
        None => deletes_lost(params.event, &filter, facts, role),
    };
    Ok(PreparedBinding {
        params: params.clone(),
        filter,
        hint,
        hint_text,
    })
}

/// Binds a filter to a table, or keeps it for later where the table has no columns to bind to.
///
/// # Errors
/// The filter does not fit the table.
pub fn bind(filter: FilterExpr, facts: &TableFacts) -> Result<PreparedFilter, FilterError> {
    match facts.cannot_emit {
        Some(
            CannotEmit::NoSuchTable
            | CannotEmit::NotABaseTable(_)
            | CannotEmit::Partition
            | CannotEmit::NoPrivilege,
        ) => Ok(PreparedFilter::Unbound(filter)),
        Some(CannotEmit::OptedOut | CannotEmit::RlsDisabled) | None => {
            let bound = filter.bind(facts)?;
            Ok(PreparedFilter::Bound(filter, bound))
        }
    }
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
