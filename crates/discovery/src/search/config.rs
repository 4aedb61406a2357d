//! Parts of the configuration section `search` that the search reads.

use riglm_domain::num::check_range;
use riglm_domain::retrieval::{RankFusion, RankFusionPreset, RankFusionWeights, check_weight};
use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The key `search.fusion`: the fusion of the parts of a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FusionMethod {
    /// Sum of scores; the text score is the share of the query that the tool covers.
    #[default]
    Score,
    /// Weighted reciprocal rank fusion.
    Rrf,
}

/// The subsection `search.rrf`. A configured weight replaces that of the preset.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct RankFusionConfig {
    /// The smoothing constant of ranks: the larger it is, the less the first ranks stand out.
    #[validate(custom(function = "check_k"))]
    pub k: f64,
    /// The preset of the weights.
    pub preset: RankFusionPreset,
    /// The weight of the text ranking.
    #[validate(custom(function = "check_weight"))]
    pub words: Option<f64>,
    /// The weight of the vector ranking.
    #[validate(custom(function = "check_weight"))]
    pub meaning: Option<f64>,
    /// The weight of the ranking by use after similar texts.
    #[validate(custom(function = "check_weight"))]
    pub memory: Option<f64>,
    /// The weight of the ranking by companions of the best hits.
    #[validate(custom(function = "check_weight"))]
    pub companions: Option<f64>,
    /// The weight of the ranking by number of calls.
    #[validate(custom(function = "check_weight"))]
    pub frequency: Option<f64>,
}

impl Default for RankFusionConfig {
    fn default() -> Self {
        Self {
            k: RankFusion::default().k,
            preset: RankFusionPreset::default(),
            words: None,
            meaning: None,
            memory: None,
            companions: None,
            frequency: None,
        }
    }
}

impl RankFusionConfig {
    /// Returns the fusion with the weights of the preset and the configured ones.
    #[must_use]
    pub fn fusion(&self) -> RankFusion {
        let preset = self.preset.weights();
        RankFusion {
            k: self.k,
            weights: RankFusionWeights {
                words: self.words.unwrap_or(preset.words),
                meaning: self.meaning.unwrap_or(preset.meaning),
                memory: self.memory.unwrap_or(preset.memory),
                companions: self.companions.unwrap_or(preset.companions),
                frequency: self.frequency.unwrap_or(preset.frequency),
            },
        }
    }
}

fn check_k(value: f64) -> Result<(), ValidationError> {
    check_range(value, 1.0, 10_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_preset_can_be_replaced() {
        let section = r#"{"preset":"curated-first","words":2.0,"k":10}"#;
        let config: RankFusionConfig = serde_json::from_str(section).unwrap();
        let expected = RankFusion {
            k: 10.0,
            weights: RankFusionWeights {
                words: 2.0,
                ..RankFusionWeights::CURATED_FIRST
            },
        };
        assert_eq!(config.fusion(), expected);
        assert_eq!(RankFusionConfig::default().fusion(), RankFusion::default());
        assert!(check_weight(f64::NAN).is_err());
    }
}
