//! The configuration section `search`.

mod escalation;

use std::path::PathBuf;

use riglm_adapters_prediction::encoder::EncoderConfig;
use riglm_discovery::search::{AnswerRules, SearchRules};
use riglm_domain::retrieval::{
    HistoryWeights, QualityRules, RankFusion, RankFusionWeights, RankingRules, Synonyms,
};
use serde::Deserialize;
use validator::{Validate, ValidationError};

pub use self::escalation::{ExpansionConfig, NotesConfig, RerankBy, RerankConfig};
use super::ConfigError;

/// The fusion of the parts of a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fusion {
    /// Sum of scores; the text score is the share of the query that the tool covers.
    #[default]
    Score,
    /// Weighted reciprocal rank fusion.
    Rrf,
}

/// The weights of the rankings with `fusion = "rrf"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RrfPreset {
    /// Equal weights.
    #[default]
    Equal,
    /// Rankings from the behavior of users count more than derived ones.
    CuratedFirst,
}

/// The subsection `search.rrf`. A configured weight replaces that of the preset.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct RrfConfig {
    /// The smoothing constant of ranks: the larger it is, the less the first ranks stand out.
    #[validate(custom(function = "check_k"))]
    pub k: f64,
    /// The preset of the weights.
    pub preset: RrfPreset,
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

impl Default for RrfConfig {
    fn default() -> Self {
        Self {
            k: RankFusion::default().k,
            preset: RrfPreset::default(),
            words: None,
            meaning: None,
            memory: None,
            companions: None,
            frequency: None,
        }
    }
}

/// The subsection `search.weights`: the contribution of each part to a score; 0 switches it off.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct WeightsConfig {
    /// The score of one standard deviation of the cosine over all tools.
    #[validate(custom(function = "check_weight"))]
    pub meaning: f64,
    /// The score of a synonym, as a share of the score of the word itself.
    #[validate(custom(function = "check_weight"))]
    pub synonyms: f64,
    /// The score of a tool that accepts the URL, path or file in the query.
    #[validate(custom(function = "check_weight"))]
    pub slots: f64,
    /// The score of a server with other fitting tools, from the sixth rank on.
    #[validate(custom(function = "check_weight"))]
    pub server: f64,
    /// The score of a tool that was used after similar texts.
    #[validate(custom(function = "check_weight"))]
    pub memory: f64,
    /// The score of a companion of the best hits and of the tools that the session used.
    #[validate(custom(function = "check_weight"))]
    pub companions: f64,
    /// The score of the most called tool.
    #[validate(custom(function = "check_weight"))]
    pub frequency: f64,
}

impl Default for WeightsConfig {
    fn default() -> Self {
        let rules = RankingRules::default();
        Self {
            meaning: rules.meaning,
            synonyms: rules.synonyms,
            slots: rules.slots,
            server: rules.server,
            memory: rules.history.memory,
            companions: rules.history.companions,
            frequency: rules.history.frequency,
        }
    }
}

/// The subsection `search.quality`: the grading of an answer. The first five weights add up to 1.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_quality"))]
pub struct QualityConfig {
    /// The weight of the fit of the first hit.
    #[validate(custom(function = "check_share"))]
    pub top: f64,
    /// The weight of the mean fit of the first five hits.
    #[validate(custom(function = "check_share"))]
    pub mean: f64,
    /// The weight of the number of hits.
    #[validate(custom(function = "check_share"))]
    pub count: f64,
    /// The weight of the recency of use of a hit after a similar text.
    #[validate(custom(function = "check_share"))]
    pub recency: f64,
    /// The weight of the distance of the first hit from the others.
    #[validate(custom(function = "check_share"))]
    pub variance: f64,
    /// The lowest grade of a high quality.
    #[validate(custom(function = "check_share"))]
    pub high: f64,
    /// Grades below this are of low quality.
    #[validate(custom(function = "check_share"))]
    pub low: f64,
}

impl Default for QualityConfig {
    fn default() -> Self {
        let rules = QualityRules::default();
        Self {
            top: rules.top,
            mean: rules.mean,
            count: rules.count,
            recency: rules.recency,
            variance: rules.variance,
            high: rules.high,
            low: rules.low,
        }
    }
}

/// The configuration section `search`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_tool_names"))]
pub struct SearchConfig {
    /// Whether filtered lists contain the search tool. Without it, riglm has no other tools of its
    /// own either.
    pub enabled: bool,
    /// The name of the search tool.
    #[validate(custom(function = "check_tool_name"))]
    pub tool_name: String,
    /// Whether there is a tool that calls other tools.
    pub call_tool: bool,
    /// The name of the tool that calls other tools.
    #[validate(custom(function = "check_tool_name"))]
    pub call_tool_name: String,
    /// Whether there is a tool with which clients declare a context.
    pub set_context: bool,
    /// The name of the tool for contexts.
    #[validate(custom(function = "check_tool_name"))]
    pub set_context_name: String,
    /// The token budget of an answer.
    #[validate(range(
        min = 100,
        max = 100_000,
        message = "expected a number from 100 to 100000"
    ))]
    pub token_budget: u64,
    /// The number of predicted next tools in an answer, in addition to the found ones.
    #[validate(range(max = 50, message = "expected a number from 0 to 50"))]
    pub n_predicted: u32,
    /// The fusion of the parts of a score.
    pub fusion: Fusion,
    /// A file of synonyms, in addition to those that come with riglm: one group of words per line.
    pub synonyms: Option<PathBuf>,
    /// The half-life of a remembered text, in days.
    #[validate(range(min = 1, max = 3_650, message = "expected a number from 1 to 3650"))]
    pub half_life_days: u32,
    /// The threshold of probability: if no tool is right with at least this probability, the answer
    /// says that no tool matches.
    #[validate(custom(function = "check_share"))]
    pub min_fit: f64,
    /// The encoder, which turns texts into vectors.
    #[validate(nested)]
    pub encoder: EncoderConfig,
    /// The weights of the parts of a score.
    #[validate(nested)]
    pub weights: WeightsConfig,
    /// The weights of `fusion = "rrf"`.
    #[validate(nested)]
    pub rrf: RrfConfig,
    /// The grading of answers.
    #[validate(nested)]
    pub quality: QualityConfig,
    /// The notes of operators about tools.
    #[validate(nested)]
    pub notes: NotesConfig,
    /// The expansion of queries.
    #[validate(nested)]
    pub expansion: ExpansionConfig,
    /// The reranking of results.
    #[validate(nested)]
    pub rerank: RerankConfig,
}

impl Default for SearchConfig {
    fn default() -> Self {
        let rules = SearchRules::default();
        Self {
            enabled: true,
            tool_name: "search_available_tools".into(),
            call_tool: true,
            call_tool_name: "call_tool".into(),
            set_context: true,
            set_context_name: "set_context".into(),
            token_budget: rules.answer.token_budget,
            n_predicted: 9,
            fusion: Fusion::default(),
            synonyms: None,
            half_life_days: 30,
            min_fit: rules.min_fit,
            encoder: EncoderConfig::default(),
            weights: WeightsConfig::default(),
            rrf: RrfConfig::default(),
            quality: QualityConfig::default(),
            notes: NotesConfig::default(),
            expansion: ExpansionConfig::default(),
            rerank: RerankConfig::default(),
        }
    }
}

impl SearchConfig {
    /// Returns the configured rules; reads the file of synonyms.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] with the file name if the file of synonyms cannot be read.
    pub fn rules(&self) -> Result<SearchRules, ConfigError> {
        let quality = &self.quality;
        Ok(SearchRules {
            ranking: self.ranking(),
            quality: QualityRules {
                top: quality.top,
                mean: quality.mean,
                count: quality.count,
                recency: quality.recency,
                variance: quality.variance,
                high: quality.high,
                low: quality.low,
            },
            answer: AnswerRules {
                token_budget: self.token_budget,
                n_predicted: usize::try_from(self.n_predicted).unwrap_or(0),
                ..AnswerRules::default()
            },
            synonyms: self.all_synonyms()?,
            encoder_deadline: self.encoder.timeout,
            min_fit: self.min_fit,
        })
    }

    fn ranking(&self) -> RankingRules {
        let weights = &self.weights;
        RankingRules {
            rank_fusion: (self.fusion == Fusion::Rrf).then(|| self.rrf.fusion()),
            meaning: weights.meaning,
            synonyms: weights.synonyms,
            slots: weights.slots,
            server: weights.server,
            history: HistoryWeights {
                memory: weights.memory,
                companions: weights.companions,
                frequency: weights.frequency,
                half_life_days: self.half_life_days.into(),
                ..HistoryWeights::default()
            },
        }
    }

    fn all_synonyms(&self) -> Result<Synonyms, ConfigError> {
        let shipped = Synonyms::built_in();
        let Some(path) = &self.synonyms else {
            return Ok(shipped);
        };
        let refused = |reason: String| ConfigError::Synonyms {
            path: path.clone(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        shipped
            .with(&text)
            .map_err(|error| refused(error.to_string()))
    }
}

impl RrfConfig {
    /// Returns the configured fusion.
    #[must_use]
    pub fn fusion(&self) -> RankFusion {
        let preset = match self.preset {
            RrfPreset::Equal => RankFusionWeights::EQUAL,
            RrfPreset::CuratedFirst => RankFusionWeights::CURATED_FIRST,
        };
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

fn check_weight(value: f64) -> Result<(), ValidationError> {
    within(value, 0.0, 10.0)
}

fn check_share(value: f64) -> Result<(), ValidationError> {
    within(value, 0.0, 1.0)
}

fn check_k(value: f64) -> Result<(), ValidationError> {
    within(value, 1.0, 10_000.0)
}

fn within(value: f64, from: f64, to: f64) -> Result<(), ValidationError> {
    if (from..=to).contains(&value) {
        return Ok(());
    }
    let message = format!("expected a number from {from} to {to}");
    Err(ValidationError::new("range").with_message(message.into()))
}

fn check_quality(config: &QualityConfig) -> Result<(), ValidationError> {
    let sum = config.top + config.mean + config.count + config.recency + config.variance;
    let message = if (sum - 1.0).abs() > 1e-6 {
        format!("top, mean, count, recency and variance must add up to 1, not {sum}")
    } else if config.low > config.high {
        format!(
            "low ({}) must not be greater than high ({})",
            config.low, config.high
        )
    } else {
        return Ok(());
    };
    Err(ValidationError::new("quality").with_message(message.into()))
}

fn check_tool_names(config: &SearchConfig) -> Result<(), ValidationError> {
    let names = [
        ("tool_name", true, &config.tool_name),
        ("call_tool_name", config.call_tool, &config.call_tool_name),
        (
            "set_context_name",
            config.set_context,
            &config.set_context_name,
        ),
    ];
    for (at, (key, is_there, name)) in names.iter().enumerate() {
        let mut before = names[..at].iter();
        let same = before.find(|(_, is_other_there, other)| *is_other_there && other == name);
        if let (true, Some((other, ..))) = (*is_there, same) {
            let message = format!("{other} and {key} must not both be {name}");
            return Err(ValidationError::new("tool_names").with_message(message.into()));
        }
    }
    Ok(())
}

pub(in crate::config) fn check_tool_name(name: &str) -> Result<(), ValidationError> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(());
    }
    let message = "expected 1 to 64 letters, digits, `_` and `-`";
    Err(ValidationError::new("tool_name").with_message(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> SearchConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn weights_of_a_preset_can_be_replaced() {
        let section = r#"{"fusion":"rrf","rrf":{"preset":"curated-first","words":2.0,"k":10}}"#;
        let fusion = config(section)
            .rules()
            .unwrap()
            .ranking
            .rank_fusion
            .unwrap();
        let expected = RankFusionWeights {
            words: 2.0,
            ..RankFusionWeights::CURATED_FIRST
        };
        assert_eq!(
            fusion,
            RankFusion {
                k: 10.0,
                weights: expected
            }
        );
        assert_eq!(
            config("{}").rules().unwrap().ranking,
            RankingRules::default()
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (wrong, said) in [
            (r#"{"weights":{"meaning":-1}}"#, "from 0 to 10"),
            (r#"{"quality":{"top":0.9}}"#, "add up to 1"),
            (r#"{"quality":{"low":0.9}}"#, "must not be greater"),
            (r#"{"min_fit":1.5}"#, "from 0 to 1"),
            (r#"{"tool_name":"a b"}"#, "letters"),
            (r#"{"call_tool_name":""}"#, "letters"),
            (
                r#"{"tool_name":"x","set_context_name":"x"}"#,
                "tool_name and set_context_name must not both be x",
            ),
            (r#"{"token_budget":5}"#, "from 100"),
            (r#"{"n_predicted":51}"#, "from 0 to 50"),
        ] {
            let error = config(wrong).validate().unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
        let unused = r#"{"tool_name":"x","call_tool":false,"call_tool_name":"x"}"#;
        assert!(config(unused).validate().is_ok());
        assert!(config("{}").validate().is_ok());
        assert!(check_weight(f64::NAN).is_err());
    }

    #[test]
    fn a_bad_file_of_synonyms_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one two\nalone\n").unwrap();
        let mut section = SearchConfig {
            synonyms: Some(file.path().to_owned()),
            ..SearchConfig::default()
        };
        let error = section.rules().unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        section.synonyms = Some("/nowhere/s.txt".into());
        let error = section.rules().unwrap_err().to_string();
        assert!(error.contains("/nowhere/s.txt"), "{error}");
    }
}
