//! The look-up of a channel's bindings: filters read and bound, tables described, numbers given.
//!
//! Must never bind a filter to a column that the role may not read: the filter would tell its values.

use futures_util::future::join_all;
use realtime_core::change::Operation;
use realtime_core::claims::{Claims, Role};
use realtime_core::code::Hint;
use realtime_core::filter::{FilterError, FilterExpr, FilterLimits};
use realtime_core::id::{ProjectId, TableRef};
use realtime_core::index::EventFilter;
use realtime_core::table::{CannotEmit, TableFacts};
use realtime_core::wire::phoenix::BindingParams;
use rustc_hash::FxHashMap;

use super::tables::Tables;
use super::{PrepareError, Prepared, PreparedBinding, PreparedFilter};
use crate::ids::Interner;

/// Looks a channel's bindings up for the role that it runs as.
///
/// # Errors
/// A filter is not valid, or facts could not be read.
pub async fn prepare(
    tables: &Tables,
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
    let answers = join_all(
        named
            .iter()
            .map(|table| tables.describe(project, table, claims.role())),
    )
    .await;
    let mut facts = FxHashMap::default();
    for (table, answer) in named.into_iter().zip(answers) {
        facts.insert(table, answer.map_err(|_| PrepareError::Unavailable)?);
    }
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
    let hint = facts.cannot_emit.map(hint_of);
    let filter = match filter {
        None => PreparedFilter::None,
        Some(filter) => bind(filter, facts)?,
    };
    let hint =
        hint.or_else(|| deletes_are_lost(params.event, &filter, facts, role).then_some(Hint::DeleteFilter));
    Ok(PreparedBinding {
        params: params.clone(),
        filter,
        hint,
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
            | CannotEmit::NotABaseTable
            | CannotEmit::Partition
            | CannotEmit::NoPrivilege,
        ) => Ok(PreparedFilter::Unbound(filter)),
        Some(CannotEmit::OptedOut | CannotEmit::RlsDisabled) | None => {
            let bound = filter.bind(facts)?;
            Ok(PreparedFilter::Bound(filter, bound))
        }
    }
}

/// Whether a binding for deletes alone has a filter under which none can be delivered.
fn deletes_are_lost(event: EventFilter, filter: &PreparedFilter, facts: &TableFacts, role: &Role) -> bool {
    let PreparedFilter::Bound(_, bound) = filter else {
        return false;
    };
    event == EventFilter::Only(Operation::Delete)
        && !role.is_service()
        && !bound.only_on(|column| facts.column(column).is_some_and(|column| column.key))
}

fn hint_of(reason: CannotEmit) -> Hint {
    match reason {
        CannotEmit::NoSuchTable => Hint::NoSuchTable,
        CannotEmit::NotABaseTable => Hint::NotABaseTable,
        CannotEmit::Partition => Hint::Partition,
        CannotEmit::OptedOut => Hint::OptedOut,
        CannotEmit::RlsDisabled => Hint::RlsDisabled,
        CannotEmit::NoPrivilege => Hint::NoPrivilege,
    }
}
