//! The choice by what a client said that it does, while too little was learned for a prediction: the
//! tools that are about it, by the rule of [`topic`].

use std::cmp::Ordering;
use std::collections::HashMap;

use riglm_domain::list_shown::{SelectionMode, SelectionReason};
use riglm_domain::listing::{ListBounds, ReadOnly, TopicTool, choose, topic};

use super::ask::ListAsk;
use super::choosing::{Chosen, OfferCandidates};
use super::lists::Lists;
use crate::search::{Offer, OfferedTool};

/// Where fewer tools than `min_tools` are about a text, it is filled up to this many times as many
/// with those that fit it best: little that is found says that not all was found.
const FILLED: usize = 2;

impl Lists {
    /// Returns the tools that are about what the client said that it does; where that cannot be told,
    /// the default pool or everything.
    pub(super) fn topical_or_pool(
        &self,
        ask: &ListAsk<'_>,
        offer: &Offer,
        candidates: &OfferCandidates<'_>,
        reason: SelectionReason,
    ) -> Chosen {
        let topical = self.topical(ask, offer, candidates, reason);
        topical.unwrap_or_else(|| self.pool_or_all(ask, candidates, reason))
    }

    /// Returns the tools that are about what the client said that it does, within the bounds; `None`
    /// where that cannot be told, or a pool of the operator is for it.
    pub(super) fn topical(
        &self,
        ask: &ListAsk<'_>,
        offer: &Offer,
        candidates: &OfferCandidates<'_>,
        reason: SelectionReason,
    ) -> Option<Chosen> {
        let context = ask.context()?;
        let tools = offer.tools();
        if self.default_pool(ask, tools).len() < tools.len() {
            return None;
        }
        let described: Vec<TopicTool<'_>> = tools.iter().map(described).collect();
        let topic = topic(context, &described, &self.words)?;
        let fits: HashMap<usize, f64> = ask
            .intent
            .map(|intent| intent.fits.iter().copied().collect())
            .unwrap_or_default();
        let fit = |at: usize| fits.get(&at).copied().unwrap_or(0.0);
        let better = |one: usize, other: usize| -> Ordering { fit(other).total_cmp(&fit(one)) };
        // Of those that name as much of the text, the ones that fit it better.
        let mut ranked = topic.tools.clone();
        let n_said: HashMap<usize, usize> = topic.tools.iter().copied().zip(topic.n_said).collect();
        let said = |at: &usize| n_said.get(at).copied().unwrap_or(0);
        ranked.sort_by(|a, b| {
            said(b)
                .cmp(&said(a))
                .then_with(|| better(*a, *b))
                .then(a.cmp(b))
        });
        let n_about = ranked.len();
        let mut others: Vec<usize> = (0..tools.len())
            .filter(|at| !n_said.contains_key(at) && fits.contains_key(at))
            .collect();
        others.sort_by(|a, b| better(*a, *b).then(a.cmp(b)));
        ranked.extend(others);
        let ranked: Vec<(usize, f64)> = ranked.into_iter().map(|at| (at, 0.0)).collect();
        let bounds = self.options(ask).bounds;
        let n_filled = if n_about < bounds.min_tools {
            bounds.min_tools.saturating_mul(FILLED).min(ranked.len())
        } else {
            n_about
        };
        let bounds = ListBounds {
            max_tools: n_filled.clamp(bounds.min_tools, bounds.max_tools),
            ..bounds
        };
        let choice = choose(candidates, &ranked, &bounds, None);
        self.warn_of_budget(ask, &choice);
        Some(Chosen {
            tools: choice.shown,
            mode: SelectionMode::Context,
            reason: Some(reason),
            search_first: true,
            mass: None,
        })
    }
}

fn described(tool: &OfferedTool) -> TopicTool<'_> {
    let line = tool.first_line();
    let sentence = line.split_inclusive(['.', '!', '?']).next();
    TopicTool {
        server: tool.tool.upstream.as_str(),
        name: tool.tool.tool.as_str(),
        summary: sentence.unwrap_or_default().to_owned(),
        read_only: ReadOnly::of_definition(&tool.definition),
    }
}
