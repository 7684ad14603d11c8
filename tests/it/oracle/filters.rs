//! Filters: for random columns and constants, `column=op.constant` parsed, bound and judged here must give
//! what PostgreSQL gives for `column op 'constant'::type` on each row of a table.
//!
//! Where PostgreSQL refuses a constant, so must we. Where only we refuse one, it must be outside the
//! spellings that `realtime_core::value` documents, which are given here once more, as patterns that
//! PostgreSQL itself checks.
//!
//! Each run draws new cases and prints its seed: `ANVILBASE_ORACLE_SEED` repeats it.

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

use realtime_tests::random::Random;

use columns::{Column, Compare};

const ROWS: usize = 30;
const CASES: usize = 4_000;
const PAIRS: usize = 1_000;

/// What PostgreSQL is asked: for each case its answer on every row (`t`, `f` or `u`) or `error`, and whether all its
/// constants are spelled as documented.
const QUESTIONS: &str = r#"
select string_agg(judge(c) || ' ' || (select coalesce(bool_and(v ~ (c->>'form')), true) from jsonb_array_elements_text(c->'values') v),
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
  answers text;
begin
  select string_agg(format('%L::%s', v, c->>'cast'), ', ') into constants
    from jsonb_array_elements_text(c->'values') v;
  execute format('select string_agg(coalesce(left((%s)::text, 1), ''u''), '''' order by row_number) from oracle',
                 replace(c->>'sql', '?', coalesce(constants, ''))) into strict answers;
  return answers;
exception when data_exception or program_limit_exceeded then
  return 'error';
end $$;
"#;

/// One question, and what was made of it here.
struct Case {
    column: &'static Column,
    /// The condition in SQL, `?` for its constants.
    sql: String,
    values: Vec<String>,
    filter: String,
}

#[derive(Default)]
struct Tally {
    matched: usize,
    unmatched: usize,
    refused: usize,
    refused_on_purpose: usize,
}

/// A case that both sides judged, with the answer for each row.
type Judged<'a> = (&'a Case, Vec<bool>);

#[tokio::test]
async fn filters_judge_as_postgresql_does() -> Result<()> {
    let random = Random::new()?;
    let mut rng = random.rng();
    let seed = random.seed();

    let postgres = Postgres::start().await;
    postgres.create_database("oracle").await;
    let client = postgres.connect("oracle").await;
    client.batch_execute(SETTINGS).await?;
    client.batch_execute(JUDGE).await?;
    client.batch_execute(columns::TYPES).await?;
    let facts = facts();
    let mut tallies: Vec<Tally> = columns::COLUMNS.iter().map(|_| Tally::default()).collect();
    for _ in 0..random.scale {
        client.batch_execute(&columns::table(&mut rng, ROWS)).await?;
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
        let mut judged = Vec::new();
        for (case, answer) in cases.iter().zip(answers) {
            let tally = &mut tallies[case.column.position()];
            judged.extend(check(case, answer, &rows, &facts, tally).with_context(|| format!("seed {seed}"))?);
        }
        check_pairs(&judged, &rows, &facts, &mut rng).with_context(|| format!("seed {seed}"))?;
    }
    check_tallies(&tallies)
}

/// Compares one case on all rows. `Some` where both sides judged them.
fn check<'a>(
    case: &'a Case,
    answer: &str,
    rows: &[Row],
    facts: &TableFacts,
    tally: &mut Tally,
) -> Result<Option<Judged<'a>>> {
    let (theirs, documented) = answer.split_once(' ').context("an answer has two words")?;
    let ours = bind(&case.filter, facts);
    let told = || format!("{} of {}", case.filter, case.column.definition);
    let filter = match (ours, theirs) {
        (Err(FilterError::Value { .. }), "error") => {
            tally.refused += 1;
            return Ok(None);
        }
        (Err(FilterError::Value { error, .. }), _) => {
            ensure!(
                documented == "false",
                "refused, though spelled as documented: {}: {error}",
                told()
            );
            tally.refused_on_purpose += 1;
            return Ok(None);
        }
        (Err(error), _) => anyhow::bail!("refused for another reason than its value: {}: {error}", told()),
        (Ok(_), "error") => anyhow::bail!("accepted, though PostgreSQL refuses: {}", told()),
        (Ok(filter), _) => filter,
    };
    let mut matched = Vec::with_capacity(rows.len());
    for (row, theirs) in rows.iter().zip(theirs.chars()) {
        let ours = filter.matches(row);
        ensure!(
            ours == (theirs == 't'),
            "{}: PostgreSQL says {theirs}, we {ours}, of {:?}",
            told(),
            row.get(case.column.name)
        );
        matched.push(ours);
    }
    tally.matched += matched.iter().filter(|matched| **matched).count();
    tally.unmatched += matched.iter().filter(|matched| !**matched).count();
    Ok(Some((case, matched)))
}

/// Each column must have been judged both ways often, or the comparison says nothing of it.
fn check_tallies(tallies: &[Tally]) -> Result<()> {
    let mut comparisons = 0;
    for (column, tally) in columns::COLUMNS.iter().zip(tallies) {
        let Tally {
            matched,
            unmatched,
            refused,
            refused_on_purpose,
        } = tally;
        println!(
            "{:20} matched {matched:5}  unmatched {unmatched:5}  refused {refused:4}  on purpose {refused_on_purpose:4}",
            column.definition
        );
        comparisons += matched + unmatched;
        ensure!(
            *matched >= 100 && *unmatched >= 100,
            "too few comparisons of {}",
            column.definition
        );
    }
    println!("{comparisons} comparisons");
    ensure!(comparisons >= 20_000, "only {comparisons} comparisons");
    Ok(())
}

/// Two conditions hold where both hold.
fn check_pairs(judged: &[Judged<'_>], rows: &[Row], facts: &TableFacts, rng: &mut Rng) -> Result<()> {
    let mut both = 0;
    for _ in 0..PAIRS {
        let (first, matched) = rng.choice(judged).context("no case was judged")?;
        let (second, matched_too) = rng.choice(judged).context("no case was judged")?;
        let text = format!("{}, {}", first.filter, second.filter);
        let filter = bind(&text, facts).with_context(|| text.clone())?;
        for ((row, matched), matched_too) in rows.iter().zip(matched).zip(matched_too) {
            let expected = *matched && *matched_too;
            ensure!(filter.matches(row) == expected, "{text}: expected {expected}");
            both += usize::from(expected);
        }
    }
    ensure!(both >= PAIRS, "only {both} rows matched a pair");
    Ok(())
}

impl Case {
    fn draw(rng: &mut Rng) -> Self {
        let column = &columns::COLUMNS[rng.usize(..columns::COLUMNS.len())];
        let mut operators = vec!["eq", "neq", "in", "isdistinct"];
        if column.ordered() {
            operators.extend(["gt", "gte", "lt", "lte"]);
        }
        if column.compare != Compare::Jsonb {
            operators.push("is");
        }
        let operator = operators[rng.usize(..operators.len())];
        let negated = rng.u8(..3) == 0;
        let values: Vec<String> = match operator {
            "is" => Vec::new(),
            "in" => (0..rng.usize(1..5))
                .map(|_| constants::constant(rng, column))
                .collect(),
            _ => vec![constants::constant(rng, column)],
        };
        let items: Vec<String> = values
            .iter()
            .map(|value| constants::written(rng, value))
            .collect();
        let mut words = vec!["null"];
        if column.compare == Compare::Bool {
            words.extend(["true", "false", "unknown"]);
        }
        let word = words[rng.usize(..words.len())];
        let value = match operator {
            "is" => word.to_owned(),
            "in" => format!("({})", items.join(",")),
            _ => items.concat(),
        };
        let not = if negated { "not." } else { "" };
        let condition = match operator {
            "eq" => "= ?",
            "neq" => "<> ?",
            "gt" => "> ?",
            "gte" => ">= ?",
            "lt" => "< ?",
            "lte" => "<= ?",
            "isdistinct" => "is distinct from ?",
            "in" => "in (?)",
            _ => &format!("is {word}"),
        };
        let sql = format!("{} {condition}", column.sql());
        Self {
            column,
            sql: if negated { format!("not ({sql})") } else { sql },
            values,
            filter: format!("{}={not}{operator}.{value}", column.written()),
        }
    }

    fn question(&self) -> Value {
        json!({ "cast": self.column.cast, "form": self.column.form, "sql": self.sql, "values": self.values })
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
