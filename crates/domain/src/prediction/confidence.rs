//! How far a prediction is to be trusted, and what a list does then.

use serde::{Deserialize, Serialize};

use super::forecast::Forecast;
use super::number::real;

/// What a list does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Band {
    /// Too little is known: a cold start. Every tool is shown.
    ShowAll,
    /// The list is filtered, and the search for tools comes first.
    SearchProminent,
    /// The list is filtered, and the search for tools comes last.
    Filter,
}

/// Where one band ends and the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bands {
    /// Below this confidence every tool is shown.
    pub show_all_below: f64,
    /// Below this confidence the search comes first.
    pub search_prominent_below: f64,
}

impl Bands {
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

    /// Returns the band of a confidence. One that is not a number is a cold start.
    #[must_use]
    pub fn of(&self, confidence: f64) -> Band {
        if confidence >= self.search_prominent_below && confidence >= self.show_all_below {
            Band::Filter
        } else if confidence >= self.show_all_below {
            Band::SearchProminent
        } else {
            Band::ShowAll
        }
    }
}

/// How a confidence is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfidenceMeasure {
    /// The predicted mass of the best `max_tools`: the probability that no search is needed.
    #[default]
    Mass,
    /// The mean similarity of the ten nearest earlier texts, times the share of them that a tool
    /// was used after. It says little: see [`similarity_confidence`].
    Similarity,
}

impl ConfidenceMeasure {
    /// Returns the bands that the measure is used with by default.
    #[must_use]
    pub fn bands(self) -> Bands {
        match self {
            Self::Mass => Bands::MASS,
            Self::Similarity => Bands::SIMILARITY,
        }
    }
}

/// How far a prediction is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Confidence {
    /// From 0 to 1.
    pub value: f64,
    /// What a list does.
    pub band: Band,
}

impl Confidence {
    /// Returns how far the best `max_tools` of a prediction are to be trusted.
    #[must_use]
    pub fn of_mass(forecast: &Forecast, max_tools: usize, bands: Bands) -> Self {
        let value = forecast.mass(max_tools);
        Self {
            value,
            band: bands.of(value),
        }
    }

    /// Returns the confidence by the similarity of earlier texts; see [`similarity_confidence`].
    #[must_use]
    pub fn of_similarity(similarities: &[f64], n_used: usize, bands: Bands) -> Self {
        let value = similarity_confidence(similarities, n_used);
        Self {
            value,
            band: bands.of(value),
        }
    }

    /// Returns whether too little is known to filter.
    #[must_use]
    pub fn is_cold_start(&self) -> bool {
        self.band == Band::ShowAll
    }
}

/// How many earlier texts the similarity is taken over.
const N_SIMILAR: usize = 10;

/// Returns `mean similarity * used / 10` over the ten nearest earlier texts, of which a tool was
/// used after `n_used`. From 0 to 1; zero where nothing is known.
///
/// Similarities of encoders have no common scale: with some every text is near, with others none.
/// [`Forecast::mass`] is what to use; this is here for those who want the number that they know.
#[must_use]
pub fn similarity_confidence(similarities: &[f64], n_used: usize) -> f64 {
    let near = &similarities[..similarities.len().min(N_SIMILAR)];
    let known: Vec<f64> = near.iter().copied().filter(|it| it.is_finite()).collect();
    if known.is_empty() {
        return 0.0;
    }
    let mean = known.iter().sum::<f64>() / real(known.len());
    (mean * real(n_used.min(N_SIMILAR)) / real(N_SIMILAR)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_begin_where_they_say() {
        let bands = Bands::MASS;
        assert_eq!(bands.of(0.599), Band::ShowAll);
        assert_eq!(bands.of(0.6), Band::SearchProminent);
        assert_eq!(bands.of(0.899), Band::SearchProminent);
        assert_eq!(bands.of(0.9), Band::Filter);
        assert_eq!(bands.of(f64::NAN), Band::ShowAll);
    }

    #[test]
    fn confidence_is_the_mass_of_what_is_shown() {
        let forecast = Forecast::new(vec![(Slot(0), 0.2), (Slot(1), 0.5), (Slot(2), 0.3)]);
        let one = Confidence::of_mass(&forecast, 1, Bands::MASS);
        assert!(one.is_cold_start() && (one.value - 0.5).abs() < 1e-12);
        let two = Confidence::of_mass(&forecast, 2, Bands::MASS);
        assert_eq!(two.band, Band::SearchProminent);
        assert_eq!(
            Confidence::of_mass(&forecast, 9, Bands::MASS).band,
            Band::Filter
        );
    }

    #[test]
    fn similarity_is_the_mean_times_the_share_that_was_used() {
        assert!((similarity_confidence(&[0.8; 10], 5) - 0.4).abs() < 1e-12);
        assert!((similarity_confidence(&[0.8, 0.4], 10) - 0.6).abs() < 1e-12);
        assert!(similarity_confidence(&[], 10).abs() < 1e-12);
        assert!(similarity_confidence(&[f64::NAN], 10).abs() < 1e-12);
        let confidence = Confidence::of_similarity(&[0.8; 20], 5, Bands::SIMILARITY);
        assert_eq!(confidence.band, Band::SearchProminent);
    }

    use crate::prediction::vocabulary::Slot;
}
