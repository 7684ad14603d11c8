//! How long to wait before the next try.

use std::time::Duration;

/// A ladder of delays with jitter: each step once, the last one for ever.
#[derive(Debug, Clone)]
pub struct Backoff {
    steps: &'static [Duration],
    next: usize,
}

/// 0.5, 1, 2, 4, 8 s, then every 8 s: for sessions with the database.
pub const SESSION_STEPS: &[Duration] = &[
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

impl Backoff {
    /// A ladder over `steps`; an empty one waits a second each time.
    pub fn new(steps: &'static [Duration]) -> Self {
        Self { steps, next: 0 }
    }

    /// The next delay: the step's length, less up to a quarter of it, so that processes that
    /// failed together do not come back together.
    pub fn next_delay(&mut self) -> Duration {
        let step = self.steps.get(self.next).or(self.steps.last()).copied();
        self.next = (self.next + 1).min(self.steps.len());
        jittered(step.unwrap_or(Duration::from_secs(1)))
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.next = 0;
    }
}

/// A delay less up to a quarter of it.
pub fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(1.0 - fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_rise_then_stay_and_begin_anew() {
        let mut backoff = Backoff::new(SESSION_STEPS);
        let within = |delay: Duration, step: u64| {
            let step = Duration::from_millis(step);
            delay <= step && delay >= step * 3 / 4
        };
        for step in [500, 1000, 2000, 4000, 8000, 8000, 8000] {
            assert!(within(backoff.next_delay(), step));
        }
        backoff.reset();
        assert!(within(backoff.next_delay(), 500));
    }
}
