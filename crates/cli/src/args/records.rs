//! Options of the commands that show calls, tools and upstreams.

use std::net::SocketAddr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};
use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::usage::invocation::{CallState, Outcome};

use super::{LocationArgs, Moment, OutputFormat, StoreArgs};
use crate::config::address;

/// The name of the state of calls that have not ended.
const IN_FLIGHT: &str = "in-flight";

/// The default limit of listed calls.
const USUAL_LIMIT: u32 = 1_000;

/// The default limit of recorded calls before the live ones, with `--follow`.
const USUAL_LIMIT_OF_FOLLOWED: u32 = 10;

/// Options of `calls`.
#[derive(Clone, Debug, Args)]
pub struct CallsArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Print a JSON array; with --follow one object per line
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
    /// Print only the number of calls
    #[arg(long, conflicts_with = "format")]
    pub count: bool,
    /// Only calls of this session
    #[arg(long, value_name = "ID")]
    pub session: Option<SessionId>,
    /// Only calls of this tool, by its own name or the name that clients see
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Only calls to this upstream
    #[arg(long, value_name = "NAME", value_parser = UpstreamName::parse)]
    pub upstream: Option<UpstreamName>,
    /// Only calls with this outcome, or in flight
    #[arg(long, value_name = "OUTCOME", value_parser = state_parser())]
    pub outcome: Option<StateChoice>,
    /// Only calls received since then: a duration such as 30m or 7d, or a time (UTC without an
    /// offset)
    #[arg(long, value_name = "DURATION|TIME")]
    pub since: Option<Moment>,
    /// Continue with new calls as they end, until interrupted
    #[arg(long, conflicts_with = "count")]
    pub follow: bool,
    /// Maximum number of calls to list, the newest ones [default: 1000, with --follow 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
}

impl CallsArgs {
    /// Returns the maximum number of recorded calls to list.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.unwrap_or(if self.follow {
            USUAL_LIMIT_OF_FOLLOWED
        } else {
            USUAL_LIMIT
        })
    }

    /// Returns the state of the selected calls, or `None` for all.
    #[must_use]
    pub fn state(&self) -> Option<CallState> {
        self.outcome.map(|StateChoice(state)| state)
    }
}

/// The state of calls, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChoice(CallState);

fn state_parser() -> impl TypedValueParser<Value = StateChoice> {
    let names = (Outcome::ALL.iter().map(|it| it.as_str())).chain([IN_FLIGHT]);
    PossibleValuesParser::new(names).try_map(|name| {
        if name == IN_FLIGHT {
            return Ok(StateChoice(CallState::InFlight));
        }
        let outcome = name.parse::<Outcome>();
        outcome.map(|outcome| StateChoice(CallState::Ended(outcome)))
    })
}

/// The sort key of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sorting {
    /// Upstream and name
    Name,
    /// Number of calls, most first
    Calls,
    /// Number of failed calls, most first
    Errors,
    /// Median of the durations, longest first
    P50,
    /// 95th percentile of the durations, longest first
    P95,
    /// Last call, newest first
    LastUsed,
    /// Tokens of the definition, most first
    Tokens,
}

/// Options of `tools`.
#[derive(Clone, Debug, Args)]
pub struct ToolsArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Only tools of this upstream
    #[arg(long, value_name = "NAME", value_parser = UpstreamName::parse)]
    pub upstream: Option<UpstreamName>,
    /// Sort key
    #[arg(long, value_enum, value_name = "KEY", default_value = "name")]
    pub sort: Sorting,
    /// Number of days, up to now, for which calls are counted
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}

/// Options of `upstreams`.
#[derive(Clone, Debug, Args)]
pub struct UpstreamsArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Number of days, up to now, for which calls are counted
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// Address of the control port to ask [default: all control ports of the data directory]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub control: Option<SocketAddr>,
}
