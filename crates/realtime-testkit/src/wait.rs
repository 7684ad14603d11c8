//! Waiting for conditions.

use std::future::Future;
use std::time::Duration;

/// How long a test waits for something that must happen.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until `check` gives a value.
///
/// # Panics
/// After [`DEADLINE`], naming what was awaited.
pub async fn until<T, F, Fut>(what: &str, mut check: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let polling = async {
        loop {
            if let Some(value) = check().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(DEADLINE, polling).await {
        Ok(value) => value,
        Err(_) => panic!("waited {DEADLINE:?} for: {what}"),
    }
}

/// Waits for a future.
///
/// # Panics
/// After [`DEADLINE`], naming what was awaited.
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {DEADLINE:?} for: {what}"),
    }
}
