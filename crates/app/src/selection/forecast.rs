//! The prediction for a session, with the position of each tool in the list and the reason.

use std::collections::HashSet;
use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::prediction::{ConfidenceBand, Explanation};
use riglm_domain::selection::ListPolicyName;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason};
use strum::IntoStaticStr;

use super::list_request::ListRequest;
use super::lists::Lists;
use super::rendering::ShownList;
use super::tool_marks::ToolMark;
use riglm_discovery::learning::NextTool;
use riglm_discovery::search::Catalog;

/// The reason why a tool is in the list or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PlacementReason {
    /// Pinned by the operator.
    Pinned,
    /// Included by the operator.
    Included,
    /// Excluded by the operator.
    Excluded,
    /// Shown because the list has all tools.
    #[strum(serialize = "whole_list")]
    Whole,
    /// Selected because it was likely when the list was selected, or because it was used.
    Chosen,
    /// Not selected, and not among the most likely tools.
    NotChosen,
    /// Not selected, but among the most likely tools since.
    BecameLikely,
    /// Pinned by the operator since the list was selected.
    PinnedNext,
    /// Included by the operator since the list was selected.
    IncludedNext,
    /// Excluded by the operator since the list was selected.
    ExcludedNext,
    /// No list was shown yet.
    NotListed,
}

impl PlacementReason {
    /// Returns the published name of the reason.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
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
        self.forecast_by(request, request, catalog, limit).await
    }

    /// Returns the prediction for the session of a request, like [`Self::forecast`], but from its own
    /// calls, client and intent, even if its list is shared with other sessions.
    #[must_use]
    pub async fn forecast_of_session(
        &self,
        request: &ListRequest<'_>,
        catalog: &Arc<Catalog>,
        limit: usize,
    ) -> Option<ListForecast> {
        let own = request.with_own_session();
        self.forecast_by(request, &own, catalog, limit).await
    }

    /// Returns the prediction for the request `asked`, in terms of the list of `request`.
    async fn forecast_by(
        &self,
        request: &ListRequest<'_>,
        asked: &ListRequest<'_>,
        catalog: &Arc<Catalog>,
        limit: usize,
    ) -> Option<ListForecast> {
        self.predictor.consult(asked, catalog).await;
        let prediction = self.predictor.predict(asked, catalog)?;
        let shown = self.shown_list(request);
        let tools = catalog.tools();
        let marks = self.marks(request, tools);
        let likely = &prediction.ranked[..limit.min(prediction.ranked.len())];
        let positions: Vec<usize> = likely.iter().map(|tool| tool.position).collect();
        let explained = self.predictor.explain(asked, catalog, &positions);
        let is_listed = |tool: &ToolRef| shown.as_ref().is_some_and(|shown| shown.shows(tool));
        let mark = |at: usize| marks.get(at).copied().unwrap_or_default();
        let ranked = prediction.ranked.iter();
        let unmarked = ranked.filter(|tool| mark(tool.position) == ToolMark::None);
        let selected: Vec<&NextTool> = (unmarked.clone())
            .filter(|tool| is_listed(&tools[tool.position].tool))
            .collect();
        let least = selected.last().map_or(1.0, |tool| tool.probability);
        // A list of the same size, selected now, would have these tools.
        let likely_now: HashSet<usize> = unmarked
            .take(selected.len())
            .filter(|tool| tool.probability > least)
            .map(|tool| tool.position)
            .collect();
        let forecast = likely.iter().zip(explained).map(|(likely, explanation)| {
            let offered = &tools[likely.position];
            let is_shown = is_listed(&offered.tool);
            let mut placing = placement_reason(shown.as_deref(), mark(likely.position), is_shown);
            if placing == PlacementReason::NotChosen && likely_now.contains(&likely.position) {
                placing = PlacementReason::BecameLikely;
            }
            ForecastTool {
                name: offered.name.clone(),
                tool: offered.tool.clone(),
                probability: likely.probability,
                is_shown,
                placing,
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

    /// Returns for each tool of a catalog, in its order, the reason why the list `shown` of the
    /// client has it or not. Without a list, every tool is [`PlacementReason::NotListed`].
    #[must_use]
    pub fn placements(
        &self,
        request: &ListRequest<'_>,
        catalog: &Catalog,
        shown: Option<&ShownList>,
    ) -> Vec<PlacementReason> {
        let tools = catalog.tools();
        let marked = tools.iter().zip(self.marks(request, tools));
        let reasons = marked.map(|(tool, mark)| {
            let is_shown = shown.is_some_and(|shown| shown.shows(&tool.tool));
            placement_reason(shown, mark, is_shown)
        });
        reasons.collect()
    }
}

fn placement_reason(shown: Option<&ShownList>, mark: ToolMark, is_shown: bool) -> PlacementReason {
    let Some(list) = shown else {
        return PlacementReason::NotListed;
    };
    match (mark, is_shown) {
        (ToolMark::Pin, true) => PlacementReason::Pinned,
        (ToolMark::Pin, false) => PlacementReason::PinnedNext,
        (ToolMark::Include, true) => PlacementReason::Included,
        (ToolMark::Include, false) => PlacementReason::IncludedNext,
        (ToolMark::Exclude, true) => PlacementReason::ExcludedNext,
        (ToolMark::Exclude, false) => PlacementReason::Excluded,
        (ToolMark::None, true) if list.mode == SelectionMode::All => PlacementReason::Whole,
        (ToolMark::None, true) => PlacementReason::Chosen,
        (ToolMark::None, false) => PlacementReason::NotChosen,
    }
}
