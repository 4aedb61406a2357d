//! What was decided about tools before anything is predicted: pins, bans, overrides, and whether
//! writing is wanted.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::id::{OverrideId, SessionId, ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::listing::{ListPolicyName, ReadOnly};
use riglm_domain::prediction::NamePattern;
use riglm_domain::tool::ToolRef;
use riglm_domain::tool_override::{OverrideAction, OverrideScope, ToolOverride};

use super::ask::ListAsk;
use super::lists::Lists;
use super::options::ListOptions;
use crate::search::{Offer, OfferedTool};

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
    (options, is_gated): (&ListOptions, bool),
    overrides: &[ToolOverride],
    ask: &ListAsk<'_>,
    tools: &[OfferedTool],
) -> Vec<Mark> {
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
            let is_it =
                |one: &&&ToolOverride| tool.name == one.tool || tool.tool.is_named(&one.tool);
            for one in holding.iter().filter(is_it) {
                mark = match one.action {
                    OverrideAction::Include => Mark::Include,
                    OverrideAction::Exclude | OverrideAction::Forbid => Mark::Exclude,
                    OverrideAction::Pin => Mark::Pin,
                };
            }
            mark
        })
        .collect()
}

impl Lists {
    /// Returns what is decided about each tool for who asks. Whether writing is gated is no question
    /// for lists that must not depend on sessions.
    pub(super) fn marks(
        &self,
        overrides: &[ToolOverride],
        ask: &ListAsk<'_>,
        tools: &[OfferedTool],
    ) -> Vec<Mark> {
        let options = self.options(ask);
        let is_gated = !ask.is_modern && self.is_gated(&options, ask);
        marks((&options, is_gated), overrides, ask, tools)
    }

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
        let marks = self.marks(&overrides, ask, &tools);
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

impl Lists {
    /// Returns the tools of an offer that the operator hides from who asks, whatever is predicted.
    #[must_use]
    pub fn excluded_of(&self, ask: &ListAsk<'_>, offer: &Offer) -> HashSet<ToolRef> {
        let overrides = self.overrides.load_full();
        let marks = self.marks(&overrides, ask, offer.tools());
        let all = marks.iter().zip(offer.tools());
        let excluded = all.filter(|(mark, _)| **mark == Mark::Exclude);
        excluded.map(|(_, tool)| tool.tool.clone()).collect()
    }

    /// Returns the positions of the tools of an offer that the operator pinned for who asks.
    #[must_use]
    pub fn pinned_of(&self, ask: &ListAsk<'_>, offer: &Offer) -> Vec<usize> {
        let overrides = self.overrides.load_full();
        let marks = self.marks(&overrides, ask, offer.tools());
        let all = marks.iter().enumerate();
        let pinned = all.filter(|(_, mark)| **mark == Mark::Pin);
        pinned.map(|(position, _)| position).collect()
    }
}

/// Returns whether a tool fits one of the patterns, by any of its names.
pub(super) fn fits_any(patterns: &[NamePattern], tool: &OfferedTool) -> bool {
    if patterns.is_empty() {
        return false;
    }
    let names = tool.names();
    let fits = |pattern: &NamePattern| names.iter().any(|name| pattern.matches(name));
    patterns.iter().any(fits)
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
        OverrideScope::Session(session) => {
            let is_connection = |id: SessionId| id.to_string() == *session;
            ask.connection.is_some_and(is_connection)
                || match ask.session {
                    CallSession::Work(id) => id.to_string() == *session,
                    CallSession::Connection(id) => is_connection(id),
                }
        }
    }
}

/// Returns the overrides that hold for who asks, and need not hold for all who share a list with them.
pub(super) fn narrow(overrides: &[ToolOverride], ask: &ListAsk<'_>) -> Vec<OverrideId> {
    let is_narrow = |scope: &OverrideScope| {
        matches!(scope, OverrideScope::Client(_) | OverrideScope::Session(_))
    };
    (overrides.iter())
        .filter(|one| is_narrow(&one.scope) && one.is_active(ask.now) && holds_for(&one.scope, ask))
        .map(|one| one.id)
        .collect()
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
