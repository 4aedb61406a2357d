//! Known performance of tools, as values of the factors of a recommendation.
//!
//! Every value is of 0 to 1. Little data is moved towards the mean of the catalog, as if a few more
//! calls had the usual results (additive smoothing), so that one lucky call is not a success rate
//! of 100 %. A tool without data has the mean. If no tool has data, the value is one half.

use std::collections::BTreeMap;
use std::time::Duration;

use super::factors::Factors;
use crate::catalog::tool::ToolRef;
use crate::num::to_f64;
use crate::usage::ToolStatistics;
use crate::usage::feedback::Feedback;

/// The number of uses, each counted by its age, that gives the largest popularity.
const MOST_USES: f64 = 1_000.0;
/// A tool that takes this long or longer has performance 0.
const SLOWEST: Duration = Duration::from_secs(1);
/// The number of usual calls that are added to the calls of a tool.
const PRIOR_CALLS: f64 = 5.0;
/// The number of usual ratings that are added to the ratings of a tool.
const PRIOR_RATINGS: f64 = 3.0;
/// The number of calls, half of them successful, that are added to the calls of a principal.
const OWN_PRIOR_CALLS: f64 = 2.0;
/// The value of a factor if no tool has data.
const NEUTRAL: f64 = 0.5;

/// The numbers of calls that ended and that succeeded. Cancelled calls, and calls with an unknown
/// end, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOutcomes {
    /// The number of calls that ended.
    pub n_ended: u64,
    /// The number of calls that ended with a result.
    pub n_ok: u64,
}

impl CallOutcomes {
    /// Returns the share of successful calls, as if `n` more calls had ended, with the share
    /// `usual` of successes.
    fn smoothed_share(self, n: f64, usual: f64) -> f64 {
        (to_f64(self.n_ok) + n * usual) / (to_f64(self.n_ended) + n)
    }
}

impl From<&ToolStatistics> for CallOutcomes {
    fn from(statistics: &ToolStatistics) -> Self {
        use crate::usage::invocation::Outcome;
        let of = |outcome| statistics.outcomes.get(&outcome).copied().unwrap_or(0);
        let n_ok = of(Outcome::Ok);
        Self {
            n_ended: n_ok + of(Outcome::Error) + of(Outcome::Timeout),
            n_ok,
        }
    }
}

/// The known performance of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ToolPerformance {
    /// The number of calls, each counted by its age: see [`decayed_uses`].
    pub uses: f64,
    /// The outcomes of its calls.
    pub endings: CallOutcomes,
    /// The outcomes of its calls by the requesting principal.
    pub own: CallOutcomes,
    /// The median time of its answers, and the number of answers.
    pub latency: Option<(Duration, u64)>,
    /// The number of ratings, and the sum of their stars.
    pub ratings: (u32, f64),
}

impl ToolPerformance {
    /// Adds the stars of a feedback, or of its thumbs if there are no stars. Other verdicts are no
    /// rating.
    pub fn rate(&mut self, feedback: &Feedback) {
        if let Some(stars) = feedback.verdict.stars(feedback.rating) {
            self.ratings.0 = self.ratings.0.saturating_add(1);
            self.ratings.1 += f64::from(stars);
        }
    }

    /// Returns the mean number of stars; `None` without ratings.
    #[must_use]
    pub fn mean_stars(&self) -> Option<f64> {
        let (n, stars) = self.ratings;
        (n > 0).then(|| stars / f64::from(n))
    }
}

/// The known performance of the tools of a catalog.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerformanceTable {
    of: BTreeMap<ToolRef, ToolPerformance>,
    usual: CatalogMeans,
}

/// The means over all tools.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CatalogMeans {
    success: f64,
    performance: f64,
    rating: f64,
}

impl Default for CatalogMeans {
    fn default() -> Self {
        Self {
            success: NEUTRAL,
            performance: NEUTRAL,
            rating: NEUTRAL,
        }
    }
}

impl PerformanceTable {
    /// Returns the performance of these tools, with the means over all of them.
    #[must_use]
    pub fn new(of: BTreeMap<ToolRef, ToolPerformance>) -> Self {
        let all = || of.values();
        let endings = all().fold(CallOutcomes::default(), |sum, tool| CallOutcomes {
            n_ended: sum.n_ended + tool.endings.n_ended,
            n_ok: sum.n_ok + tool.endings.n_ok,
        });
        let latencies = all().filter_map(|tool| tool.latency);
        let (n_timed, quickness) = latencies.fold((0.0, 0.0), |(n, sum), (latency, n_calls)| {
            let n_calls = to_f64(n_calls);
            (n + n_calls, sum + n_calls * latency_score(latency))
        });
        let (n_ratings, stars) = all().fold((0.0, 0.0), |(n, sum), tool| {
            (n + f64::from(tool.ratings.0), sum + tool.ratings.1)
        });
        let mean = |n: f64, sum: f64, usual: f64| (sum + usual) / (n + 1.0);
        Self {
            usual: CatalogMeans {
                success: endings.smoothed_share(1.0, NEUTRAL),
                performance: mean(n_timed, quickness, NEUTRAL),
                rating: mean(n_ratings, (stars - n_ratings) / 4.0, NEUTRAL),
            },
            of,
        }
    }

    /// Returns the known performance of a tool; `None` without data.
    #[must_use]
    pub fn of(&self, tool: &ToolRef) -> Option<&ToolPerformance> {
        self.of.get(tool)
    }

    /// Returns the factors of a tool.
    ///
    /// - `relevance` is taken unchanged;
    /// - success rate is the smoothed share of successful calls;
    /// - popularity is `min(ln(1 + uses) / ln(1 + 1000), 1)`, of the share of uses that succeeded,
    ///   times 0.5 to 1.5 by the success of the calls of the requesting principal, and is combined
    ///   with `session` like the probabilities of two independent events:
    ///   `1 - (1 - popularity) (1 - session)`;
    /// - performance is `1 - min(median latency / 1 s, 1)`, smoothed, without failed calls;
    /// - user rating is the smoothed mean of `(stars - 1) / 4`.
    ///
    /// `session` is the evidence of the running work session for the tool, of 0 to 1.
    #[must_use]
    pub fn factors(&self, tool: &ToolRef, relevance: f64, session: f64) -> Factors {
        let standing = self.of.get(tool).copied().unwrap_or_default();
        let usual = &self.usual;
        // Failed calls make no tool popular, and a quick failure is no good performance.
        let endings = standing.endings;
        let share_ok = if endings.n_ended == 0 {
            1.0
        } else {
            to_f64(endings.n_ok) / to_f64(endings.n_ended)
        };
        let uses = standing.uses.max(0.0) * share_ok;
        let popularity = (uses.ln_1p() / MOST_USES.ln_1p()).min(1.0);
        let bias = 0.5 + standing.own.smoothed_share(OWN_PRIOR_CALLS, NEUTRAL);
        let popularity = (popularity * bias).min(1.0);
        let session = session.clamp(0.0, 1.0);
        let (performance, n_timed) = match standing.latency {
            Some((latency, n)) => (latency_score(latency), to_f64(n) * share_ok),
            None => (0.0, 0.0),
        };
        let smoothed =
            |n: f64, sum: f64, n_usual: f64, usual: f64| (sum + n_usual * usual) / (n + n_usual);
        let (n_ratings, stars) = standing.ratings;
        let n_ratings = f64::from(n_ratings);
        Factors::new([
            relevance,
            standing.endings.smoothed_share(PRIOR_CALLS, usual.success),
            1.0 - (1.0 - popularity) * (1.0 - session),
            smoothed(
                n_timed,
                n_timed * performance,
                PRIOR_CALLS,
                usual.performance,
            ),
            smoothed(
                n_ratings,
                (stars - n_ratings) / 4.0,
                PRIOR_RATINGS,
                usual.rating,
            ),
        ])
    }
}

/// Returns the performance of a latency: `1 - min(latency / 1 s, 1)`.
fn latency_score(latency: Duration) -> f64 {
    1.0 - (latency.as_secs_f64() / SLOWEST.as_secs_f64()).min(1.0)
}

/// Returns the number of uses, each weighted by `2^(-age / half_life)`.
///
/// `n_since` has ages in days, ascending, each with the number of uses that are not older. Uses
/// between two ages are taken to be as old as the geometric mean of the two. Uses that are not
/// older than the first age are taken to be half as old as it.
///
/// # Examples
///
/// ```
/// # use riglm_domain::recommendation::decayed_uses;
/// // Ten uses about half a day ago, ten more about two days ago.
/// let uses = decayed_uses(&[(1.0, 10), (4.0, 20)], 2.0);
/// assert!((uses - (10.0 * 0.5_f64.powf(0.25) + 10.0 * 0.5)).abs() < 1e-9);
/// ```
#[must_use]
pub fn decayed_uses(n_since: &[(f64, u64)], half_life_days: f64) -> f64 {
    let mut uses = 0.0;
    let (mut from, mut n_before) = (0.0_f64, 0);
    for (to, n) in n_since {
        let n_between = to_f64(n.saturating_sub(n_before));
        let age = if from > 0.0 {
            (from * to).sqrt()
        } else {
            to / 2.0
        };
        uses += n_between * 0.5_f64.powf(age / half_life_days);
        (from, n_before) = (*to, (*n).max(n_before));
    }
    uses
}

#[cfg(test)]
mod tests;
