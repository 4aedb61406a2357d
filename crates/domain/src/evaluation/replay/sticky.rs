//! A list that stays as long as it is likely to have what is called next.

use super::simulation::{ListRule, Moment};
use super::tool_set::ToolSet;

/// The share of calls that may miss the list.
const MISS_TARGET: f64 = 0.05;
/// The predicted probability of a miss at which the first list is made anew.
const FIRST_DOUBT: f64 = 0.08;
/// The smallest such probability.
const LEAST_DOUBT: f64 = 1e-5;
/// How far a miss lowers the logarithm of that probability, and a hit raises it, in terms of the
/// target: half of 0.05.
const STEP: f64 = 0.025;
/// A new list leaves this share of the doubt open at which it would be made anew.
const OPEN_SHARE: f64 = 0.35;
/// The shortest new list.
const MIN_TOOLS: usize = 5;

/// A list that is made anew when the predicted probability of a miss passes a threshold. The
/// threshold follows what happened: it falls with every miss and rises with every hit, so that
/// the promised share of calls misses the list in the long run (Gibbs and Candès 2021, arXiv
/// 2106.00170, equation 2, on the logarithm of the threshold). It has no largest length.
#[derive(Debug)]
pub(super) struct StickyRule {
    ln_doubt: f64,
}

impl Default for StickyRule {
    fn default() -> Self {
        Self {
            ln_doubt: FIRST_DOUBT.ln(),
        }
    }
}

impl ListRule for StickyRule {
    fn list(&mut self, moment: &Moment<'_>, listed: &mut ToolSet) -> bool {
        let Moment { forecast, used, .. } = *moment;
        let begins = moment.begins.is_some();
        // What a search found is known to the client without another list.
        listed.insert_all(used);
        let mass =
            |tools: &ToolSet| -> f64 { tools.iter().map(|tool| forecast.probability(tool)).sum() };
        let doubt = self.ln_doubt.exp();
        if !begins && 1.0 - mass(listed) <= doubt {
            return false;
        }
        let mut anew = used.clone();
        let mut likely = mass(&anew);
        for tool in forecast.ranking() {
            if anew.len() >= MIN_TOOLS && likely >= 1.0 - OPEN_SHARE * doubt {
                break;
            }
            if anew.insert(*tool) {
                likely += forecast.probability(*tool);
            }
        }
        let is_new_list = anew != *listed;
        *listed = anew;
        is_new_list
    }

    fn learn(&mut self, was_listed: bool) {
        let missed = f64::from(u8::from(!was_listed));
        let ln_doubt = self.ln_doubt - STEP * (missed - MISS_TARGET) / MISS_TARGET;
        self.ln_doubt = ln_doubt.clamp(LEAST_DOUBT.ln(), 0.0);
    }
}
