//! The prediction for a session, with the position of each tool in the list and the reason.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::prediction::{ConfidenceBand, Explanation};
use riglm_domain::selection::ListPolicyName;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason};

use super::list_request::ListRequest;
use super::lists::Lists;
use super::rendering::ShownList;
use super::tool_marks::ToolMark;
use riglm_discovery::search::Catalog;

/// The reason why a tool is in the list or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementReason {
    /// Pinned by the operator.
    Pinned,
    /// Included by the operator.
    Included,
    /// Excluded by the operator.
    Excluded,
    /// Shown because the list has all tools.
    Whole,
    /// Selected because it was likely when the list was selected, or because it was used.
    Chosen,
    /// Not selected.
    NotChosen,
    /// No list was shown yet.
    NotListed,
}

impl PlacementReason {
    /// Returns the published name of the reason.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Included => "included",
            Self::Excluded => "excluded",
            Self::Whole => "whole_list",
            Self::Chosen => "chosen",
            Self::NotChosen => "not_chosen",
            Self::NotListed => "not_listed",
        }
    }
}

/// A tool with its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastTool {
    /// The name by which clients call it.
    pub name: String,
    /// The tool.
    pub tool: ToolRef,
    /// The probability that it is called next.
    pub probability: f64,
    /// Whether the list has it.
    pub is_shown: bool,
    /// The reason why the list has it or not.
    pub placing: PlacementReason,
    /// The explanation of the probability, if there is one.
    pub explanation: Option<Explanation>,
}

/// The prediction for a session.
#[derive(Clone, Debug, PartialEq)]
pub struct ListForecast {
    /// The policy of its lists.
    pub policy: ListPolicyName,
    /// The number of its current list; `None` before the first.
    pub epoch: Option<u64>,
    /// The selection mode of that list; `None` before the first.
    pub mode: Option<SelectionMode>,
    /// The reason for a fallback or for a whole list.
    pub reason: Option<SelectionReason>,
    /// The probability that the next tool is in the list.
    pub mass: f64,
    /// The confidence band of the prediction.
    pub band: ConfidenceBand,
    /// The tools, the most likely first.
    pub tools: Vec<ForecastTool>,
    /// The number of tools in the catalog.
    pub n_tools: usize,
}

impl Lists {
    /// Returns the prediction for a client with the `limit` most likely tools of the catalog;
    /// `None` without a prediction.
    #[must_use]
    pub async fn forecast(
        &self,
        request: &ListRequest<'_>,
        catalog: &Arc<Catalog>,
        limit: usize,
    ) -> Option<ListForecast> {
        self.predictor.consult(request, catalog).await;
        let prediction = self.predictor.predict(request, catalog)?;
        let shown = self.shown_list(request);
        let tools = catalog.tools();
        let marks = self.marks(request, tools);
        let likely = &prediction.ranked[..limit.min(prediction.ranked.len())];
        let positions: Vec<usize> = likely.iter().map(|tool| tool.position).collect();
        let explained = self.predictor.explain(request, catalog, &positions);
        let is_listed = |tool: &ToolRef| shown.as_ref().is_some_and(|shown| shown.shows(tool));
        let forecast = likely.iter().zip(explained).map(|(likely, explanation)| {
            let offered = &tools[likely.position];
            let is_shown = is_listed(&offered.tool);
            let mark = marks.get(likely.position).copied().unwrap_or_default();
            ForecastTool {
                name: offered.name.clone(),
                tool: offered.tool.clone(),
                probability: likely.probability,
                is_shown,
                placing: placement_reason(shown.as_deref(), mark, is_shown),
                explanation,
            }
        });
        let mass = prediction.ranked.iter();
        let mass = mass.filter(|tool| is_listed(&tools[tool.position].tool));
        let max_tools = self.settings.options(request.profile).max_tools;
        Some(ListForecast {
            policy: self.policy(request),
            epoch: shown.as_ref().map(|shown| shown.epoch),
            mode: shown.as_ref().map(|shown| shown.mode),
            reason: shown.as_ref().and_then(|shown| shown.reason),
            mass: mass.map(|tool| tool.probability).sum::<f64>().min(1.0),
            band: prediction.confidence(max_tools).band,
            tools: forecast.collect(),
            n_tools: tools.len(),
        })
    }
}

fn placement_reason(shown: Option<&ShownList>, mark: ToolMark, is_shown: bool) -> PlacementReason {
    match (shown, mark) {
        (None, _) => PlacementReason::NotListed,
        (Some(_), ToolMark::Pin) if is_shown => PlacementReason::Pinned,
        (Some(_), ToolMark::Include) if is_shown => PlacementReason::Included,
        (Some(_), ToolMark::Exclude) if !is_shown => PlacementReason::Excluded,
        (Some(list), _) if is_shown && list.mode == SelectionMode::All => PlacementReason::Whole,
        (Some(_), _) if is_shown => PlacementReason::Chosen,
        (Some(_), _) => PlacementReason::NotChosen,
    }
}
