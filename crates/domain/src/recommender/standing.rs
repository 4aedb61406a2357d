//! How a tool did so far, as values of the factors of a recommendation.
//!
//! Every value is of 0 to 1. Little data is drawn towards what is usual in the catalog, as if a few
//! calls more had gone as calls usually do (additive smoothing), so that one lucky call is no 100 %.
//! A tool of which nothing is known has what is usual, and where nothing is known of any, one half.

use std::collections::BTreeMap;
use std::time::Duration;

use super::factors::Factors;
use crate::feedback::Feedback;
use crate::tool::ToolRef;
use crate::usage::ToolStatistics;

/// As many uses, each counted by its age, as bring the largest popularity.
const MOST_USES: f64 = 1_000.0;
/// What takes this long or longer has no performance at all.
const SLOWEST: Duration = Duration::from_secs(1);
/// How many usual calls are added to those of a tool.
const USUAL_CALLS: f64 = 5.0;
/// How many usual ratings are added to those of a tool.
const USUAL_RATINGS: f64 = 3.0;
/// How many calls of which one in two succeeds are added to those of a principal.
const EVEN_CALLS: f64 = 2.0;
/// What is assumed where nothing is known of any tool.
const NEUTRAL: f64 = 0.5;

/// Calls that ended, and how many of them went well. Those that were taken back, or of which
/// nobody knows how they ended, are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// How many ended.
    pub n_ended: u64,
    /// How many of them with a result.
    pub n_ok: u64,
}

impl Endings {
    /// Returns the share that went well, as if `n` more had ended of which this share went well.
    fn smoothed(self, n: f64, usual: f64) -> f64 {
        (count(self.n_ok) + n * usual) / (count(self.n_ended) + n)
    }
}

impl From<&ToolStatistics> for Endings {
    fn from(statistics: &ToolStatistics) -> Self {
        use crate::invocation::Outcome;
        let of = |outcome| statistics.outcomes.get(&outcome).copied().unwrap_or(0);
        let n_ok = of(Outcome::Ok);
        Self {
            n_ended: n_ok + of(Outcome::Error) + of(Outcome::Timeout),
            n_ok,
        }
    }
}

/// How a tool did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ToolStanding {
    /// How often it was called, each call counted by its age: see [`decayed`].
    pub uses: f64,
    /// What became of its calls.
    pub endings: Endings,
    /// What became of the calls of the one who asks.
    pub own: Endings,
    /// The median time of its answers, and how many there were.
    pub latency: Option<(Duration, u64)>,
    /// How many people rated it, and the sum of their stars.
    pub ratings: (u32, f64),
}

impl ToolStanding {
    /// Adds what somebody said of the tool: stars, or thumbs where there are none. Other verdicts
    /// rate nothing.
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

/// How the tools of a catalog did so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standings {
    of: BTreeMap<ToolRef, ToolStanding>,
    usual: Usual,
}

/// What is usual: the means over all tools.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usual {
    success: f64,
    performance: f64,
    rating: f64,
}

impl Default for Usual {
    fn default() -> Self {
        Self {
            success: NEUTRAL,
            performance: NEUTRAL,
            rating: NEUTRAL,
        }
    }
}

impl Standings {
    /// Returns these standings.
    #[must_use]
    pub fn new(of: BTreeMap<ToolRef, ToolStanding>) -> Self {
        let all = || of.values();
        let endings = all().fold(Endings::default(), |sum, tool| Endings {
            n_ended: sum.n_ended + tool.endings.n_ended,
            n_ok: sum.n_ok + tool.endings.n_ok,
        });
        let latencies = all().filter_map(|tool| tool.latency);
        let (n_timed, quickness) = latencies.fold((0.0, 0.0), |(n, sum), (latency, n_calls)| {
            let n_calls = count(n_calls);
            (n + n_calls, sum + n_calls * quickness(latency))
        });
        let (n_ratings, stars) = all().fold((0.0, 0.0), |(n, sum), tool| {
            (n + f64::from(tool.ratings.0), sum + tool.ratings.1)
        });
        let mean = |n: f64, sum: f64, usual: f64| (sum + usual) / (n + 1.0);
        Self {
            usual: Usual {
                success: endings.smoothed(1.0, NEUTRAL),
                performance: mean(n_timed, quickness, NEUTRAL),
                rating: mean(n_ratings, (stars - n_ratings) / 4.0, NEUTRAL),
            },
            of,
        }
    }

    /// Returns how a tool did so far; `None` where nothing is known.
    #[must_use]
    pub fn of(&self, tool: &ToolRef) -> Option<&ToolStanding> {
        self.of.get(tool)
    }

    /// Returns the factors of a tool.
    ///
    /// - `relevance` is taken as it is;
    /// - success rate is the smoothed share of calls that went well;
    /// - popularity is `min(ln(1 + uses) / ln(1 + 1000), 1)`, of the share of uses that went well, times 0.5 to 1.5 by how well the calls
    ///   of the one who asks went, and counts together with `session` as chances of two independent
    ///   events do: `1 - (1 - popularity) (1 - session)`;
    /// - performance is `1 - min(median latency / 1 s, 1)`, smoothed, where calls that failed do not count;
    /// - user rating is the smoothed mean of `(stars - 1) / 4`.
    ///
    /// `session` says how much the running work session speaks for the tool, of 0 to 1.
    #[must_use]
    pub fn factors(&self, tool: &ToolRef, relevance: f64, session: f64) -> Factors {
        let standing = self.of.get(tool).copied().unwrap_or_default();
        let usual = &self.usual;
        // Calls that failed make no tool popular, and a quick failure is no performance.
        let endings = standing.endings;
        let share_ok = if endings.n_ended == 0 {
            1.0
        } else {
            count(endings.n_ok) / count(endings.n_ended)
        };
        let uses = standing.uses.max(0.0) * share_ok;
        let popularity = (uses.ln_1p() / MOST_USES.ln_1p()).min(1.0);
        let bias = 0.5 + standing.own.smoothed(EVEN_CALLS, NEUTRAL);
        let popularity = (popularity * bias).min(1.0);
        let session = session.clamp(0.0, 1.0);
        let (performance, n_timed) = match standing.latency {
            Some((latency, n)) => (quickness(latency), count(n) * share_ok),
            None => (0.0, 0.0),
        };
        let smoothed =
            |n: f64, sum: f64, n_usual: f64, usual: f64| (sum + n_usual * usual) / (n + n_usual);
        let (n_ratings, stars) = standing.ratings;
        let n_ratings = f64::from(n_ratings);
        Factors::new([
            relevance,
            standing.endings.smoothed(USUAL_CALLS, usual.success),
            1.0 - (1.0 - popularity) * (1.0 - session),
            smoothed(
                n_timed,
                n_timed * performance,
                USUAL_CALLS,
                usual.performance,
            ),
            smoothed(
                n_ratings,
                (stars - n_ratings) / 4.0,
                USUAL_RATINGS,
                usual.rating,
            ),
        ])
    }
}

/// Returns the performance of a latency: `1 - min(latency / 1 s, 1)`.
fn quickness(latency: Duration) -> f64 {
    1.0 - (latency.as_secs_f64() / SLOWEST.as_secs_f64()).min(1.0)
}

/// Returns how many uses count, each by `2^(-age / half_life)`. `n_since` has ages in days,
/// ascending, with the number of uses that are not older; uses between two of them are taken to be
/// as old as the geometric mean of the two, or half as old as the first.
///
/// # Examples
///
/// ```
/// # use riglm_domain::recommender::decayed;
/// // Ten uses about half a day ago, ten more about two days ago.
/// let uses = decayed(&[(1.0, 10), (4.0, 20)], 2.0);
/// assert!((uses - (10.0 * 0.5_f64.powf(0.25) + 10.0 * 0.5)).abs() < 1e-9);
/// ```
#[must_use]
pub fn decayed(n_since: &[(f64, u64)], half_life_days: f64) -> f64 {
    let mut uses = 0.0;
    let (mut from, mut n_before) = (0.0_f64, 0);
    for (to, n) in n_since {
        let n_between = count(n.saturating_sub(n_before));
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

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
