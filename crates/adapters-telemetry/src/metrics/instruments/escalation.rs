//! The instruments for the escalation of searches: curated tools, query expansion, and language
//! models.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use riglm_ports::observer::{Event, ModelKind, ModelOutcome, ModelPurpose, ModelRequestEvent};

use super::SECONDS;

pub(super) struct EscalationInstruments {
    curated: Counter<u64>,
    expansions: Counter<u64>,
    model_requests: Counter<u64>,
    model_tokens: Counter<u64>,
    model_duration: Histogram<f64>,
}

impl EscalationInstruments {
    pub(super) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, text: &'static str| {
            meter.u64_counter(name).with_description(text).build()
        };
        let duration = meter.f64_histogram("riglm_model_request_duration");
        let duration = duration.with_description("Duration of requests to language models.");
        let duration = duration.with_unit("s").with_boundaries(SECONDS.to_vec());
        Self {
            curated: counter(
                "riglm_searches_curated",
                "Searches that ended early with tools from notes or pins of operators.",
            ),
            expansions: counter(
                "riglm_search_expansions",
                "Searches with other wordings, by whether they gave the answer a better grade.",
            ),
            model_requests: counter(
                "riglm_model_requests",
                "Requests to language models for searches, by outcome; with resting and \
                 over_budget, no request was sent.",
            ),
            model_tokens: counter(
                "riglm_model_tokens",
                "Tokens that language models read and wrote, as reported or estimated.",
            ),
            model_duration: duration.build(),
        }
    }

    // Creates all series with zeros.
    pub(super) fn create_series(&self) {
        self.curated.add(0, &[]);
        for has_helped in [true, false] {
            self.expansions
                .add(0, &[KeyValue::new("helped", has_helped)]);
        }
        for (purpose, kind) in [
            (ModelPurpose::Expansion, ModelKind::Endpoint),
            (ModelPurpose::Reranking, ModelKind::Endpoint),
            (ModelPurpose::Reranking, ModelKind::Client),
        ] {
            for outcome in ModelOutcome::ALL {
                let outcome = KeyValue::new("outcome", outcome.as_str());
                let [purpose, kind] = of_model(purpose, kind);
                self.model_requests.add(0, &[purpose, kind, outcome]);
            }
            for direction in ["input", "output"] {
                let [purpose, kind] = of_model(purpose, kind);
                let direction = KeyValue::new("direction", direction);
                self.model_tokens.add(0, &[purpose, kind, direction]);
            }
        }
    }

    /// Counts an event of the escalation; ignores other events.
    pub(super) fn count(&self, event: &Event<'_>) {
        match event {
            Event::SearchCurated => self.curated.add(1, &[]),
            Event::SearchExpanded { has_helped, .. } => {
                self.expansions
                    .add(1, &[KeyValue::new("helped", *has_helped)]);
            }
            Event::ModelAsked(asked) => self.count_model_request(asked),
            _ => {}
        }
    }

    fn count_model_request(&self, asked: &ModelRequestEvent) {
        let [purpose, kind] = of_model(asked.purpose, asked.kind);
        let outcome = KeyValue::new("outcome", asked.outcome.as_str());
        let labels = [purpose.clone(), kind.clone(), outcome];
        self.model_requests.add(1, &labels);
        let was_asked = !matches!(
            asked.outcome,
            ModelOutcome::Resting | ModelOutcome::OverBudget
        );
        if was_asked {
            self.model_duration
                .record(asked.took.as_secs_f64(), &labels[..2]);
        }
        for (direction, n_tokens) in [
            ("input", asked.usage.n_input_tokens),
            ("output", asked.usage.n_output_tokens),
        ] {
            let direction = KeyValue::new("direction", direction);
            let labels = [purpose.clone(), kind.clone(), direction];
            self.model_tokens.add(n_tokens, &labels);
        }
    }
}

fn of_model(purpose: ModelPurpose, kind: ModelKind) -> [KeyValue; 2] {
    [
        KeyValue::new("purpose", purpose.as_str()),
        KeyValue::new("model", kind.as_str()),
    ]
}
