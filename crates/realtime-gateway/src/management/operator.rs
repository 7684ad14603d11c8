//! The operator's token: read from its file, and again while the gateway runs.
//!
//! Must never go on counting once its file is gone: to take the file away is to take the token back.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use parking_lot::RwLock;
use realtime_node::secret::Secret;
use realtime_node::tasks::Tasks;

/// Shortest operator token: who guesses has all the time there is.
const OPERATOR_TOKEN_BYTES_MIN: usize = 32;

/// Arguments of the management API.
#[derive(Debug, Clone, Default, Args)]
pub struct ManagementArgs {
    /// File with the operator token, at least 32 characters: it may call the management API for every project. Re-read as the projects are. Without it only the projects' own service_role tokens may.
    #[arg(long, env = "ANVILBASE_REALTIME_OPERATOR_TOKEN_FILE")]
    pub operator_token_file: Option<PathBuf>,
}

/// The operator token, if there is one just now. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct OperatorToken(Arc<RwLock<Option<Secret>>>);

impl ManagementArgs {
    /// The operator token, read again every `interval`. Later on, a file whose content is no token is logged once, and
    /// the last good token stays; one that is gone takes its token with it.
    ///
    /// # Errors
    /// The file cannot be read now, or what it holds is too short or has blanks inside.
    pub async fn operator_token(&self, interval: Duration, tasks: &Tasks) -> anyhow::Result<OperatorToken> {
        let Some(path) = self.operator_token_file.clone() else {
            return Ok(OperatorToken::default());
        };
        let token = OperatorToken::from(Some(read(&path).await?));
        let (group, followed) = (tasks.clone(), token.clone());
        tasks.spawn("operator token", async move {
            tokio::select! {
                () = group.cancelled() => {}
                () = followed.follow(&path, interval) => {}
            }
        });
        Ok(token)
    }
}

impl OperatorToken {
    /// Whether a text that somebody sent is the operator token.
    pub fn is(&self, sent: &str) -> bool {
        self.0.read().as_ref().is_some_and(|token| token.is(sent))
    }

    async fn follow(&self, path: &Path, interval: Duration) {
        let mut warned = false;
        loop {
            tokio::time::sleep(interval).await;
            match self.look_again(path).await {
                Ok(()) => warned = false,
                Err(error) if !std::mem::replace(&mut warned, true) => {
                    let stays = self.0.read().is_some();
                    let error = format!("{error:#}");
                    tracing::warn!(error, stays, "the operator token cannot be read again");
                }
                Err(_) => {}
            }
        }
    }

    async fn look_again(&self, path: &Path) -> anyhow::Result<()> {
        match read(path).await {
            Ok(token) => self.put(Some(token)),
            Err(error) => {
                let io = error.downcast_ref::<std::io::Error>();
                if io.is_some_and(|error| error.kind() == ErrorKind::NotFound) {
                    self.put(None);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn put(&self, token: Option<Secret>) {
        let mut known = self.0.write();
        if *known != token {
            tracing::info!(there_is_one = token.is_some(), "the operator token changed");
            *known = token;
        }
    }
}

impl From<Option<Secret>> for OperatorToken {
    fn from(token: Option<Secret>) -> Self {
        Self(Arc::new(RwLock::new(token)))
    }
}

async fn read(path: &Path) -> anyhow::Result<Secret> {
    let shown = path.display();
    let text = tokio::fs::read_to_string(path).await;
    let text = text.with_context(|| format!("operator token file {shown}: cannot be read"))?;
    let token = text.trim();
    if token.len() < OPERATOR_TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "operator token file {shown}: must hold one token of at least {OPERATOR_TOKEN_BYTES_MIN} visible ASCII characters"
        );
    }
    Ok(Secret::new(token))
}

#[cfg(test)]
mod tests {
    use realtime_testkit::wait::until;

    use super::*;

    #[tokio::test]
    async fn another_token_counts_without_a_restart_and_none_once_its_file_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operator");
        let [first, second] = ["1", "2"].map(|digit| digit.repeat(OPERATOR_TOKEN_BYTES_MIN));
        std::fs::write(&path, &first).unwrap();
        let args = ManagementArgs {
            operator_token_file: Some(path.clone()),
        };
        let tasks = Tasks::new();
        let token = args
            .operator_token(Duration::from_millis(5), &tasks)
            .await
            .unwrap();
        assert!(token.is(&first) && !token.is(&second));
        std::fs::write(&path, format!("{second}\n")).unwrap();
        until("the second token", async || token.is(&second).then_some(())).await;
        assert!(!token.is(&first));
        assert!(tasks.drain(Duration::from_secs(1)).await);
        // What is no token leaves the last one.
        std::fs::write(&path, "short").unwrap();
        assert!(token.look_again(&path).await.is_err() && token.is(&second));
        std::fs::remove_file(&path).unwrap();
        assert!(token.look_again(&path).await.is_err());
        assert!(!token.is(&first) && !token.is(&second) && !token.is(""));
    }
}
