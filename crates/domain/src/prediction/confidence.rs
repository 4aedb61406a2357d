//! Confidence in a prediction, and its effect on a list.

use serde::{Deserialize, Serialize};

use super::forecast::Forecast;
use crate::num::to_f64;

/// The effect of a confidence on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfidenceBand {
    /// Cold start: too little is known. Every tool is shown.
    ShowAll,
    /// The list is filtered, and the search for tools comes first.
    SearchProminent,
    /// The list is filtered, and the search for tools comes last.
    Filter,
}

/// The thresholds between the bands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceBands {
    /// Below this confidence every tool is shown.
    pub show_all_below: f64,
    /// Below this confidence the search comes first.
    pub search_prominent_below: f64,
}

impl ConfidenceBands {
    /// The bands of [`mass`](Forecast::mass), which is a probability.
    pub const MASS: Self = Self {
        show_all_below: 0.60,
        search_prominent_below: 0.90,
    };
    /// The bands of [`similarity_confidence`].
    pub const SIMILARITY: Self = Self {
        show_all_below: 0.3,
        search_prominent_below: 0.7,
    };

    /// Returns the band of a confidence. NaN is a cold start.
    #[must_use]
    pub fn of(&self, confidence: f64) -> ConfidenceBand {
        // Only `>=`, so that NaN fails every comparison.
        if confidence >= self.search_prominent_below && confidence >= self.show_all_below {
            ConfidenceBand::Filter
        } else if confidence >= self.show_all_below {
            ConfidenceBand::SearchProminent
        } else {
            ConfidenceBand::ShowAll
        }
    }
}

/// The measure of confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfidenceMeasure {
    /// The predicted mass of the best `max_tools`: the probability that no search is needed.
    #[default]
    Mass,
    /// The mean similarity of the ten nearest earlier texts, times the share of them after which a
    /// tool was used. It has little meaning: see [`similarity_confidence`].
    Similarity,
}

impl ConfidenceMeasure {
    /// Returns the default bands of the measure.
    #[must_use]
    pub fn bands(self) -> ConfidenceBands {
        match self {
            Self::Mass => ConfidenceBands::MASS,
            Self::Similarity => ConfidenceBands::SIMILARITY,
        }
    }
}

/// The confidence in a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Confidence {
    /// From 0 to 1.
    pub value: f64,
    /// The effect on the list.
    pub band: ConfidenceBand,
}

impl Confidence {
    /// Returns the confidence that the next tool is among the best `max_tools` of a prediction.
    #[must_use]
    pub fn of_mass(forecast: &Forecast, max_tools: usize, bands: ConfidenceBands) -> Self {
        let value = forecast.mass(max_tools);
        Self {
            value,
            band: bands.of(value),
        }
    }

    /// Returns the confidence from the similarity of earlier texts; see [`similarity_confidence`].
    #[must_use]
    pub fn of_similarity(similarities: &[f64], n_used: usize, bands: ConfidenceBands) -> Self {
        let value = similarity_confidence(similarities, n_used);
        Self {
            value,
            band: bands.of(value),
        }
    }

    /// Returns whether too little is known to filter.
    #[must_use]
    pub fn is_cold_start(&self) -> bool {
        self.band == ConfidenceBand::ShowAll
    }
}

/// Number of earlier texts for the mean similarity.
const N_SIMILAR: usize = 10;

/// Returns `mean similarity * used / 10` over the ten nearest earlier texts; `n_used` is the number
/// of texts after which a tool was used. From 0 to 1; 0 without finite similarities.
///
/// Similarities of encoders have no common scale: with some encoders every text is near, with
/// others none. Prefer [`Forecast::mass`]; this measure exists because some users know it.
#[must_use]
pub fn similarity_confidence(similarities: &[f64], n_used: usize) -> f64 {
    let near = &similarities[..similarities.len().min(N_SIMILAR)];
    let known: Vec<f64> = near.iter().copied().filter(|it| it.is_finite()).collect();
    if known.is_empty() {
        return 0.0;
    }
    let mean = known.iter().sum::<f64>() / to_f64(known.len());
    (mean * to_f64(n_used.min(N_SIMILAR)) / to_f64(N_SIMILAR)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_begin_at_their_thresholds() {
        let bands = ConfidenceBands::MASS;
        assert_eq!(bands.of(0.599), ConfidenceBand::ShowAll);
        assert_eq!(bands.of(0.6), ConfidenceBand::SearchProminent);
        assert_eq!(bands.of(0.899), ConfidenceBand::SearchProminent);
        assert_eq!(bands.of(0.9), ConfidenceBand::Filter);
        assert_eq!(bands.of(f64::NAN), ConfidenceBand::ShowAll);
    }

    #[test]
    fn confidence_is_the_mass_of_the_shown_tools() {
        let forecast =
            Forecast::from_distribution(vec![(ToolIx(0), 0.2), (ToolIx(1), 0.5), (ToolIx(2), 0.3)]);
        let one = Confidence::of_mass(&forecast, 1, ConfidenceBands::MASS);
        assert!(one.is_cold_start() && (one.value - 0.5).abs() < 1e-12);
        let two = Confidence::of_mass(&forecast, 2, ConfidenceBands::MASS);
        assert_eq!(two.band, ConfidenceBand::SearchProminent);
        assert_eq!(
            Confidence::of_mass(&forecast, 9, ConfidenceBands::MASS).band,
            ConfidenceBand::Filter
        );
    }

    #[test]
    fn similarity_confidence_is_the_mean_times_the_used_share() {
        assert!((similarity_confidence(&[0.8; 10], 5) - 0.4).abs() < 1e-12);
        assert!((similarity_confidence(&[0.8, 0.4], 10) - 0.6).abs() < 1e-12);
        assert!(similarity_confidence(&[], 10).abs() < 1e-12);
        assert!(similarity_confidence(&[f64::NAN], 10).abs() < 1e-12);
        let confidence = Confidence::of_similarity(&[0.8; 20], 5, ConfidenceBands::SIMILARITY);
        assert_eq!(confidence.band, ConfidenceBand::SearchProminent);
    }

    use crate::prediction::vocabulary::ToolIx;
}
