//! Making tokens.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use realtime_node::secret::Secret;
use serde_json::{Map, Value};

use crate::output::print;

/// Arguments of `anvilbase token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// File with the project's token secret; the file of a project's catalog is not one.
    #[arg(long)]
    secret_file: PathBuf,
    /// The role that the token names.
    #[arg(long, default_value = "authenticated")]
    role: String,
    /// The user's id.
    #[arg(long)]
    sub: Option<String>,
    /// The project that the token is for.
    #[arg(long)]
    project: Option<String>,
    /// Further claims, as a JSON object.
    #[arg(long, value_name = "JSON")]
    claims: Option<String>,
    /// How long it is good for, in seconds.
    #[arg(long, default_value_t = 3600)]
    expires_seconds: u64,
}

/// Prints a token.
pub async fn run(args: &TokenArgs) -> anyhow::Result<()> {
    let path = &args.secret_file;
    let text = tokio::fs::read_to_string(path)
        .await
        .with_context(|| format!("--secret-file {}", path.display()))?;
    let secret = Secret::new(text.trim_end());
    let mut claims = match &args.claims {
        None => Map::new(),
        Some(text) => match serde_json::from_str(text) {
            Ok(Value::Object(claims)) => claims,
            _ => bail!("--claims: must be a JSON object"),
        },
    };
    if let Some(sub) = &args.sub {
        claims.insert("sub".into(), sub.clone().into());
    }
    if let Some(project) = &args.project {
        claims.insert("ref".into(), project.clone().into());
    }
    print(&format!(
        "{}\n",
        mint(&secret, &args.role, args.expires_seconds, claims)?
    ))
}

/// An HS256 token over `claims`, with a role and an expiry.
///
/// # Errors
/// The secret is empty.
pub fn mint(
    secret: &Secret,
    role: &str,
    expires_seconds: u64,
    claims: Map<String, Value>,
) -> anyhow::Result<String> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?
        .as_secs();
    let mut claims = claims;
    claims.insert("role".into(), role.into());
    claims.insert("iat".into(), now.into());
    claims.insert("exp".into(), now.saturating_add(expires_seconds).into());
    let key =
        EncodingKey::from_secret(secret.expose().as_bytes()).context("token secret: must not be empty")?;
    encode(&Header::new(Algorithm::HS256), &claims, &key).context("token: cannot be signed")
}
