//! The identity of a predictor: equal sets learn and predict the same.

use super::engine::PredictionMethod;
use super::expert::{Expert, ExpertSet};

/// A method of prediction: one expert alone, or a mix of some.
///
/// Two sets are equal exactly if their predictors behave equally. For this, the experts of a method
/// without a mix are ignored, and a list of all experts is the same as [`ExpertSet::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictorSet {
    method: PredictionMethod,
    experts: ExpertSet,
}

impl PredictorSet {
    /// Returns the set for a method; `experts` matter for [`PredictionMethod::Mix`] and
    /// [`PredictionMethod::Advice`] only.
    #[must_use]
    pub fn new(method: PredictionMethod, experts: ExpertSet) -> Self {
        let is_whole = Expert::ALL.iter().all(|expert| experts.contains(*expert));
        let mixes = matches!(method, PredictionMethod::Mix | PredictionMethod::Advice);
        let experts = if is_whole || !mixes {
            ExpertSet::ALL
        } else {
            experts
        };
        Self { method, experts }
    }

    /// Returns the method that computes probabilities.
    #[must_use]
    pub fn method(self) -> PredictionMethod {
        self.method
    }

    /// Returns the experts of the mix; [`ExpertSet::ALL`] for methods without a mix, too.
    #[must_use]
    pub fn experts(self) -> ExpertSet {
        self.experts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_with_equal_predictions_are_equal() {
        let some = ExpertSet::of(&[Expert::Markov, Expert::Server]);
        let alone = PredictionMethod::Expert(Expert::Markov);
        assert_eq!(
            PredictorSet::new(alone, some),
            PredictorSet::new(alone, ExpertSet::ALL)
        );
        assert_eq!(
            PredictorSet::new(PredictionMethod::Mix, ExpertSet::of(Expert::ALL)),
            PredictorSet::new(PredictionMethod::Mix, ExpertSet::ALL)
        );
        let mixed = PredictorSet::new(PredictionMethod::Mix, some);
        assert_ne!(
            mixed,
            PredictorSet::new(PredictionMethod::Mix, ExpertSet::ALL)
        );
        assert_ne!(mixed, PredictorSet::new(alone, some));
        assert_eq!(
            (mixed.method(), mixed.experts()),
            (PredictionMethod::Mix, some)
        );
    }
}
