//! What it costs to find the bindings of one change, beside asking each binding.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the benchmark")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use realtime_core::change::{ChangeEvent, Operation, Position, Row};
use realtime_core::filter::{FilterExpr, FilterLimits};
use realtime_core::id::TableRef;
use realtime_core::index::{BindingSpec, EventFilter, SubscriptionIndex};
use realtime_core::table::{Collation, ColumnFacts, Comparison, TableFacts};

fn facts() -> TableFacts {
    let column = |name: &str, type_name: &str, compare| ColumnFacts {
        name: name.into(),
        type_name: type_name.into(),
        compare,
        readable: true,
        key: name == "id",
    };
    let text = Comparison::Text(Collation::C);
    TableFacts {
        table: TableRef::new("public", "orders"),
        relid: 1,
        columns: [
            column("id", "int8", Comparison::Decimal),
            column("user_id", "uuid", Comparison::Uuid),
            column("region", "text", text),
            column("amount", "numeric", Comparison::Decimal),
        ]
        .into(),
        cannot_emit: None,
        delete_events: true,
    }
}

fn user(n: usize) -> String {
    format!("a0eebc99-9c0b-4ef8-bb6d-{n:012x}")
}

/// The n-th of so many bindings, by shape.
fn filter(shape: &str, n: usize, of: usize) -> String {
    match shape {
        "equality" => format!("user_id=eq.{}", user(n)),
        "list" => format!("user_id=in.({},{},{})", user(n), user(n + of), user(n + 2 * of)),
        // About twenty of them match the event.
        "range" => format!("amount=gt.{}", 480 + n),
        "window" => format!("amount=gte.{},amount=lt.{}", n * 10, n * 10 + 200),
        "two conditions" => format!("region=eq.eu,id=eq.{n}"),
        _ => unreachable!("a shape of the list below"),
    }
}

fn event() -> ChangeEvent {
    let row = format!(
        r#"{{"id":500,"user_id":"{}","region":"eu","amount":500.00,"note":"{}"}}"#,
        user(500),
        "x".repeat(200)
    );
    ChangeEvent {
        id: "n".into(),
        relid: 1,
        table: TableRef::new("public", "orders"),
        operation: Operation::Insert,
        commit_timestamp: "2026-06-04T10:00:00.123Z".into(),
        new: Some(Row::new(row)),
        old: None,
        primary_key: None,
        marker: None,
        position: Position::default(),
    }
}

fn candidates(criterion: &mut Criterion) {
    let (facts, event) = (facts(), event());
    for shape in ["equality", "list", "range", "window", "two conditions"] {
        let mut group = criterion.benchmark_group(shape);
        for of in [1_000, 100_000] {
            let spec = |n| {
                let text = filter(shape, n, of);
                let filter = FilterExpr::parse(&text, &FilterLimits::default())
                    .unwrap()
                    .unwrap();
                BindingSpec::new(Some("public"), Some("orders"), EventFilter::All, false)
                    .with_filter(Some(filter.bind(&facts).unwrap()))
            };
            let specs: Vec<BindingSpec> = (0..of).map(spec).collect();
            let mut index = SubscriptionIndex::new();
            for (key, spec) in specs.iter().enumerate() {
                index.insert(key, spec.clone());
            }
            let mut out = Vec::new();
            group.bench_function(BenchmarkId::new("index", of), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    index.candidates(&event, &mut out)
                });
            });
            let mut naive = Vec::new();
            group.bench_function(BenchmarkId::new("scan", of), |bencher| {
                bencher.iter(|| {
                    naive.clear();
                    let matching = specs.iter().enumerate().filter(|(_, spec)| spec.admits(&event));
                    naive.extend(matching.map(|(key, _)| key));
                });
            });
            naive.sort_unstable();
            out.sort_unstable();
            assert_eq!(out, naive, "the index and the scan must agree");
        }
        group.finish();
    }
}

fn insert_and_remove(criterion: &mut Criterion) {
    let facts = facts();
    let mut group = criterion.benchmark_group("upkeep");
    for of in [1_000, 100_000] {
        let spec = |n| {
            let filter = FilterExpr::parse(&filter("equality", n, of), &FilterLimits::default());
            BindingSpec::new(Some("public"), Some("orders"), EventFilter::All, false)
                .with_filter(Some(filter.unwrap().unwrap().bind(&facts).unwrap()))
        };
        let mut index = SubscriptionIndex::new();
        for key in 0..of {
            index.insert(key, spec(key));
        }
        let one = spec(of);
        group.bench_function(BenchmarkId::new("remove and insert", of), |bencher| {
            bencher.iter(|| index.insert(of, one.clone()));
        });
    }
    group.finish();
}

criterion_group!(benches, candidates, insert_and_remove);
criterion_main!(benches);
