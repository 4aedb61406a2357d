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
//! Each port states the promises of every implementation. `contract` (a feature) has a suite for
//! each port, with a clause for each promise as far as a test can show it. `fake` (a feature) holds
//! in-memory implementations. The crate depends on the domain alone.
//!
//! # Testing an implementation
//!
//! A crate with an implementation, in this project or outside of it, has this crate with the feature
//! `contract` and `tokio` with its macros among its dev-dependencies:
//!
//! ```toml
//! [dev-dependencies]
//! riglm-ports = { version = "0.1", features = ["contract"] }
//! tokio = { version = "1", features = ["macros", "rt", "time"] }
//! ```
//!
//! One line then expands to a test for each clause:
//!
//! ```ignore
//! riglm_ports::token_counter_contract!(my_counter, std::future::ready(Box::new(MyCounter)));
//! ```
//!
//! Ports that connect to something outside, such as [`upstream`], take a *scene*: the implementation
//! together with the other side, which the test controls. The module of the suite has the trait of
//! the scene. `tests/contract.rs` of this crate runs every suite on the fakes, as an example.
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
