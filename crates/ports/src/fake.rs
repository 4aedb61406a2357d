//! In-memory implementations of the ports, which fulfil the same contracts. With them, tests of the
//! application need no database, network or process.

mod client;
mod clock;
mod encoder;
mod events;
mod expander;
mod external_predictor;
mod keys;
mod name_policy;
mod observer;
mod predictor;
mod reranker;
mod store;
mod tracer;
mod upstream;
mod word_counter;

pub use client::RecordingClient;
pub use clock::ManualClock;
pub use encoder::WordEncoder;
pub use events::{RecordedEvent, RecordingEvents};
pub use expander::ScriptedExpander;
pub use external_predictor::FakeExternalPredictor;
pub use keys::KeyTable;
pub use name_policy::WithoutNames;
pub use observer::RecordingObserver;
pub use predictor::FailingPredictor;
pub use reranker::{RerankScript, ScriptedReranker};
pub use store::MemoryStore;
pub use tracer::{RecordedSpan, RecordingTracer};
pub use upstream::{ScriptedReaction, ScriptedUpstream};
pub use word_counter::WordCounter;
