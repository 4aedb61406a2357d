//! Options of the commands that pause and resume running proxies.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use humantime_serde::re::humantime;

use super::StoreArgs;
use crate::config::address;

/// The running proxies that a command is for.
#[derive(Clone, Debug, Args)]
pub struct RunningArgs {
    /// The locations and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Control port of the proxy [default: all proxies of this data directory on this machine]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub control: Option<SocketAddr>,
}

/// Options of `pause`.
#[derive(Clone, Debug, Args)]
pub struct PauseArgs {
    /// The proxies.
    #[command(flatten)]
    pub running: RunningArgs,
    /// Resume after this time, such as 30m or 2h [default: at `riglm resume`]
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub duration: Option<Duration>,
}

/// Options of `resume`.
#[derive(Clone, Debug, Args)]
pub struct ResumeArgs {
    /// The proxies.
    #[command(flatten)]
    pub running: RunningArgs,
}
