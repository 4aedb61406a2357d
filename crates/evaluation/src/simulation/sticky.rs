//! A list that stays as long as it is likely to have the next called tool.

use super::list_simulation::{CallMoment, ListRule};
use super::tool_set::ToolSet;

/// The share of calls that may miss the list.
const MISS_TARGET: f64 = 0.05;
/// The predicted probability of a miss at which the first list is chosen again.
const INITIAL_MISS_THRESHOLD: f64 = 0.08;
/// The lowest threshold.
const MIN_MISS_THRESHOLD: f64 = 1e-5;
/// Step of the threshold's logarithm. A miss lowers it by STEP · (1 − target) / target; a hit
/// raises it by STEP. The value is half of the target 0.05.
const STEP: f64 = 0.025;
/// A new list is filled until the predicted probability of a miss is below this share of the
/// threshold, so that the list does not change again at the next call.
const FILL_SHARE: f64 = 0.35;
/// The shortest new list.
const MIN_TOOLS: usize = 5;

/// A list that is chosen again when the predicted probability of a miss passes a threshold. The
/// threshold falls with every miss and rises with every hit, so that in the long run the target
/// share of calls misses the list (Gibbs and Candès 2021, arXiv 2106.00170, equation 2, on the
/// logarithm of the threshold). The list has no maximum length.
#[derive(Debug)]
pub(super) struct StickyRule {
    ln_doubt: f64,
}

impl Default for StickyRule {
    fn default() -> Self {
        Self {
            ln_doubt: INITIAL_MISS_THRESHOLD.ln(),
        }
    }
}

impl ListRule for StickyRule {
    fn list(&mut self, moment: &CallMoment<'_>, listed: &mut ToolSet) -> bool {
        let CallMoment { forecast, used, .. } = *moment;
        let begins = moment.begins.is_some();
        // Tools that a search found are known to the client without a new list.
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
            if anew.len() >= MIN_TOOLS && likely >= 1.0 - FILL_SHARE * doubt {
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
        self.ln_doubt = ln_doubt.clamp(MIN_MISS_THRESHOLD.ln(), 0.0);
    }
}
