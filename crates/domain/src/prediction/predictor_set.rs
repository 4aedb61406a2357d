//! What predictions are made with, as an identity: two that are equal learn and predict the same.

use super::engine::Method;
use super::expert::{Expert, ExpertSet};

/// A way to predict: one expert alone, or some of them mixed.
///
/// Two sets are equal exactly if predictors of them cannot be told apart: which experts a mix is made
/// of says nothing of a predictor that mixes none, and all of them named are all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictorSet {
    method: Method,
    experts: ExpertSet,
}

impl PredictorSet {
    /// Returns the way to predict by a method; with [`Method::Mix`] of these experts.
    #[must_use]
    pub fn new(method: Method, experts: ExpertSet) -> Self {
        let is_whole = Expert::ALL.iter().all(|expert| experts.contains(*expert));
        let experts = if is_whole || method != Method::Mix {
            ExpertSet::ALL
        } else {
            experts
        };
        Self { method, experts }
    }

    /// Returns how probabilities are made.
    #[must_use]
    pub fn method(self) -> Method {
        self.method
    }

    /// Returns the experts that are mixed; [`ExpertSet::ALL`] where none are, too.
    #[must_use]
    pub fn experts(self) -> ExpertSet {
        self.experts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_equal_that_predict_the_same() {
        let some = ExpertSet::of(&[Expert::Markov, Expert::Server]);
        let alone = Method::Expert(Expert::Markov);
        assert_eq!(
            PredictorSet::new(alone, some),
            PredictorSet::new(alone, ExpertSet::ALL)
        );
        assert_eq!(
            PredictorSet::new(Method::Mix, ExpertSet::of(&Expert::ALL)),
            PredictorSet::new(Method::Mix, ExpertSet::ALL)
        );
        let mixed = PredictorSet::new(Method::Mix, some);
        assert_ne!(mixed, PredictorSet::new(Method::Mix, ExpertSet::ALL));
        assert_ne!(mixed, PredictorSet::new(alone, some));
        assert_eq!((mixed.method(), mixed.experts()), (Method::Mix, some));
    }
}
