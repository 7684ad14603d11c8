//! The gateway's arguments.

use std::net::SocketAddr;

use clap::Args;

use crate::authz::AuthzArgs;
use crate::limits::Limits;
use crate::management::operator::ManagementArgs;

/// Arguments of a gateway.
#[derive(Debug, Clone, Args)]
pub struct GatewayArgs {
    /// Address of the edge.
    #[arg(
        long,
        env = "ANVILBASE_REALTIME_GATEWAY_ADDR",
        default_value = "127.0.0.1:4000"
    )]
    pub gateway_addr: SocketAddr,
    /// This gateway's name in other services' logs; made up where it is not given.
    #[arg(long, env = "ANVILBASE_REALTIME_GATEWAY_NAME")]
    pub gateway_name: Option<String>,
    /// Where authz is.
    #[command(flatten)]
    pub authz: AuthzArgs,
    /// What one client may ask for.
    #[command(flatten)]
    pub limits: Limits,
    /// Who may manage projects.
    #[command(flatten)]
    pub management: ManagementArgs,
}
