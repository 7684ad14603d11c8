//! The management API of a gateway, as its client.
//!
//! Must never take the key as an argument, nor show it: other users of a machine see arguments.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use realtime_core::id::ProjectId;
use realtime_node::args::from_environment;
use realtime_node::fetch::{Call, FetchLimits, FetchUrl, Method, call};
use realtime_node::secret::Secret;
use serde::Deserialize;

use crate::output::harmless;

const LIMITS: FetchLimits = FetchLimits {
    bytes_max: 64 << 20,
    deadline: Duration::from_secs(30),
};

/// Where the API is, and who asks.
#[derive(Debug, Clone, Args)]
#[command(after_help = KEY_HELP)]
pub struct ApiArgs {
    /// The project.
    #[arg(long)]
    pub project: ProjectId,
    /// The gateway: https, or http on this machine.
    #[arg(long, env = "ANVILBASE_REALTIME_URL", default_value = "http://127.0.0.1:4000")]
    url: String,
    /// File with the key: a service_role token of the project, or the operator token. Without it the key is
    /// taken from the environment variable ANVILBASE_REALTIME_KEY.
    #[arg(long, env = "ANVILBASE_REALTIME_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// File with the certificate authority of the gateway, PEM; the system's without one.
    #[arg(long, env = "ANVILBASE_REALTIME_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Print the API's answer as JSON.
    #[arg(long)]
    pub json: bool,
}

const KEY_HELP: &str = "The key is a service_role token of the project, or the operator token: in the file that --key-file \
     names, or in ANVILBASE_REALTIME_KEY.\nExit codes: 0 done, 1 failed, 2 used wrongly.";

/// Taken from the environment only.
#[derive(Args)]
struct Key {
    #[arg(long, env = "ANVILBASE_REALTIME_KEY", hide_env_values = true)]
    key: Option<Secret>,
}

/// A gateway, and who asks it for which project.
pub struct Api {
    base: String,
    project: ProjectId,
    key: Secret,
    ca_file: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Refused {
    error: RefusedError,
}

#[derive(Deserialize)]
struct RefusedError {
    code: String,
    message: String,
}

impl ApiArgs {
    /// The API, once the key is read.
    ///
    /// # Errors
    /// The address cannot be used, or there is no key.
    pub fn api(&self) -> anyhow::Result<Api> {
        let base = self.url.trim_end_matches('/');
        if base.contains(['?', '#']) {
            bail!("--url: must be an address without a query");
        }
        // Each call's own address is parsed again; the rule is told here, with the argument's name.
        base.parse::<FetchUrl>().context("--url")?;
        let key = match &self.key_file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                Some(Secret::new(
                    text.with_context(|| format!("--key-file {}", path.display()))?
                        .trim(),
                ))
            }
            None => from_environment::<Key>()?.key,
        };
        let key = key.filter(|key| !key.expose().is_empty()).context(
            "no key: name a file that holds a service_role token of the project, or the operator token, with --key-file; or set ANVILBASE_REALTIME_KEY",
        )?;
        Ok(Api {
            base: base.to_owned(),
            project: self.project.clone(),
            key,
            ca_file: self.ca_file.clone(),
        })
    }
}

impl Api {
    /// Calls `/api/v1/projects/<project>/realtime/<path>`, and gives the body of an answer of status 200.
    ///
    /// # Errors
    /// The gateway cannot be reached, or refuses; with its sentence.
    pub async fn call(&self, method: Method, path: &str, body: Option<String>) -> anyhow::Result<String> {
        let Self {
            base,
            project,
            key,
            ca_file,
        } = self;
        let url = format!("{base}/api/v1/projects/{project}/realtime/{path}");
        let url: FetchUrl = url.parse().context("--url")?;
        let asked = Call {
            method,
            token: key,
            body,
        };
        let answer = call(&url, asked, ca_file.as_deref(), LIMITS).await;
        let answer = answer.with_context(|| format!("the gateway {base} (--url, ANVILBASE_REALTIME_URL)"))?;
        let text = String::from_utf8(answer.body.into()).unwrap_or_default();
        if answer.status == 200 {
            return Ok(text);
        }
        match serde_json::from_str::<Refused>(&text) {
            Ok(Refused { error }) => {
                bail!("{} ({})", harmless(&error.message), harmless(&error.code))
            }
            Err(_) => bail!(
                "{base} answered with status {} and not as the management API does: is this the gateway's address?",
                answer.status
            ),
        }
    }
}

/// A text as one segment of a path, or as a value of a query.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // A dot too: a path of dots alone means another place.
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_segment() {
        assert_eq!(encode("orders"), "orders");
        assert_eq!(encode("a/b?c#d e.é%"), "a%2Fb%3Fc%23d%20e%2E%C3%A9%25");
        assert_eq!(encode(".."), "%2E%2E");
    }
}
