//! Options of `override`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope};

use super::{Moment, StoreArgs};

/// A command of `riglm override`.
#[derive(Clone, Debug, Subcommand)]
pub enum OverrideCommand {
    /// List the overrides in effect, oldest first
    List(StoreArgs),
    /// Add an override, replacing one for the same tool and scope
    Add(OverrideAddArgs),
    /// Remove an override
    Remove(OverrideRemoveArgs),
}

/// Options of `override add`.
#[derive(Clone, Debug, Args)]
pub struct OverrideAddArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Tool, by the name that clients see or its name at the upstream
    #[arg(value_name = "TOOL", value_parser = text::<MAX_NAME_CHARS>)]
    pub tool: String,
    /// Action: include shows the tool, exclude hides it, pin shows it first, forbid also refuses
    /// its calls
    #[arg(long, value_name = "ACTION",
        value_parser = PossibleValuesParser::new(OverrideAction::ALL.iter().map(|it| it.as_str()))
            .try_map(|name| name.parse::<OverrideAction>()))]
    pub action: OverrideAction,
    /// The scope of the override.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// End of the override: a duration such as 30m, 2h or 7d, or a time such as
    /// 2030-01-31T12:00:00Z (UTC without an offset) [default: never]
    #[arg(long, value_name = "DURATION|TIME")]
    pub expires: Option<Moment>,
    /// Reason, shown with the override and to clients whose call of a forbidden tool is refused
    #[arg(long, value_name = "TEXT", value_parser = text::<MAX_REASON_CHARS>)]
    pub reason: Option<String>,
    /// Accept a tool that no upstream has listed so far
    #[arg(long)]
    pub allow_unknown: bool,
}

/// The scope of an override: everybody without any of these options.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct ScopeArgs {
    /// Only for this session: a work session or a connection
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Only for this client: its `client_id` in `riglm sessions --json`, or its name if only one
    /// client has it
    #[arg(long, value_name = "ID")]
    pub client: Option<String>,
    /// Only for clients with this profile
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
}

impl ScopeArgs {
    /// Returns the scope of the override.
    pub fn scope(&self) -> OverrideScope {
        let session = || self.session.clone().map(OverrideScope::Session);
        let client = || self.client.clone().map(OverrideScope::Client);
        let profile = || self.profile.clone().map(OverrideScope::Profile);
        let narrow = session().or_else(client).or_else(profile);
        narrow.unwrap_or(OverrideScope::Global)
    }
}

/// Options of `override remove`.
#[derive(Clone, Debug, Args)]
pub struct OverrideRemoveArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Identifier of the override, see `riglm override list`
    #[arg(value_name = "ID")]
    pub id: String,
}

/// The longest name of a tool, in characters.
const MAX_NAME_CHARS: usize = 10_000;
/// The longest reason, in characters.
const MAX_REASON_CHARS: usize = 1_000;

/// The reason why a text is refused.
#[derive(Clone, Debug, thiserror::Error)]
enum TextError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The text is too long.
    #[error("it has more than {0} characters")]
    TooLong(usize),
}

fn text<const MAX_CHARS: usize>(text: &str) -> Result<String, TextError> {
    match text.chars().count() {
        0 => Err(TextError::Empty),
        n if n > MAX_CHARS => Err(TextError::TooLong(MAX_CHARS)),
        _ => Ok(text.to_owned()),
    }
}
