//! Finding tools: search, recommendation, prediction as it learns, and their experiments.
//!
//! The services of this crate answer which tools fit a query, an intent or a session. They use
//! models and stores through the ports, and know no transport, no proxy and no framework: the crate
//! depends on the domain and the ports alone, so that other tools can use it without the proxy.
//!
//! - [`search`]: tools for a query, with escalation when the answer is weak.
//! - [`recommend`]: ranked tools for an intent, with reasons and usual sequences of calls.
//! - [`learning`]: the predictors, trained from recorded calls by a background task.
//! - [`experiments`]: A/B tests of treatments, and their reports.
//! - [`weight_tuning`]: weights of recommendations, fitted to feedback.
//! - [`intent`]: the declared intents of work sessions.

pub mod entropy;
pub mod experiments;
pub mod intent;
pub mod learning;
pub mod recommend;
pub mod search;
pub mod turns;
pub mod weight_tuning;
