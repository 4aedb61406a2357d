//! The ports of riglm: the interfaces that the application needs from the outside, in domain terms.
//!
//! Each trait states the guarantees of every implementation. `contract` (a feature) tests them, as
//! far as a test can, on any implementation of the store, the predictor, the encoder, the re-ranker
//! and the tracer. Not every guarantee has a clause there, and other ports have none. `fake` (a
//! feature) holds in-memory implementations. The crate depends on the domain alone.

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
