//! Samples into percentiles, percentiles into JSON and a table.
//!
//! Must never average percentiles: passes of one kind are put together first.

use std::time::Duration;

use serde_json::{Value, json};

/// What a run measured.
#[derive(Debug)]
pub struct Report {
    /// What was measured, from which instant to which.
    pub what: &'static str,
    /// Where: cores, versions, settings.
    pub setting: Value,
    /// One per system and rate.
    pub rows: Vec<Row>,
}

/// One system at one rate.
#[derive(Debug)]
pub struct Row {
    /// The system.
    pub system: &'static str,
    /// Commits per second that were asked for.
    pub rate: u32,
    /// What was measured of all passes together.
    pub samples: Samples,
}

/// Measured times of one kind.
#[derive(Debug, Default)]
pub struct Samples {
    /// From just before COMMIT is sent to the receipt.
    pub received: Vec<Duration>,
    /// From just before COMMIT is sent to its answer.
    pub committed: Vec<Duration>,
    /// Changes that never came.
    pub missing: usize,
    /// Time over which the commits were spread.
    pub spread: Duration,
}

impl Samples {
    /// Takes in another pass.
    pub fn add(&mut self, mut pass: Self) {
        self.received.append(&mut pass.received);
        self.committed.append(&mut pass.committed);
        self.missing += pass.missing;
        self.spread += pass.spread;
    }

    /// Commits per second that came about.
    fn rate(&self) -> f64 {
        self.committed.len() as f64 / self.spread.as_secs_f64().max(f64::EPSILON)
    }
}

impl Report {
    /// Whether every change of every pass came.
    pub fn is_whole(&self) -> bool {
        self.rows.iter().all(|row| row.samples.missing == 0)
    }

    /// One JSON object on one line; times in milliseconds.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let samples = &row.samples;
            json!({
                "system": row.system,
                "rate_asked_per_second": row.rate,
                "rate_per_second": rounded(samples.rate()),
                "changes": samples.received.len(),
                "missing": samples.missing,
                "received_ms": percentiles(&samples.received),
                "commit_answer_ms": percentiles(&samples.committed),
            })
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        json!({ "what": self.what, "setting": self.setting, "rows": rows })
    }

    /// The table.
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.what);
        text.push_str("| system | commits/s | p50 ms | p95 ms | p99 ms | max ms | COMMIT answered p50 ms | changes | missing |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
        for row in &self.rows {
            let [p50, p95, p99, max] = QUANTILES.map(|(_, q)| ms(quantile(&row.samples.received, q)));
            let commit = ms(quantile(&row.samples.committed, 0.5));
            let rate = row.samples.rate();
            let (changes, missing) = (row.samples.received.len(), row.samples.missing);
            text.push_str(&format!(
                "| {} | {rate:.0} | {p50:.2} | {p95:.2} | {p99:.2} | {max:.2} | {commit:.2} | {changes} | {missing} |\n",
                row.system
            ));
        }
        text
    }
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)];

fn percentiles(samples: &[Duration]) -> Value {
    let of = |(name, q): (&str, f64)| (name.to_owned(), rounded(ms(quantile(samples, q))).into());
    Value::Object(QUANTILES.map(of).into_iter().collect())
}

/// The sample that the share `q` of all samples does not exceed (nearest rank); zero of none.
fn quantile(samples: &[Duration], q: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_sample_of_its_rank() {
        let samples: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let at = |q| quantile(&samples, q).as_millis();
        assert_eq!([at(0.5), at(0.95), at(0.99), at(1.0)], [100, 190, 198, 200]);
        assert_eq!(quantile(&samples[..1], 0.5).as_millis(), 200);
        assert_eq!(quantile(&[], 0.99), Duration::ZERO);
    }

    #[test]
    fn passes_are_put_together_and_a_missing_change_shows() {
        let pass = |ms, missing| Samples {
            received: vec![Duration::from_millis(ms)],
            committed: vec![Duration::from_millis(1)],
            missing,
            spread: Duration::from_secs(1),
        };
        let mut samples = pass(3, 0);
        samples.add(pass(5, 1));
        let report = Report {
            what: "w",
            setting: Value::Null,
            rows: vec![Row {
                system: "s",
                rate: 1,
                samples,
            }],
        };
        assert!(!report.is_whole());
        let row = &report.json()["rows"][0];
        assert_eq!(
            (&row["received_ms"]["max"], &row["changes"]),
            (&json!(5.0), &json!(2))
        );
        assert!(
            report
                .markdown()
                .contains("| s | 1 | 3.00 | 5.00 | 5.00 | 5.00 | 1.00 | 2 | 1 |")
        );
    }
}
