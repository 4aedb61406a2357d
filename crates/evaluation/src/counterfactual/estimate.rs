//! Estimates of the expected outcome under a policy, with their intervals and refusals.

use riglm_domain::num::to_f64;

use super::log::{ChoiceLog, OutcomeMeasure};
use super::outcome_model::OutcomeModel;
use super::policy::SizePolicy;

/// The least number of clusters that [`EstimateOptions::least_clusters`] permits.
const FEWEST_CLUSTERS: usize = 10;

/// The options of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EstimateOptions {
    /// The upper limit τ of a weight in clipped estimates, above 0; `None` for the square root of
    /// the number of sessions.
    pub clip: Option<f64>,
    /// Number of folds of the outcome model, from 2.
    pub n_folds: usize,
    /// Least number of sessions with a random size.
    pub least_explored: usize,
    /// Least number of independent clusters, from 10.
    pub least_clusters: usize,
    /// Least effective sample size of a policy.
    pub least_sample: f64,
}

impl Default for EstimateOptions {
    fn default() -> Self {
        Self {
            clip: None,
            n_folds: 5,
            // A usual least number for normal intervals.
            least_explored: 30,
            // With fewer clusters, cluster-robust standard errors are too small (Cameron and Miller
            // 2015).
            least_clusters: 20,
            least_sample: 20.0,
        }
    }
}

/// The reason for which there is no estimate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// An option is out of range.
    #[error("{name} must be {range}")]
    Option {
        /// The name of the option.
        name: &'static str,
        /// The permitted values.
        range: &'static str,
    },
    /// Too few sessions had a random size.
    #[error("too few sessions with a random size: {found} of at least {least}")]
    TooFewExplored {
        /// The number of sessions with a random size.
        found: usize,
        /// The least number.
        least: usize,
    },
    /// There are too few independent clusters for the folds and for a standard error.
    #[error("too few independent draws: {found} of at least {least}")]
    TooFewClusters {
        /// The number of clusters.
        found: usize,
        /// The least number.
        least: usize,
    },
    /// The policy gives sizes that were never shown: their logged probability is 0.
    #[error(
        "no overlap: in {n_uncovered} of {n_sessions} sessions, the policy gives a size whose \
         logged probability is 0"
    )]
    NoOverlap {
        /// The number of sessions in which the size had probability 0.
        n_uncovered: usize,
        /// The number of all sessions.
        n_sessions: usize,
    },
    /// The weights rest on too few clusters.
    #[error("effective sample size {found:.1} is below {least}")]
    SmallSample {
        /// The effective sample size.
        found: f64,
        /// The least effective sample size.
        least: f64,
    },
    /// The outcomes are so large that their sums are not finite.
    #[error("the outcomes are too large: an estimate is not finite")]
    NotFinite,
}

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate, in the unit of the outcome.
    pub value: f64,
    /// Its cluster-robust standard error.
    pub std_error: f64,
    /// Number of clusters behind the standard error.
    pub n_clusters: usize,
}

impl Estimate {
    /// Returns the lower end of the 95 % interval.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.value - self.half_width()
    }

    /// Returns the upper end of the 95 % interval.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.value + self.half_width()
    }

    fn half_width(&self) -> f64 {
        t_quantile(self.n_clusters.saturating_sub(1)) * self.std_error
    }
}

/// Returns the quantile of a two-sided interval of 95 % under Student's t-distribution, by the
/// expansion around the normal quantile in Abramowitz and Stegun (1964), 26.7.5. From 9 degrees of
/// freedom, its error is below 0.0001.
fn t_quantile(degrees: usize) -> f64 {
    /// The standard normal quantile.
    const Z: f64 = 1.959_963_984_540_054;
    let z = |power: i32| Z.powi(power);
    let n = to_f64(degrees.max(1));
    Z + (z(3) + z(1)) / (4.0 * n)
        + (5.0 * z(5) + 16.0 * z(3) + 3.0 * z(1)) / (96.0 * n.powi(2))
        + (3.0 * z(7) + 19.0 * z(5) + 17.0 * z(3) - 15.0 * z(1)) / (384.0 * n.powi(3))
        + (79.0 * z(9) + 776.0 * z(7) + 1_482.0 * z(5) - 1_920.0 * z(3) - 945.0 * z(1))
            / (92_160.0 * n.powi(4))
}

/// The estimates of the expected outcome under one policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyEstimates {
    /// Inverse propensity scores.
    pub ips: Estimate,
    /// Inverse propensity scores with clipped weights.
    pub clipped: Estimate,
    /// Self-normalized inverse propensity scores.
    pub snips: Estimate,
    /// Doubly robust, with a cross-fitted outcome model.
    pub doubly_robust: Estimate,
}

/// The mean outcome of the sessions that had the size of a policy, without any correction. It is
/// biased wherever the size depended on the session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlainMean {
    /// The mean.
    pub value: f64,
    /// The number of sessions.
    pub n_sessions: usize,
}

/// The evaluation of one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    /// The policy.
    pub policy: SizePolicy,
    /// The uncorrected mean; `None` if no session had the size of the policy.
    pub plain: Option<PlainMean>,
    /// The effective sample size, in independent clusters.
    pub effective_sample: f64,
    /// The estimates, or the reason for which there are none.
    pub estimates: Result<PolicyEstimates, Refusal>,
}

/// The evaluation of policies on a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogReport {
    /// The number of sessions.
    pub n_sessions: usize,
    /// The number of sessions with a random size.
    pub n_explored: usize,
    /// The number of independent clusters.
    pub n_clusters: usize,
    /// The mean outcome of all sessions: the value of the mixture that was running. `None` with too
    /// few clusters.
    pub logged: Option<Estimate>,
    /// The policies.
    pub policies: Vec<PolicyReport>,
}

/// Estimates the expected outcome of a session under each policy.
///
/// # Errors
///
/// Returns [`Refusal::Option`] for options out of range. Whatever else prevents an estimate is
/// reported for each policy.
pub fn estimate_policies(
    log: &ChoiceLog,
    measure: OutcomeMeasure,
    policies: &[SizePolicy],
    options: &EstimateOptions,
) -> Result<LogReport, Refusal> {
    check(options)?;
    let evaluation = Evaluation::new(log, measure, options);
    Ok(LogReport {
        n_sessions: evaluation.outcomes.len(),
        n_explored: log.n_explored(),
        n_clusters: evaluation.n_clusters,
        logged: evaluation.mean_of(&evaluation.outcomes),
        policies: (policies.iter())
            .map(|policy| evaluation.report(*policy))
            .collect(),
    })
}

fn check(options: &EstimateOptions) -> Result<(), Refusal> {
    let refuse = |name, range| Err(Refusal::Option { name, range });
    if options
        .clip
        .is_some_and(|clip| !clip.is_finite() || clip <= 0.0)
    {
        return refuse("clip", "a finite number above 0");
    }
    if !(2..=100).contains(&options.n_folds) {
        return refuse("n_folds", "a number from 2 to 100");
    }
    if options.least_clusters < FEWEST_CLUSTERS {
        return refuse("least_clusters", "a number of at least 10");
    }
    if !options.least_sample.is_finite() || options.least_sample < 2.0 {
        return refuse("least_sample", "a finite number of at least 2");
    }
    Ok(())
}

/// A log with what all policies have in common.
struct Evaluation<'a> {
    log: &'a ChoiceLog,
    options: &'a EstimateOptions,
    outcomes: Vec<f64>,
    /// By session.
    clusters: Vec<usize>,
    n_clusters: usize,
    /// By session.
    folds: Vec<usize>,
    /// `None` with too few clusters.
    model: Option<OutcomeModel>,
}

impl<'a> Evaluation<'a> {
    fn new(log: &'a ChoiceLog, measure: OutcomeMeasure, options: &'a EstimateOptions) -> Self {
        let clusters = log.clusters();
        let n_clusters = clusters.iter().max().map_or(0, |last| last + 1);
        let folds: Vec<usize> = (clusters.iter())
            .map(|cluster| cluster % options.n_folds)
            .collect();
        let has_folds = n_clusters >= least_clusters(options);
        let outcomes = log.choices().iter();
        Self {
            model: has_folds.then(|| OutcomeModel::fit(log, measure, &folds, options.n_folds)),
            outcomes: outcomes.map(|one| measure.of(&one.outcome)).collect(),
            log,
            options,
            clusters,
            n_clusters,
            folds,
        }
    }

    fn report(&self, policy: SizePolicy) -> PolicyReport {
        let choices = self.log.choices();
        let sizes = choices.iter().map(|session| session.size_under(policy));
        let is_shown: Vec<bool> = (choices.iter().zip(sizes))
            .map(|(session, size)| session.choice.size == size)
            .collect();
        let weights = choices.iter().zip(&is_shown).map(|(session, is_shown)| {
            if *is_shown {
                1.0 / session.choice.propensity.get()
            } else {
                0.0
            }
        });
        let weights: Vec<f64> = weights.collect();
        let shown = (self.outcomes.iter().zip(&is_shown)).filter(|(_, is_shown)| **is_shown);
        let n_shown = shown.clone().count();
        let sum: f64 = shown.map(|(outcome, _)| outcome).sum();
        let effective_sample = self.effective_sample(&weights);
        PolicyReport {
            policy,
            plain: (n_shown > 0).then(|| PlainMean {
                value: sum / to_f64(n_shown),
                n_sessions: n_shown,
            }),
            effective_sample,
            estimates: (self.check_support(policy, effective_sample))
                .and_then(|model| self.estimates(policy, &weights, model)),
        }
    }

    /// Returns the outcome model if the log supports estimates of the policy.
    fn check_support(
        &self,
        policy: SizePolicy,
        effective_sample: f64,
    ) -> Result<&OutcomeModel, Refusal> {
        let (found, least) = (self.log.n_explored(), self.options.least_explored);
        if found < least {
            return Err(Refusal::TooFewExplored { found, least });
        }
        let Some(model) = &self.model else {
            return Err(Refusal::TooFewClusters {
                found: self.n_clusters,
                least: least_clusters(self.options),
            });
        };
        let choices = self.log.choices();
        let uncovered = (choices.iter())
            .filter(|session| session.choice.probability(session.size_under(policy)) <= 0.0);
        let n_uncovered = uncovered.count();
        if n_uncovered > 0 {
            return Err(Refusal::NoOverlap {
                n_uncovered,
                n_sessions: choices.len(),
            });
        }
        let least = self.options.least_sample;
        if effective_sample < least {
            return Err(Refusal::SmallSample {
                found: effective_sample,
                least,
            });
        }
        Ok(model)
    }

    fn estimates(
        &self,
        policy: SizePolicy,
        weights: &[f64],
        model: &OutcomeModel,
    ) -> Result<PolicyEstimates, Refusal> {
        let n = to_f64(weights.len());
        let weighted = |limit: f64| -> Vec<f64> {
            let terms = weights.iter().zip(&self.outcomes);
            terms
                .map(|(weight, outcome)| weight.min(limit) * outcome)
                .collect()
        };
        let sum_of_weights: f64 = weights.iter().sum();
        let products = weighted(f64::INFINITY);
        let normalised = products.iter().sum::<f64>() / sum_of_weights;
        let mean_weight = sum_of_weights / n;
        let deviations = (weights.iter().zip(&self.outcomes))
            .map(|(weight, outcome)| weight * (outcome - normalised) / mean_weight);
        let sessions = self.log.choices().iter().zip(&self.folds);
        let robust = sessions.zip(weights.iter().zip(&self.outcomes)).map(
            |((session, fold), (weight, outcome))| {
                let target = model.predict(session, session.size_under(policy), *fold);
                let logged = model.predict(session, session.choice.size, *fold);
                target + weight * (outcome - logged)
            },
        );
        let clip = self.options.clip.unwrap_or_else(|| n.sqrt());
        let all = PolicyEstimates {
            ips: self.mean_of(&products).ok_or(Refusal::NotFinite)?,
            clipped: self.mean_of(&weighted(clip)).ok_or(Refusal::NotFinite)?,
            snips: Estimate {
                value: normalised,
                std_error: self.std_error(&deviations.collect::<Vec<_>>(), 0.0),
                n_clusters: self.n_clusters,
            },
            doubly_robust: (self.mean_of(&robust.collect::<Vec<_>>())).ok_or(Refusal::NotFinite)?,
        };
        let is_finite = all.snips.value.is_finite() && all.snips.std_error.is_finite();
        if is_finite {
            Ok(all)
        } else {
            Err(Refusal::NotFinite)
        }
    }

    /// Returns the mean of terms with its standard error; `None` if they are not finite, or with too
    /// few clusters.
    fn mean_of(&self, terms: &[f64]) -> Option<Estimate> {
        if self.n_clusters < least_clusters(self.options) {
            return None;
        }
        let value = terms.iter().sum::<f64>() / to_f64(terms.len());
        let std_error = self.std_error(terms, value);
        (value.is_finite() && std_error.is_finite()).then_some(Estimate {
            value,
            std_error,
            n_clusters: self.n_clusters,
        })
    }

    /// Returns the cluster-robust standard error of the mean of terms around `mean`.
    fn std_error(&self, terms: &[f64], mean: f64) -> f64 {
        let mut sums = vec![0.0; self.n_clusters];
        for (cluster, term) in self.clusters.iter().zip(terms) {
            sums[*cluster] += term - mean;
        }
        let n_clusters = to_f64(self.n_clusters);
        let squares: f64 = sums.iter().map(|sum| sum * sum).sum();
        (squares * n_clusters / (n_clusters - 1.0)).sqrt() / to_f64(terms.len())
    }

    fn effective_sample(&self, weights: &[f64]) -> f64 {
        let mut sums = vec![0.0_f64; self.n_clusters];
        for (cluster, weight) in self.clusters.iter().zip(weights) {
            sums[*cluster] += weight;
        }
        let squares: f64 = sums.iter().map(|sum| sum * sum).sum();
        if squares > 0.0 {
            sums.iter().sum::<f64>().powi(2) / squares
        } else {
            0.0
        }
    }
}

/// Returns the least number of clusters: also, each fold must leave some to fit on.
fn least_clusters(options: &EstimateOptions) -> usize {
    options.least_clusters.max(2 * options.n_folds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (degrees, expected) in [
            (9, 2.262_157),
            (19, 2.093_024),
            (30, 2.042_272),
            (120, 1.979_930),
            (1_000_000, 1.959_966),
        ] {
            let found = t_quantile(degrees);
            assert!((found - expected).abs() < 1e-4, "{degrees}: {found}");
        }
    }
}
