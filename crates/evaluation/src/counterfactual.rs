//! Counterfactual evaluation: the costs that sessions would have had under other rules for the size
//! of lists, estimated from logged sizes with known probabilities.
//!
//! A session i had features `x_i` before its list was decided, the size `a_i` with the logged
//! probability `p_i` (its propensity), and the outcome `y_i`, such as its cost. A policy π gives a
//! size `π(x_i)`. The weight of a session is `w_i = [π(x_i) = a_i] / p_i`. Of n sessions, the
//! expected outcome under π is estimated as follows.
//!
//! - Inverse propensity scores, IPS: `1/n Σ w_i y_i` (Horvitz and Thompson 1952,
//!   <https://doi.org/10.1080/01621459.1952.10483446>). It has no bias if `p_i` is right and above 0
//!   wherever π needs it.
//! - Clipped IPS: the same with `min(w_i, τ)`, by default `τ = sqrt(n)` (Ionides 2008,
//!   <https://doi.org/10.1198/106186008X320456>). It has less variance, and a bias towards 0.
//! - Self-normalized IPS, SNIPS: `Σ w_i y_i / Σ w_i` (Swaminathan and Joachims 2015,
//!   <https://papers.nips.cc/paper/5748-the-self-normalized-estimator-for-counterfactual-learning>).
//!   It has a bias of order 1/n, and does not change if all outcomes are shifted.
//! - Doubly robust, DR: `1/n Σ (q(x_i, π(x_i)) + w_i (y_i - q(x_i, a_i)))` (Dudík, Langford and Li
//!   2011, <https://arxiv.org/abs/1103.4601>), with an outcome model q. It has no bias if either the
//!   propensities or the model are right. The model is cross-fitted (Chernozhukov et al. 2018,
//!   <https://doi.org/10.1111/ectj.12097>): sessions are divided into folds, and the model of a fold
//!   is fitted on all other folds, so that no session predicts itself.
//!
//! Sessions with the same draw share their randomness, so they form a cluster. Folds consist of
//! whole clusters. With `ψ_i` the term of a session, `θ` the estimate and C clusters, the variance
//! is `C/(C-1) Σ_c (Σ_{i in c} (ψ_i - θ))² / n²` (Liang and Zeger 1986,
//! <https://doi.org/10.1093/biomet/73.1.13>). The interval of 95 % has the quantile of the
//! t-distribution with C - 1 degrees of freedom, and there is none for few clusters (Cameron and
//! Miller 2015, <https://doi.org/10.3368/jhr.50.2.317>). For SNIPS
//! the terms are `w_i (y_i - θ) / mean(w)`, by the delta method.
//!
//! The effective sample size is `(Σ W_c)² / Σ W_c²` with the sums `W_c` of the weights of each cluster
//! (Kish 1965, Survey Sampling): the number of clusters with equal weights that give as much
//! information about π.
//!
//! An estimate that the log does not support is refused with the reason ([`Refusal`]).

mod choice_reader;
mod estimate;
mod log;
mod outcome_model;
mod policy;
#[cfg(test)]
mod tests;

pub use choice_reader::{ClusterBy, SessionOwner, StoredChoices, StoredOptions, stored_choices};
pub use estimate::{
    Estimate, EstimateOptions, LogReport, PlainMean, PolicyEstimates, PolicyReport, Refusal,
    estimate_policies,
};
pub use log::{ChoiceError, ChoiceLog, LoggedChoice, OutcomeMeasure, SessionOutcome};
pub use policy::SizePolicy;
