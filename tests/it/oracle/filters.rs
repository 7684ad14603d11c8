//! Filters: for random columns, rows and constants, `column=op.constant` parsed, bound and judged here must
//! give what PostgreSQL gives for `column op 'constant'::type` on the same row.
//!
//! Where PostgreSQL refuses a constant, so must we. Where only we refuse one, it must be outside the
//! spellings that `realtime_core::value` documents, which are given here once more, as patterns that
//! PostgreSQL itself checks.
//!
//! Each run draws new cases and prints its seed. To repeat a run, build with that seed in
//! `ANVILBASE_ORACLE_SEED`.

mod columns;
mod constants;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use realtime_core::change::Row;
use realtime_core::filter::{BoundFilter, FilterError, FilterExpr, FilterLimits};
use realtime_core::id::TableRef;
use realtime_core::table::TableFacts;
use realtime_testkit::postgres::Postgres;
use serde_json::{Value, json};

use columns::Column;

const ROWS: usize = 60;
const CASES: usize = 6_000;
const PAIRS: usize = 1_000;

/// What PostgreSQL is asked: for each case its answer (`true`, `false`, `unknown` or `error`), and
/// whether all its constants are spelled as documented.
const QUESTIONS: &str = r#"
select string_agg(judge(c) || ' ' || (select bool_and(v ~ (c->>'form')) from jsonb_array_elements_text(c->'values') v),
                  E'\n' order by n)
from jsonb_array_elements($cases$CASES$cases$::jsonb) with ordinality as cases(c, n)
"#;

/// Must judge with the settings that the feed pins while it prints rows.
const SETTINGS: &str = "
set timezone = 'UTC'; set datestyle = 'ISO, MDY'; set intervalstyle = 'postgres'; set bytea_output = 'hex';
set extra_float_digits = 1;
";

const JUDGE: &str = r#"
create function judge(c jsonb) returns text language plpgsql as $$
declare
  constants text;
  answer boolean;
begin
  select string_agg(format('%L::%s', v, c->>'cast'), ', ') into constants
    from jsonb_array_elements_text(c->'values') v;
  execute format('select %I %s (%s) from oracle where row_number = %s',
                 c->>'column', c->>'sql', constants, c->>'row') into strict answer;
  return coalesce(answer::text, 'unknown');
exception when data_exception or invalid_text_representation then
  return 'error';
end $$;
"#;

/// One question, and what was made of it here.
struct Case {
    column: &'static Column,
    operator: &'static str,
    values: Vec<String>,
    row: usize,
    filter: String,
}

#[derive(Default)]
struct Tally {
    matched: usize,
    unmatched: usize,
    refused: usize,
    refused_on_purpose: usize,
}

#[tokio::test]
async fn filters_judge_as_postgresql_does() -> Result<()> {
    let seed = option_env!("ANVILBASE_ORACLE_SEED").map_or_else(|| Ok(fastrand::u64(..)), str::parse)?;
    println!("ANVILBASE_ORACLE_SEED={seed}");
    let mut rng = Rng::with_seed(seed);

    let postgres = Postgres::start().await;
    postgres.create_database("oracle").await;
    let client = postgres.connect("oracle").await;
    client.batch_execute(SETTINGS).await?;
    client.batch_execute(&columns::schema(&mut rng, ROWS)).await?;
    client.batch_execute(JUDGE).await?;

    let rows = client
        .query(
            "select row_to_json(o)::text from oracle o order by row_number",
            &[],
        )
        .await?;
    let rows: Vec<Row> = rows.iter().map(|row| Row::new(row.get::<_, String>(0))).collect();
    ensure!(rows.len() == ROWS);

    let cases: Vec<Case> = (0..CASES).map(|_| Case::draw(&mut rng)).collect();
    let questions = QUESTIONS.replace(
        "CASES",
        &Value::from_iter(cases.iter().map(Case::question)).to_string(),
    );
    let answers: String = client.query_one(&questions, &[]).await?.get(0);
    let answers: Vec<&str> = answers.lines().collect();
    ensure!(
        answers.len() == CASES,
        "PostgreSQL answered {} of {CASES} cases",
        answers.len()
    );

    let facts = facts();
    let mut tallies: Vec<Tally> = columns::COLUMNS.iter().map(|_| Tally::default()).collect();
    let mut judged = Vec::new();
    for (case, answer) in cases.iter().zip(answers) {
        let tally = &mut tallies[case.column.position()];
        if let Some(matched) =
            check(case, answer, &rows, &facts, tally).with_context(|| format!("seed {seed}"))?
        {
            judged.push((case, matched));
        }
    }
    check_tallies(&tallies)?;
    check_pairs(&judged, &rows, &facts, &mut rng).with_context(|| format!("seed {seed}"))
}

/// Compares one answer. `Some` where both sides judged the row.
fn check(
    case: &Case,
    answer: &str,
    rows: &[Row],
    facts: &TableFacts,
    tally: &mut Tally,
) -> Result<Option<bool>> {
    let (theirs, documented) = answer.split_once(' ').context("an answer has two words")?;
    let ours = bind(&case.filter, facts);
    let told = || {
        let value = rows[case.row].get(case.column.name);
        format!(
            "{} on {value:?} of {}: PostgreSQL says {theirs}, we {ours:?}",
            case.filter, case.column.definition
        )
    };
    match (&ours, theirs) {
        (Err(FilterError::Value { .. }), "error") => tally.refused += 1,
        (Err(FilterError::Value { .. }), _) => {
            ensure!(
                documented == "false",
                "refused, though spelled as documented: {}",
                told()
            );
            tally.refused_on_purpose += 1;
        }
        (Err(_), _) => anyhow::bail!("refused for another reason than its value: {}", told()),
        (Ok(_), "error") => anyhow::bail!("accepted, though PostgreSQL refuses: {}", told()),
        (Ok(filter), _) => {
            let matched = filter.matches(&rows[case.row]);
            ensure!(
                matched == (theirs == "true"),
                "another answer: {matched}: {}",
                told()
            );
            *(if matched {
                &mut tally.matched
            } else {
                &mut tally.unmatched
            }) += 1;
            return Ok(Some(matched));
        }
    }
    Ok(None)
}

/// Each column must have been judged both ways often, or the comparison says nothing of it.
fn check_tallies(tallies: &[Tally]) -> Result<()> {
    for (column, tally) in columns::COLUMNS.iter().zip(tallies) {
        let Tally {
            matched,
            unmatched,
            refused,
            refused_on_purpose,
        } = tally;
        println!(
            "{:20} matched {matched:4}  unmatched {unmatched:4}  refused {refused:4}  on purpose {refused_on_purpose:4}",
            column.definition
        );
        ensure!(
            *matched >= 10 && *unmatched >= 10,
            "too few cases of {}",
            column.definition
        );
    }
    Ok(())
}

/// Two conditions hold where both hold.
fn check_pairs(judged: &[(&Case, bool)], rows: &[Row], facts: &TableFacts, rng: &mut Rng) -> Result<()> {
    let mut both = 0;
    for _ in 0..PAIRS {
        let (first, matched) = rng.choice(judged).context("no case was judged")?;
        let of_row: Vec<_> = judged.iter().filter(|(case, _)| case.row == first.row).collect();
        let (second, matched_too) = rng.choice(of_row).context("the first is one of them")?;
        let text = format!("{}, {}", first.filter, second.filter);
        let filter = bind(&text, facts).with_context(|| text.clone())?;
        let expected = *matched && *matched_too;
        ensure!(
            filter.matches(&rows[first.row]) == expected,
            "{text}: expected {expected}"
        );
        both += usize::from(expected);
    }
    ensure!(both >= PAIRS / 20, "only {both} pairs matched");
    Ok(())
}

impl Case {
    fn draw(rng: &mut Rng) -> Self {
        let column = &columns::COLUMNS[rng.usize(..columns::COLUMNS.len())];
        let operators: &[&str] = if column.ordered() {
            &["eq", "neq", "gt", "gte", "lt", "lte", "in"]
        } else {
            &["eq", "neq", "in"]
        };
        let operator = operators[rng.usize(..operators.len())];
        let count = if operator == "in" { rng.usize(1..5) } else { 1 };
        let values: Vec<String> = (0..count).map(|_| constants::constant(rng, column)).collect();
        let items: Vec<String> = values
            .iter()
            .map(|value| constants::written(rng, value))
            .collect();
        let value = if operator == "in" {
            format!("({})", items.join(","))
        } else {
            items.concat()
        };
        let filter = format!("{}={operator}.{value}", column.written());
        Self {
            column,
            operator,
            values,
            row: rng.usize(..ROWS),
            filter,
        }
    }

    fn question(&self) -> Value {
        let sql = match self.operator {
            "eq" => "=",
            "neq" => "<>",
            "gt" => ">",
            "gte" => ">=",
            "lt" => "<",
            "lte" => "<=",
            _ => "in",
        };
        json!({
            "column": self.column.name, "cast": self.column.cast, "form": self.column.form,
            "sql": sql, "values": self.values, "row": self.row,
        })
    }
}

fn facts() -> TableFacts {
    TableFacts {
        table: TableRef::new("public", "oracle"),
        relid: 1,
        columns: columns::COLUMNS.iter().map(Column::facts).collect(),
        cannot_emit: None,
        delete_events: true,
    }
}

fn bind(filter: &str, facts: &TableFacts) -> Result<BoundFilter, FilterError> {
    FilterExpr::parse(filter, &FilterLimits::default())?
        .ok_or(FilterError::EmptySegment)?
        .bind(facts)
}
