//! Predictors of the next tool, by their configured names.

mod config;

pub use config::{BandsConfig, PredictionConfig};

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::prediction::{
    Engine, Expert, Explanation, Forecast, LearningScope, MaintenanceReport, PredictorName,
    SessionHistory, SnapshotError, TextEvidence, ToolCounts, ToolIx, Vocabulary,
};
use riglm_ports::predictor::{Learner, Predictor};

use crate::external::PredictorChoice;

/// The prediction engine of the domain under its configured name.
#[derive(Clone, Debug)]
struct ConfiguredEngine {
    name: &'static str,
    engine: Engine,
}

/// Returns the predictor with this name and the configured parameters, without any learned data.
#[must_use]
pub fn predictor_named(name: PredictorName, config: &PredictionConfig) -> Box<dyn Learner> {
    let engine = Engine::new(name.method(), config.half_life_days);
    Box::new(ConfiguredEngine {
        name: name.as_str(),
        engine: engine.with_experts(config.experts()),
    })
}

/// Returns the configured predictor, without any learned data.
#[must_use]
pub fn predictor_from(config: &PredictionConfig) -> Box<dyn Learner> {
    match &config.predictor {
        PredictorChoice::Named(name) => predictor_named(*name, config),
        PredictorChoice::External(_) => {
            let engine = Engine::new(config.method(), config.half_life_days);
            Box::new(ConfiguredEngine {
                name: Expert::External.as_str(),
                engine: engine.with_experts(config.experts()),
            })
        }
    }
}

impl Predictor for ConfiguredEngine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn vocabulary(&self) -> &Vocabulary {
        self.engine.vocabulary()
    }

    fn predict(&self, history: &SessionHistory, candidates: &[ToolIx]) -> Forecast {
        self.engine.predict(history, candidates)
    }

    fn predict_later(
        &self,
        history: &SessionHistory,
        candidates: &[ToolIx],
        next: &Forecast,
    ) -> Forecast {
        self.engine.predict_later(history, candidates, next)
    }

    fn explain(
        &self,
        history: &SessionHistory,
        candidates: &[ToolIx],
        tools: &[ToolIx],
    ) -> Vec<Option<Explanation>> {
        self.engine.explain_each(history, candidates, tools)
    }

    fn similarities(&self, history: &SessionHistory, text: &TextEvidence) -> Vec<f64> {
        self.engine.similarities(history, text)
    }

    fn counts(&self, history: &SessionHistory, tools: &[ToolIx]) -> Vec<ToolCounts> {
        self.engine.counts(history, tools)
    }
}

impl Learner for ConfiguredEngine {
    fn intern(&mut self, tool: &ToolRef) -> Option<ToolIx> {
        self.engine.intern(tool)
    }

    fn learn(
        &mut self,
        history: &mut SessionHistory,
        candidates: &[ToolIx],
        called: ToolIx,
        lesson: LearningScope,
    ) {
        self.engine.learn(history, candidates, called, lesson);
    }

    fn end_session(&mut self, history: &SessionHistory) {
        self.engine.end_session(history);
    }

    fn maintain(&mut self, now: Timestamp) -> MaintenanceReport {
        self.engine.maintain(now)
    }

    fn format(&self) -> u32 {
        Engine::FORMAT
    }

    fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        self.engine.snapshot()
    }

    fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.engine.restore(format, bytes)
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::UpstreamName;
    use riglm_domain::prediction::ClientKey;
    use riglm_domain::privacy::principal::Principal;

    use super::*;

    fn tool(name: &str) -> ToolRef {
        ToolRef {
            upstream: UpstreamName::parse("notes").unwrap(),
            tool: name.into(),
        }
    }

    /// Expands to the contract tests of a predictor, for each of these.
    macro_rules! predictors_keep_their_contract {
        ($($module:ident: $name:ident,)*) => {
            $(riglm_ports::predictor_contract!($module, &|| {
                predictor_named(PredictorName::$name, &PredictionConfig::default())
            });)*
        };
    }

    predictors_keep_their_contract! {
        mix: Mix,
        cooccurrence: Cooccurrence,
        cooccurrence_smoothed: CooccurrenceSmoothed,
        frequency: Frequency,
        first_call: FirstCall,
        recency: Recency,
        markov: Markov,
        workflow: Workflow,
        server: Server,
        similar_sessions: SimilarSessions,
        next_in_sessions: NextInSessions,
        context_knn: ContextKnn,
        text: Text,
        time: Time,
        client: Client,
    }

    #[test]
    fn each_predictor_learns_calls_and_survives_a_restart() {
        let config = PredictionConfig::default();
        for &name in PredictorName::ALL {
            let mut predictor = predictor_named(name, &config);
            assert_eq!(predictor.name(), name.as_str());
            let tools: Vec<ToolIx> = ["read", "write", "list", "drop"]
                .map(|name| predictor.intern(&tool(name)).unwrap())
                .to_vec();
            let party = ClientKey::new(&Principal::local(), "client");
            for _ in 0..5 {
                let mut history = SessionHistory::new(party);
                for called in [2, 0, 0] {
                    predictor.learn(
                        &mut history,
                        &tools,
                        tools[called],
                        LearningScope::Everything,
                    );
                }
                predictor.end_session(&history);
            }
            let mut history = SessionHistory::new(party);
            history.push(tools[2]);
            let forecast = predictor.predict(&history, &tools);
            assert!((forecast.mass(4) - 1.0).abs() < 1e-9, "{name}");
            let dropped = forecast.probability(tools[3]);
            let is_silent = matches!(
                name,
                PredictorName::ContextKnn | PredictorName::Text | PredictorName::Time
            );
            assert!(
                is_silent || forecast.probability(tools[0]) > dropped,
                "{name}"
            );
            let bytes = predictor.snapshot().unwrap();
            let mut again = predictor_named(name, &config);
            again.restore(predictor.format(), &bytes).unwrap();
            assert_eq!(again.predict(&history, &tools), forecast, "{name}");
            let explained = again
                .explain(&history, &tools, &tools[..1])
                .remove(0)
                .unwrap();
            assert!((explained.score().value() - explained.probability().ln()).abs() < 1e-9);
        }
    }

    #[test]
    fn the_configuration_names_the_predictor() {
        let config: PredictionConfig =
            serde_json::from_str(r#"{"predictor":"markov","half_life_days":7.5}"#).unwrap();
        assert_eq!(predictor_from(&config).name(), "markov");
        assert_eq!(predictor_from(&PredictionConfig::default()).name(), "mix");
    }
}
