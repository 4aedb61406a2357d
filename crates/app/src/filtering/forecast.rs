//! What is predicted for who asks, with what the list shows of it and why.

use std::sync::Arc;

use riglm_domain::list_shown::{SelectionMode, SelectionReason};
use riglm_domain::listing::ListPolicyName;
use riglm_domain::prediction::{Band, Explanation};
use riglm_domain::tool::ToolRef;

use super::ask::ListAsk;
use super::choosing::session_view;
use super::lists::Lists;
use super::marks::Mark;
use super::rendering::ShownList;
use crate::search::Offer;

/// Why a list has a tool or leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// The operator wants it first.
    Pinned,
    /// The operator wants it shown.
    Included,
    /// The operator wants it hidden.
    Excluded,
    /// The list is whole.
    Whole,
    /// It was among the likely ones when the list was chosen, or was used.
    Chosen,
    /// It was not.
    NotChosen,
    /// No list was shown yet.
    NotListed,
}

impl Placing {
    /// Returns the name.
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
    /// Why.
    pub placing: Placing,
    /// Why it is as likely as it is; `None` where nothing can be said.
    pub explanation: Option<Explanation>,
}

/// What is predicted for a session.
#[derive(Clone, Debug, PartialEq)]
pub struct ListForecast {
    /// The policy of its lists.
    pub policy: ListPolicyName,
    /// The number of the list that it sees; `None` before the first.
    pub epoch: Option<u64>,
    /// The mode in which the tools of that list were chosen; `None` before the first.
    pub mode: Option<SelectionMode>,
    /// The reason why something else chose them than was to, or why all are shown.
    pub reason: Option<SelectionReason>,
    /// The probability that the next tool is among those that the list has.
    pub mass: f64,
    /// How far the prediction is trusted.
    pub band: Band,
    /// The tools, the most likely first.
    pub tools: Vec<ForecastTool>,
    /// How many there are.
    pub n_tools: usize,
}

impl Lists {
    /// Returns what is predicted for who asks, of what is offered: the `limit` most likely tools;
    /// `None` where nothing is predicted.
    #[must_use]
    pub fn forecast(
        &self,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        limit: usize,
    ) -> Option<ListForecast> {
        let next_tools = self.next_tools.as_ref()?;
        let prediction = self.predict(ask, offer)?;
        let shown = self.shown(ask);
        let overrides = self.overrides.load_full();
        let marks = self.marks(&overrides, ask, offer.tools());
        let tools: Vec<ToolRef> = offer.tools().iter().map(|tool| tool.tool.clone()).collect();
        let likely = &prediction.ranked[..limit.min(prediction.ranked.len())];
        let positions: Vec<usize> = likely.iter().map(|tool| tool.position).collect();
        let explained = next_tools.explain(&session_view(ask), &tools, &positions);
        let is_listed = |tool: &ToolRef| shown.as_ref().is_some_and(|shown| shown.shows(tool));
        let forecast = likely.iter().zip(explained).map(|(likely, explanation)| {
            let offered = &offer.tools()[likely.position];
            let is_shown = is_listed(&offered.tool);
            let mark = marks.get(likely.position).copied().unwrap_or_default();
            ForecastTool {
                name: offered.name.clone(),
                tool: offered.tool.clone(),
                probability: likely.probability,
                is_shown,
                placing: placing(shown.as_deref(), mark, is_shown),
                explanation,
            }
        });
        let mass = prediction.ranked.iter();
        let mass = mass.filter(|tool| is_listed(&tools[tool.position]));
        let max_tools = self.options(ask).bounds.max_tools;
        Some(ListForecast {
            policy: self.policy(ask),
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

fn placing(shown: Option<&ShownList>, mark: Mark, is_shown: bool) -> Placing {
    match (shown, mark) {
        (None, _) => Placing::NotListed,
        (Some(_), Mark::Pin) if is_shown => Placing::Pinned,
        (Some(_), Mark::Include) if is_shown => Placing::Included,
        (Some(_), Mark::Exclude) if !is_shown => Placing::Excluded,
        (Some(list), _) if is_shown && list.mode == SelectionMode::All => Placing::Whole,
        (Some(_), _) if is_shown => Placing::Chosen,
        (Some(_), _) => Placing::NotChosen,
    }
}
