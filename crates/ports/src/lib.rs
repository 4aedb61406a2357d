//! The ports of riglm: the interfaces that the application needs from the outside, in domain terms.
//!
//! - [`upstream`] and [`downstream`]: connections to servers, and the link to a client.
//! - [`analytics`]: the store of records, one repository for each aggregate, and the journal.
//! - [`predictor`], [`external_predictor`], [`encoder`], [`reranker`], [`query_expander`],
//!   [`token_counter`]: models.
//!   [`model_call`] has the result of a request to a language model.
//! - [`list_policy`] and [`authenticator`]: decisions that the configuration selects.
//! - [`observer`] and [`tracer`]: events and spans for operators.
//! - [`clock`]: the wall clock.
//!
//! Each trait states the guarantees of every implementation. `contract` (a feature) tests them, as
//! far as a test can, on any implementation of the store, the predictor, the encoder, the re-ranker
//! and the tracer. Not every guarantee has a clause there, and other ports have none. `fake` (a
//! feature) holds in-memory implementations. The crate depends on the domain alone.
//!
//! # Examples
//!
//! An adapter implements a trait; the application gets it as `Arc<dyn Trait>`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use jiff::Timestamp;
//! use riglm_ports::clock::Clock;
//!
//! #[derive(Debug)]
//! struct StoppedClock(Timestamp);
//!
//! impl Clock for StoppedClock {
//!     fn now(&self) -> Timestamp {
//!         self.0
//!     }
//! }
//!
//! let clock: Arc<dyn Clock> = Arc::new(StoppedClock(Timestamp::UNIX_EPOCH));
//! assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
//! ```

pub mod analytics;
pub mod authenticator;
pub mod clock;
#[cfg(feature = "contract")]
pub mod contract;
pub mod downstream;
pub mod encoder;
pub mod external_predictor;
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

#[cfg(test)]
mod tests;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
