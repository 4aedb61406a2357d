//! The tool that shows the session: its list with reasons, the recent calls, and the tools that are
//! likely next. The text is for the model, the structured result for the app of the proxy.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::mcp::request_hints::SESSION_HEADER;
use riglm_domain::prediction::Explanation;
use riglm_domain::selection::shown::{SelectionReason, explain_selection};
use serde_json::{Value, json};

use super::answer::{ToolCaller, failure, result};
use super::call_hints::MAX_NAME_CHARS;
use crate::proxy::client_context::SessionMembers;
use crate::proxy::list_composer::{ForecastBasis, ListComposer, SessionRef};
use crate::proxy::list_template::ListFetchError;
use crate::proxy::recent_calls::{EndedCall, SessionCalls};
use crate::selection::{ListForecast, PlacementReason, ShownList};
use riglm_discovery::search::{Catalog, CatalogTool};

/// The number of tools that are likely next.
const N_NEXT: usize = 8;
/// The number of these tools in the text for the model.
const N_NAMED: usize = 3;
/// The maximum number of tools of a view: of those in the list, and of the hidden ones.
const MAX_TOOLS: usize = 200;
/// The maximum size of the names of these tools in bytes.
const MAX_NAME_BYTES: usize = 128 << 10;

/// Returns the JSON text of the result of a call of the tool that shows the session.
pub(super) async fn show_session(
    requester: &ToolCaller<'_>,
    catalog: Result<Arc<Catalog>, ListFetchError>,
) -> String {
    let catalog = match catalog {
        Ok(catalog) => catalog,
        Err(reason) => {
            let problem = format!("failed to show the session: {reason}");
            return failure(requester.era, &problem);
        }
    };
    let placed = PlacedTools::new(requester, &catalog);
    let forecast = forecast(requester, &catalog).await;
    let calls = ShownCalls::of(requester);
    let view = json!({
        "at": requester.shared.recorder.now().to_string(),
        "list": placed.list_json(requester.shown.as_deref()),
        "shown": placed.shown.json(),
        "hidden": placed.hidden.json(),
        "calls": calls.json(&catalog),
        "n_calls": calls.visible_calls().map(<[EndedCall]>::len),
        "n_failed": calls.visible_calls().map(n_failed),
        "calls_note": calls.note(),
        "next": next_json(forecast.as_ref()),
    });
    let text = text(&placed, requester, &calls, forecast.as_ref());
    result(requester, &text, Some(&view.to_string()))
}

/// The recent calls, as far as the client may see them.
enum ShownCalls {
    Known(SessionCalls),
    /// Other clients may belong to the session, so its calls may be theirs.
    Shared,
}

impl ShownCalls {
    fn of(requester: &ToolCaller<'_>) -> Self {
        match requester.members {
            SessionMembers::One => {
                Self::Known(requester.client_context.calls.of(requester.session))
            }
            SessionMembers::Many => Self::Shared,
        }
    }

    /// Returns the calls, the newest first; `None` if they are not shown.
    fn visible_calls(&self) -> Option<&[EndedCall]> {
        match self {
            Self::Known(calls) => Some(&calls.calls),
            Self::Shared => None,
        }
    }

    fn json(&self, catalog: &Catalog) -> Value {
        let calls = self.visible_calls().unwrap_or_default().iter();
        calls.map(|call| call_json(call, catalog)).collect()
    }

    /// Returns the explanation of missing calls; `None` if none are missing.
    fn note(&self) -> Option<String> {
        match self {
            Self::Known(calls) if calls.is_cut => {
                let n_calls = calls.calls.len();
                Some(format!("Only the last {n_calls} calls are remembered."))
            }
            Self::Known(_) => None,
            Self::Shared => Some(format!(
                "Recent calls are not shown: requests without a session key ({SESSION_HEADER}) share \
                 a session with other clients of this name."
            )),
        }
    }

    /// Returns the sentence for the model.
    fn sentence(&self) -> String {
        let Self::Known(calls) = self else {
            return self.note().unwrap_or_default();
        };
        let n_calls = calls.calls.len();
        let last = if calls.is_cut { "the last " } else { "" };
        let failed = match n_failed(&calls.calls) {
            0 => String::new(),
            n => format!(", {n} of them without success"),
        };
        format!("Recent calls: {last}{n_calls}{failed}.")
    }
}

/// The tools of a catalog, by whether the list of the client has them.
struct PlacedTools {
    shown: ToolGroup,
    hidden: ToolGroup,
}

/// The tools in a list, or outside of it. Only the first ones have entries.
#[derive(Default)]
struct ToolGroup {
    n_tools: usize,
    entries: Vec<(String, PlacementReason)>,
    n_name_bytes: usize,
}

impl PlacedTools {
    fn new(requester: &ToolCaller<'_>, catalog: &Catalog) -> Self {
        let mut placed = Self {
            shown: ToolGroup::default(),
            hidden: ToolGroup::default(),
        };
        let Some(lists) = requester.shared.selection.lists() else {
            // Lists are shortened by the names of tools.
            for tool in catalog.tools() {
                if tool.is_hidden {
                    placed.hidden.add(tool, PlacementReason::Excluded);
                } else {
                    placed.shown.add(tool, PlacementReason::Whole);
                }
            }
            return placed;
        };
        let shown = requester.shown.as_deref();
        let client = requester.client_context.client_name();
        let mut ask = (requester.client_context).list_request(
            &client,
            requester.session,
            requester.era,
            requester.received_at,
        );
        ask.client_hash = Some((requester.client_context).client_hash(&requester.shared.recorder));
        let reasons = lists.placements(&ask, catalog, shown);
        for (at, is_shown) in in_list_order(catalog, shown) {
            let group = if is_shown {
                &mut placed.shown
            } else {
                &mut placed.hidden
            };
            if let (Some(tool), Some(reason)) = (catalog.tools().get(at), reasons.get(at)) {
                group.add(tool, *reason);
            }
        }
        placed
    }

    /// Returns the facts of the list.
    fn list_json(&self, shown: Option<&ShownList>) -> Value {
        json!({
            "epoch": shown.map(|shown| shown.epoch),
            "mode": shown.map(|shown| shown.mode.as_str()),
            "reason": shown.and_then(|shown| shown.reason).map(SelectionReason::as_str),
            "sentence": shown.map(|shown| explain_selection(shown.mode, shown.reason)),
            "n_shown": self.shown.n_tools,
            "n_hidden": self.hidden.n_tools,
            "shown_tokens": shown.map(|shown| shown.shown_tokens),
            "available_tokens": shown.map(|shown| shown.available_tokens),
        })
    }
}

impl ToolGroup {
    fn add(&mut self, tool: &CatalogTool, reason: PlacementReason) {
        self.n_tools += 1;
        self.n_name_bytes += tool.name.len();
        if self.entries.len() < MAX_TOOLS && self.n_name_bytes <= MAX_NAME_BYTES {
            self.entries.push((tool.name.clone(), reason));
        }
    }

    fn json(&self) -> Value {
        let tools = self.entries.iter();
        tools
            .map(|(name, reason)| json!({"name": name, "reason": reason.as_str()}))
            .collect()
    }
}

/// Returns the positions of all tools of a catalog, each with whether the list has it: those of the
/// list in its order, then the others.
fn in_list_order(catalog: &Catalog, shown: Option<&ShownList>) -> Vec<(usize, bool)> {
    let listed: Vec<usize> = shown.map_or_else(Vec::new, |shown| {
        let tools = shown.catalog().tools();
        let refs = shown.positions().iter().filter_map(|at| tools.get(*at));
        // The catalog may be newer than the list.
        refs.filter_map(|tool| catalog.position_of(&tool.tool))
            .collect()
    });
    let is_hidden = |tool: &ToolRef| shown.is_none_or(|shown| !shown.shows(tool));
    let all = catalog.tools().iter().enumerate();
    let others = all.filter(|(_, tool)| is_hidden(&tool.tool));
    let others = others.map(|(at, _)| (at, false));
    listed
        .into_iter()
        .map(|at| (at, true))
        .chain(others)
        .collect()
}

/// Returns the prediction for the session. `None` if lists are not selected by predictions, or if
/// there is no prediction.
async fn forecast(requester: &ToolCaller<'_>, catalog: &Arc<Catalog>) -> Option<ListForecast> {
    let lists = requester.shared.selection.lists()?;
    let row = requester.client_context.session_id(requester.shared).await;
    let listing = ListComposer {
        client_context: requester.client_context,
        shared: requester.shared,
        era: requester.era,
    };
    let session = SessionRef {
        row,
        key: requester.session,
    };
    listing
        .forecast(lists, session, catalog, N_NEXT, ForecastBasis::Session)
        .await
}

fn call_json(call: &EndedCall, catalog: &Catalog) -> Value {
    let offered = catalog.position_of(&call.tool);
    let offered = offered.and_then(|at| catalog.tools().get(at));
    let name = offered.map_or(call.tool.tool.as_str(), |tool| tool.name.as_str());
    json!({
        "name": name,
        "upstream": call.tool.upstream.as_str(),
        "outcome": call.outcome.as_str(),
        "at": call.began_at.to_string(),
        "duration_us": u64::try_from(call.duration.as_micros()).unwrap_or(u64::MAX),
    })
}

fn n_failed(calls: &[EndedCall]) -> usize {
    let failed = calls.iter().filter(|call| !call.outcome.is_success());
    failed.count()
}

fn next_json(forecast: Option<&ListForecast>) -> Value {
    let tools = forecast.map_or(&[][..], |forecast| forecast.tools.as_slice());
    tools
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "probability": tool.probability,
                "is_shown": tool.is_shown,
                "sentence": tool.explanation.as_ref().map(Explanation::sentence),
            })
        })
        .collect()
}

/// Returns the summary for the model.
fn text(
    placed: &PlacedTools,
    requester: &ToolCaller<'_>,
    calls: &ShownCalls,
    forecast: Option<&ListForecast>,
) -> String {
    let (n_shown, n_hidden) = (placed.shown.n_tools, placed.hidden.n_tools);
    let n_all = n_shown + n_hidden;
    let tokens = requester.shown.as_ref().map_or_else(String::new, |shown| {
        let (shown, all) = (shown.shown_tokens, shown.available_tokens);
        format!(" ({shown} of {all} tokens)")
    });
    let others = match n_hidden {
        0 => "",
        _ => "; the others can be searched and called",
    };
    let recent = calls.sentence();
    let mut text = format!(
        "The list of this session has {n_shown} of {n_all} tools{tokens}{others}. {recent}"
    );
    let likely = forecast.map_or(&[][..], |forecast| forecast.tools.as_slice());
    let named: Vec<String> = likely
        .iter()
        .take(N_NAMED)
        .map(|tool| tool.name.chars().take(MAX_NAME_CHARS).collect())
        .collect();
    if !named.is_empty() {
        text = format!("{text} Likely next: {}.", named.join(", "));
    }
    text
}

/// Returns the schema of the structured result.
pub(super) fn output_schema() -> Value {
    let objects = json!({"type": "array", "items": {"type": "object"}});
    json!({
        "type": "object",
        "properties": {
            "at": {"type": "string"},
            "list": {"type": "object"},
            "shown": objects,
            "hidden": objects,
            "calls": objects,
            "n_calls": {"type": ["integer", "null"]},
            "n_failed": {"type": ["integer", "null"]},
            "calls_note": {"type": ["string", "null"]},
            "next": objects,
        },
        "required": ["at", "list", "shown", "hidden", "calls", "n_calls", "n_failed", "next"],
    })
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::UpstreamName;

    use super::*;

    fn tool(name: &str) -> CatalogTool {
        CatalogTool {
            name: name.to_owned(),
            tool: ToolRef {
                upstream: UpstreamName::parse("u").unwrap(),
                tool: name.into(),
            },
            definition: Arc::default(),
            is_hidden: false,
        }
    }

    #[test]
    fn all_tools_are_counted_but_only_the_first_have_entries() {
        let mut group = ToolGroup::default();
        for n in 0..=MAX_TOOLS {
            group.add(&tool(&n.to_string()), PlacementReason::Chosen);
        }
        assert_eq!(
            (group.n_tools, group.entries.len()),
            (MAX_TOOLS + 1, MAX_TOOLS)
        );
        let mut group = ToolGroup::default();
        for _ in 0..5 {
            group.add(
                &tool(&"x".repeat(MAX_NAME_BYTES / 4)),
                PlacementReason::NotChosen,
            );
        }
        assert_eq!((group.n_tools, group.entries.len()), (5, 4));
        assert_eq!(group.json()[0]["reason"], "not_chosen");
    }

    #[test]
    fn without_a_list_every_tool_is_outside_of_it() {
        let catalog = Catalog::new(vec![tool("a"), tool("b")], Vec::new());
        assert_eq!(in_list_order(&catalog, None), [(0, false), (1, false)]);
    }
}
