//! The list of a work session as the proxy chooses it.

use super::super::Forecast;
use super::simulation::ListRule;
use super::tool_set::ToolSet;
use crate::economics::CostModel;
use crate::listing::{Candidates, Decision, Evidence, ListBounds, ListPrices, Standing, decide};
use crate::prediction::Bands;

/// The rule of the policy `epoch` before revision 2026-07-28: chosen at the first call of a session
/// and left as it is, or the whole catalog where little is known or hiding does not pay. The answer
/// of a search carries the found tool and likely ones that the client does not know yet.
#[derive(Debug)]
pub(super) struct EpochRule {
    bounds: ListBounds,
    prices: ListPrices,
    n_inline: usize,
}

/// A catalog whose tools have all the same length, and of which nothing was decided.
struct Uniform {
    n_tools: usize,
    tokens: u64,
}

impl Candidates for Uniform {
    fn len(&self) -> usize {
        self.n_tools
    }

    fn standing(&self, _position: usize) -> Standing {
        Standing::Free
    }

    fn tokens(&self, _position: usize) -> u64 {
        self.tokens
    }
}

impl EpochRule {
    pub(super) fn new(max_tools: usize, n_inline: usize, costs: CostModel) -> Self {
        let bounds = ListBounds::default();
        Self {
            bounds: ListBounds {
                min_tools: bounds.min_tools.min(max_tools),
                max_tools,
                ..bounds
            },
            prices: ListPrices {
                model: costs,
                n_inline: u32::try_from(n_inline + 1).unwrap_or(u32::MAX),
                ..ListPrices::default()
            },
            n_inline,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "tokens of a tool are few, and not negative in a checked model"
    )]
    fn tokens_per_tool(&self) -> u64 {
        self.prices.model.tokens_per_tool as u64
    }
}

impl ListRule for EpochRule {
    fn list(
        &mut self,
        forecast: &Forecast,
        begins: bool,
        _used: &ToolSet,
        listed: &mut ToolSet,
    ) -> bool {
        if !begins {
            return false;
        }
        let ranked: Vec<(usize, f64)> = (forecast.ranking().iter())
            .map(|tool| (*tool, forecast.probability(*tool)))
            .collect();
        let catalog = Uniform {
            n_tools: forecast.n_tools(),
            tokens: self.tokens_per_tool(),
        };
        let evidence = Evidence {
            ranked: &ranked,
            band: Bands::MASS.of(forecast.mass(self.bounds.max_tools)),
            all_tokens: catalog.tokens.saturating_mul(forecast.n_tools() as u64),
        };
        match decide(&catalog, &evidence, &self.bounds, &self.prices) {
            Decision::All(_) => listed.extend(0..forecast.n_tools()),
            Decision::Some(choice) => listed.extend(choice.shown),
        }
        true
    }

    fn answer_search(
        &mut self,
        forecast: &Forecast,
        found: usize,
        listed: &mut ToolSet,
    ) -> Option<usize> {
        let before = listed.len();
        listed.insert(found);
        for tool in forecast.ranking() {
            if listed.len() > before + self.n_inline {
                break;
            }
            listed.insert(*tool);
        }
        Some(listed.len() - before)
    }
}
