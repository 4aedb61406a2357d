//! What was decided about tools before anything is predicted: pins, bans, overrides, and whether
//! writing is wanted.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::listing::{Access, ListPolicyName, ReadOnly, access_of};
use riglm_domain::prediction::NamePattern;
use riglm_domain::tool::ToolRef;
use riglm_domain::tool_override::{OverrideAction, OverrideScope, ToolOverride};

use super::ask::ListAsk;
use super::lists::Lists;
use super::options::ListOptions;
use crate::search::OfferedTool;

/// What is decided about one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing.
    #[default]
    None,
    /// It is shown.
    Include,
    /// It is shown before all others.
    Pin,
    /// It is not shown.
    Exclude,
}

/// Returns what is decided about each tool: by the configuration first, then by the overrides that
/// hold for who asks, of which the narrower decides over the wider.
pub(super) fn marks(
    options: &ListOptions,
    overrides: &[ToolOverride],
    ask: &ListAsk<'_>,
    tools: &[OfferedTool],
) -> Vec<Mark> {
    let is_gated = options.gate_writes && !ask.is_modern && is_reading(ask);
    let mut holding: Vec<&ToolOverride> = (overrides.iter())
        .filter(|one| one.is_active(ask.now) && holds_for(&one.scope, ask))
        .collect();
    holding.sort_by_key(|one| (width(&one.scope), one.created_at, one.id));
    tools
        .iter()
        .map(|tool| {
            let is_pinned = fits_any(&options.pins, tool);
            let mut mark = if fits_any(&options.bans, tool) {
                Mark::Exclude
            } else if is_pinned {
                Mark::Pin
            } else if is_gated && ReadOnly::of_definition(&tool.definition) != ReadOnly::Yes {
                Mark::Exclude
            } else {
                Mark::None
            };
            let names = [tool.name.as_str(), tool.tool.tool.as_str()];
            for one in holding
                .iter()
                .filter(|one| names.contains(&one.tool.as_str()))
            {
                mark = match one.action {
                    OverrideAction::Include => Mark::Include,
                    OverrideAction::Exclude => Mark::Exclude,
                    OverrideAction::Pin => Mark::Pin,
                };
            }
            mark
        })
        .collect()
}

impl Lists {
    /// Returns the positions of the tools that are not shown to who asks, whatever is predicted, of
    /// tools of which nothing is known but their names.
    #[must_use]
    pub fn excluded(
        &self,
        ask: &ListAsk<'_>,
        upstream: &UpstreamName,
        names: &[ToolName],
    ) -> Vec<usize> {
        let tools: Vec<OfferedTool> = names
            .iter()
            .map(|name| OfferedTool {
                name: name.as_str().to_owned(),
                tool: ToolRef {
                    upstream: upstream.clone(),
                    tool: name.clone(),
                },
                definition: Arc::default(),
                is_hidden: false,
            })
            .collect();
        let overrides = self.overrides.load_full();
        let options = self.options(ask);
        let marks = marks(&options, &overrides, ask, &tools);
        let is_left_out = |tool: &OfferedTool| match self.policy(ask) {
            ListPolicyName::Allowlist => !fits_any(&options.allow, tool),
            ListPolicyName::Denylist => fits_any(&options.deny, tool),
            _ => false,
        };
        let all = marks.iter().zip(&tools).enumerate();
        all.filter(|(_, (mark, tool))| match mark {
            Mark::Exclude => true,
            Mark::None => is_left_out(tool),
            Mark::Include | Mark::Pin => false,
        })
        .map(|(at, _)| at)
        .collect()
    }
}

/// Returns whether a tool fits one of the patterns, by either of its names.
pub(super) fn fits_any(patterns: &[NamePattern], tool: &OfferedTool) -> bool {
    let shown = ToolName::from(tool.name.as_str());
    let mut patterns = patterns.iter();
    patterns.any(|pattern| pattern.matches(&tool.tool.tool) || pattern.matches(&shown))
}

fn is_reading(ask: &ListAsk<'_>) -> bool {
    let intent = ask.intent.map(|intent| access_of(&intent.text));
    intent.flatten() == Some(Access::Read)
}

fn holds_for(scope: &OverrideScope, ask: &ListAsk<'_>) -> bool {
    match scope {
        OverrideScope::Global => true,
        OverrideScope::Profile(profile) => ask.profile == Some(profile),
        OverrideScope::Client(client) => ask
            .client_hash
            .is_some_and(|hash| hash.to_string() == *client),
        // The list of a modern client depends on no session.
        OverrideScope::Session(_) if ask.is_modern => false,
        OverrideScope::Session(session) => match ask.session {
            CallSession::Work(id) => id.to_string() == *session,
            CallSession::Connection(id) => id.to_string() == *session,
        },
    }
}

fn width(scope: &OverrideScope) -> u8 {
    match scope {
        OverrideScope::Global => 0,
        OverrideScope::Profile(_) => 1,
        OverrideScope::Client(_) => 2,
        OverrideScope::Session(_) => 3,
    }
}

/// Returns the overrides that hold at a moment, and when the first of them ends.
pub(super) fn next_end(overrides: &[ToolOverride], now: Timestamp) -> Option<Timestamp> {
    let ends = overrides.iter().filter_map(|one| one.expires_at);
    ends.filter(|end| *end > now).min()
}
