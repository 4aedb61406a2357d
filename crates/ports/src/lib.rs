//! The ports of riglm: what the application needs from the outside, in domain words.
//!
//! Each trait states what every implementation must keep. `contract` (a feature) tests what can be
//! tested of that on any implementation of the store, the predictor, the encoder, the re-ranker and
//! the tracer: not every sentence has a clause there, and other ports have none. `fake` (a feature)
//! holds implementations in memory. The crate depends on the domain alone.

pub mod analytics;
pub mod authenticator;
pub mod clock;
#[cfg(feature = "contract")]
pub mod contract;
pub mod downstream;
pub mod encoder;
#[cfg(feature = "fake")]
pub mod fake;
pub mod list_policy;
pub mod model_call;
pub mod observer;
pub mod predictor;
pub mod query_expander;
pub mod reranker;
pub mod token_counter;
pub mod tracer;
pub mod upstream;
