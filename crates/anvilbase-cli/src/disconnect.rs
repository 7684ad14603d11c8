//! `anvilbase realtime disconnect`.

use clap::{ArgGroup, Args};
use realtime_node::fetch::Method;
use serde_json::json;

use crate::api::ApiArgs;
use crate::output::{harmless, print};

/// Arguments of `anvilbase realtime disconnect`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("who").required(true))]
pub struct DisconnectArgs {
    /// The user, as the `sub` claim of their tokens says.
    #[arg(long, group = "who")]
    sub: Option<String>,
    /// One sign-in of a user, as the `session_id` claim of its tokens says.
    #[arg(long, group = "who")]
    session_id: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// Tells every gateway.
pub async fn run(args: &DisconnectArgs) -> anyhow::Result<()> {
    let body = match (&args.sub, &args.session_id) {
        (Some(sub), _) => json!({ "sub": sub }),
        (None, session_id) => json!({ "session_id": session_id }),
    };
    let api = args.api.api()?;
    let answer = api
        .call(Method::POST, "disconnect", Some(body.to_string()))
        .await?;
    if args.api.json {
        return print(&format!("{}\n", harmless(&answer)));
    }
    print("the gateways were told; tokens that still count let their bearers come back\n")
}
