//! The in-memory implementations fulfil the contracts of the ports.

use std::future::{Ready, ready};

use riglm_ports::contract;
use riglm_ports::fake::{
    FailingPredictor, FakeExternalPredictor, MemoryStore, RecordingTracer, ScriptedReranker,
};

fn fresh() -> Ready<Box<MemoryStore>> {
    ready(Box::default())
}

riglm_ports::usage_store_contract!(memory, fresh());

riglm_ports::predictor_contract!(predictor, &|| Box::new(FailingPredictor::default()));

riglm_ports::external_predictor_contract!(
    external_predictor,
    ready(Box::<FakeExternalPredictor>::default())
);

riglm_ports::reranker_contract!(reranker, ready(Box::new(ScriptedReranker::new([]))));

#[test]
fn spans_have_their_places() {
    contract::tracer::all(&RecordingTracer::default());
}
