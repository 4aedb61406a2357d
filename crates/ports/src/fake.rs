//! In-memory implementations of the ports, which fulfil the same contracts. With them, tests of the
//! application need no database, network or process.

mod client;
mod clock;
mod external_predictor;
mod predictor;
mod reranker;
mod store;
mod tracer;
mod upstream;
mod word_counter;

pub use client::RecordingClient;
pub use clock::ManualClock;
pub use external_predictor::FakeExternalPredictor;
pub use predictor::FailingPredictor;
pub use reranker::{RerankScript, ScriptedReranker};
pub use store::MemoryStore;
pub use tracer::{RecordedSpan, RecordingTracer};
pub use upstream::ScriptedUpstream;
pub use word_counter::WordCounter;
