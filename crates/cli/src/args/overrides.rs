//! Options of `override`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use riglm_domain::tool_override::{OverrideAction, OverrideScope};

use super::{Moment, StoreArgs};

/// What to do with overrides.
#[derive(Clone, Debug, Subcommand)]
pub enum OverrideCommand {
    /// List the overrides that hold now, oldest first
    List(StoreArgs),
    /// Decide about a tool, in the place of what was decided for the same tool and scope
    Add(OverrideAddArgs),
    /// Take a decision back
    Remove(OverrideRemoveArgs),
}

/// Options of `override add`.
#[derive(Clone, Debug, Args)]
pub struct OverrideAddArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The tool, by the name that clients see or the one that its upstream gives it
    #[arg(value_name = "TOOL", value_parser = text::<MAX_NAME_CHARS>)]
    pub tool: String,
    /// What becomes of it: include shows it, exclude hides it, pin shows it first, forbid also has
    /// its calls refused
    #[arg(long, value_name = "ACTION",
        value_parser = PossibleValuesParser::new(OverrideAction::ALL.map(OverrideAction::as_str))
            .try_map(|name| OverrideAction::parse(&name).ok_or("unknown action")))]
    pub action: OverrideAction,
    /// For whom it holds.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// When it ends: after a time such as 30m, 2h or 7d, or at a moment such as
    /// 2030-01-31T12:00:00Z, in UTC without an offset; otherwise never
    #[arg(long, value_name = "DURATION|TIME")]
    pub expires: Option<Moment>,
    /// Why, for those who see the override and for who is refused a forbidden tool
    #[arg(long, value_name = "TEXT", value_parser = text::<MAX_REASON_CHARS>)]
    pub reason: Option<String>,
    /// Also decide about a tool that no upstream listed so far
    #[arg(long)]
    pub allow_unknown: bool,
}

/// For whom an override holds; for everybody without any of these.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct ScopeArgs {
    /// Only for this session: a work session or a connection
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Only for this client: its `client_id` in `riglm sessions --json`, or its name where one client
    /// alone has it
    #[arg(long, value_name = "ID")]
    pub client: Option<String>,
    /// Only for clients under this profile
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
}

impl ScopeArgs {
    /// Returns the scope.
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
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The override, by its identifier in `riglm override list`
    #[arg(value_name = "ID")]
    pub id: String,
}

/// The longest name of a tool, in characters.
const MAX_NAME_CHARS: usize = 10_000;
/// The longest reason, in characters.
const MAX_REASON_CHARS: usize = 1_000;

/// Returns a text that is not empty and not too long.
fn text<const MAX_CHARS: usize>(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0 => Err("it is empty".into()),
        n if n > MAX_CHARS => Err(format!("it has more than {MAX_CHARS} characters")),
        _ => Ok(text.to_owned()),
    }
}
