//! Patterns: what `like`, `ilike`, `match` and `imatch` say of random texts must be what PostgreSQL says, in
//! databases whose own collation takes different things for letters.
//!
//! The letters are told by PostgreSQL itself, as authz asks it. A pattern that is drawn from what is documented to be
//! accepted must be accepted; one that was damaged afterwards may be refused, but where both accept it they must agree.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use realtime_core::pattern::{Pattern, PatternError, Style};
use realtime_core::table::Letters;
use realtime_testkit::postgres::Postgres;
use realtime_tests::random::Random;
use serde_json::{Value, json};
use tokio_postgres::Client;

const TEXTS: usize = 40;
const CASES: usize = 1_500;
const PATTERN_BYTES_MAX: usize = 131_072;

/// Databases by what their own collation is.
const DATABASES: [(&str, &str); 3] = [
    ("c", "lc_collate 'C' lc_ctype 'C'"),
    ("libc", "lc_collate 'C' lc_ctype 'C.UTF-8'"),
    ("icu", "locale_provider icu icu_locale 'en' locale 'C.UTF-8'"),
];

const LETTERS: &str = "select lower('İ'), lower(U&'\\212A'), lower('A') = 'a', lower('Ä') = 'ä'";

const JUDGE: &str = r#"
create function judge(c jsonb) returns text language plpgsql as $$
declare answers text;
begin
  execute format('select string_agg(left((t %s %L)::text, 1), '''' order by n) from texts', c->>'sql', c->>'pattern')
    into strict answers;
  return answers;
exception when data_exception or invalid_regular_expression then
  return 'error';
end $$;
"#;

const QUESTIONS: &str = "select string_agg(judge(c), E'\\n' order by n) \
    from jsonb_array_elements($cases$CASES$cases$::jsonb) with ordinality as cases(c, n)";

struct Case {
    style: Style,
    pattern: String,
    /// It may be refused.
    damaged: bool,
}

#[derive(Debug, Default)]
struct Tally {
    matched: usize,
    unmatched: usize,
    refused: usize,
    refused_alone: usize,
}

#[tokio::test]
async fn patterns_match_as_postgresql_does() -> Result<()> {
    let random = Random::new()?;
    let mut rng = random.rng();
    let postgres = Postgres::start().await;
    let admin = postgres.connect("postgres").await;
    for (name, collation) in DATABASES {
        let create = format!("create database {name} template template0 {collation}");
        // Not every build of PostgreSQL has ICU.
        if name == "icu"
            && !postgres
                .can("create collation probe (provider = icu, locale = 'en')")
                .await
        {
            continue;
        }
        admin.batch_execute(&create).await?;
        let client = postgres.connect(name).await;
        client.batch_execute(JUDGE).await?;
        client
            .batch_execute("create table texts (n serial, t text)")
            .await?;
        let letters = letters(&client).await?;
        let mut tally = Tally::default();
        for _ in 0..random.scale {
            round(&client, &mut rng, &letters, &mut tally)
                .await
                .with_context(|| format!("database {name}, seed {}", random.seed()))?;
        }
        println!("{name:5} {letters:?}: {tally:?}");
        let accepted = tally.matched + tally.unmatched;
        ensure!(tally.matched * 20 > accepted && tally.unmatched * 20 > accepted);
        ensure!(accepted >= 20_000, "only {accepted} comparisons");
        ensure!(tally.refused > 0 && tally.refused_alone > 0);
    }
    Ok(())
}

async fn letters(client: &Client) -> Result<Letters> {
    let row = client.query_one(LETTERS, &[]).await?;
    ensure!(row.get::<_, bool>(2));
    Ok(if row.get(3) {
        Letters::Wide {
            dotted_i: row.get::<_, &str>(0).into(),
            kelvin: row.get::<_, &str>(1).into(),
        }
    } else {
        Letters::Ascii
    })
}

async fn round(client: &Client, rng: &mut Rng, letters: &Letters, tally: &mut Tally) -> Result<()> {
    let texts: Vec<String> = (0..TEXTS).map(|_| text(rng)).collect();
    client.batch_execute("truncate texts").await?;
    client
        .execute("insert into texts (t) select unnest($1::text[])", &[&texts])
        .await?;
    let cases: Vec<Case> = (0..CASES).map(|_| Case::draw(rng, letters)).collect();
    let questions = Value::from_iter(cases.iter().map(Case::question)).to_string();
    let answers: String = client
        .query_one(&QUESTIONS.replace("CASES", &questions), &[])
        .await?
        .get(0);
    ensure!(answers.lines().count() == CASES);
    for (case, theirs) in cases.iter().zip(answers.lines()) {
        check(case, theirs, &texts, letters, tally)
            .with_context(|| format!("{:?} {:?}", case.style, case.pattern))?;
    }
    Ok(())
}

fn check(case: &Case, theirs: &str, texts: &[String], letters: &Letters, tally: &mut Tally) -> Result<()> {
    let pattern = match (
        Pattern::new(case.style, &case.pattern, letters, PATTERN_BYTES_MAX),
        theirs,
    ) {
        (Err(_), "error") => {
            tally.refused += 1;
            return Ok(());
        }
        (Err(error), _) => {
            let limit = matches!(error, PatternError::TooComplex { .. });
            ensure!(case.damaged || limit, "refused, though as documented: {error}");
            tally.refused_alone += 1;
            return Ok(());
        }
        (Ok(_), "error") => anyhow::bail!("accepted, though PostgreSQL refuses"),
        (Ok(pattern), _) => pattern,
    };
    for (text, theirs) in texts.iter().zip(theirs.chars()) {
        let ours = pattern.matches(text);
        ensure!(
            ours == (theirs == 't'),
            "PostgreSQL says {theirs}, we {ours}, of {text:?}"
        );
        *(if ours {
            &mut tally.matched
        } else {
            &mut tally.unmatched
        }) += 1;
    }
    Ok(())
}

impl Case {
    fn draw(rng: &mut Rng, letters: &Letters) -> Self {
        let style = [Style::Like, Style::ILike, Style::Match, Style::IMatch][rng.usize(..4)];
        let ignores_case = matches!(style, Style::ILike | Style::IMatch);
        let drawing = Drawing {
            wide: !ignores_case || *letters == Letters::Ascii,
            classes: *letters == Letters::Ascii,
        };
        let pattern = match style {
            Style::Like | Style::ILike => drawing.like(rng),
            Style::Match | Style::IMatch => drawing.expression(rng, 3),
        };
        let damaged = rng.u8(..5) == 0;
        Self {
            style,
            pattern: if damaged { damage(rng, &pattern) } else { pattern },
            damaged,
        }
    }

    fn question(&self) -> Value {
        let sql = match self.style {
            Style::Like => "like",
            Style::ILike => "ilike",
            Style::Match => "~",
            Style::IMatch => "~*",
        };
        json!({ "sql": sql, "pattern": self.pattern })
    }
}

/// What patterns may be drawn from.
struct Drawing {
    /// Characters beyond ASCII.
    wide: bool,
    /// `\d` and its kin.
    classes: bool,
}

const ASCII: [&str; 12] = ["a", "b", "A", "B", "k", "K", "i", "I", "1", " ", "-", ","];
const WIDE: [&str; 10] = ["ä", "Ä", "é", "İ", "ı", "\u{212a}", "ſ", "日", "😀", "Σ"];

impl Drawing {
    fn character<'a>(&self, rng: &mut Rng) -> &'a str {
        if self.wide && rng.u8(..3) == 0 {
            one(rng, &WIDE)
        } else {
            one(rng, &ASCII)
        }
    }

    fn like(&self, rng: &mut Rng) -> String {
        (0..rng.usize(..7))
            .map(|_| match rng.u8(..8) {
                0..=2 => "%".to_owned(),
                3 => "_".to_owned(),
                4 => one(rng, &[r"\%", r"\_", r"\\", r"\a"]).to_owned(),
                _ => self.character(rng).to_owned(),
            })
            .collect()
    }

    fn expression(&self, rng: &mut Rng, levels: u8) -> String {
        let branches: Vec<String> = (0..1 + usize::from(rng.u8(..4) == 0))
            .map(|_| self.branch(rng, levels))
            .collect();
        branches.join("|")
    }

    fn branch(&self, rng: &mut Rng, levels: u8) -> String {
        let mut out = String::new();
        for _ in 0..rng.usize(..4) {
            match rng.u8(..12) {
                0 => out += one(rng, &["^", "$", r"\A", r"\Z"]),
                _ => {
                    out += &self.atom(rng, levels);
                    out += one(
                        rng,
                        &[
                            "", "", "", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "??",
                            "{1,2}?", "{0}",
                        ],
                    );
                }
            }
        }
        out
    }

    fn atom(&self, rng: &mut Rng, levels: u8) -> String {
        match rng.u8(..10) {
            0 | 1 => ".".to_owned(),
            2 if levels > 0 => format!("({})", self.expression(rng, levels - 1)),
            3 if levels > 0 => format!("(?:{})", self.expression(rng, levels - 1)),
            4 => self.set(rng),
            5 => one(
                rng,
                &[
                    r"\.", r"\*", r"\\", r"\(", r"\[", r"\-", r"\_", r"\t", r"\n", r"\{", "}", "]",
                ],
            )
            .to_owned(),
            6 if self.classes => one(rng, &[r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"]).to_owned(),
            _ => self.character(rng).to_owned(),
        }
    }

    fn set(&self, rng: &mut Rng) -> String {
        let mut out = String::from(one(rng, &["[", "[^", "[-", "[]"]));
        for _ in 0..rng.usize(1..4) {
            match rng.u8(..6) {
                0 => out += one(rng, &["a-c", "A-K", "0-9", "+-9", "i-k", "Z-a"]),
                1 if self.wide => out += one(rng, &["à-ï", "a-ä", "Α-Ω"]),
                2 => out += one(rng, &[r"\]", r"\\", r"\-", r"\^", "$", ".", "*", "(", r"\t"]),
                3 if self.classes => out += one(rng, &[r"\d", r"\w", r"\s"]),
                _ => {
                    let character = self.character(rng);
                    out += if character == "-" { r"\-" } else { character };
                }
            }
        }
        out += one(rng, &["]", "]", "-]"]);
        out
    }
}

fn text(rng: &mut Rng) -> String {
    (0..rng.usize(..7))
        .map(|_| match rng.u8(..6) {
            0 => one(
                rng,
                &[
                    "\n", "\t", "_", "%", "\\", ".", "(", "[", "]", "}", "^", "*", "x", "Ω",
                ],
            ),
            1 | 2 => one(rng, &WIDE),
            _ => one(rng, &ASCII),
        })
        .collect()
}

/// A pattern with one character taken out, put in or changed.
fn damage(rng: &mut Rng, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = rng.usize(..=chars.len());
    let put = one(
        rng,
        &[
            "*",
            "+",
            "?",
            "{",
            "}",
            "(",
            ")",
            "[",
            "]",
            "^",
            "$",
            "|",
            "\\",
            "-",
            "\\1",
            "(?i)",
            "\\y",
            "{3}",
            "ä",
            "\\d",
            "[:alpha:]",
            "***=",
            "(?=a)",
            "\\x41",
            "{,2}",
        ],
    )
    .chars();
    match rng.u8(..3) {
        0 if at < chars.len() => {
            chars.remove(at);
        }
        1 if at < chars.len() => {
            chars.splice(at..=at, put);
        }
        _ => {
            chars.splice(at..at, put);
        }
    }
    chars.into_iter().collect()
}

fn one<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}
