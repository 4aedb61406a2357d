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
//! - [`intent`]: the intents of work sessions, from declared contexts and other texts.
//! - [`entropy`] and [`fair_permits`]: random identifiers, and turns that principals share fairly.
//!
//! # Examples
//!
//! A search by words over a catalog of two tools:
//!
//! ```
//! use std::collections::HashSet;
//! use std::sync::Arc;
//!
//! use jiff::Timestamp;
//! use riglm_discovery::search::{Catalog, CatalogTool, SearchParts, SearchRequest, ToolSearch};
//! use riglm_domain::catalog::tool::ToolRef;
//! use riglm_domain::id::{SessionId, UpstreamName};
//! use riglm_domain::privacy::principal::Principal;
//! use riglm_domain::usage::invocation::SessionKey;
//! use riglm_ports::fake::{ManualClock, WordCounter};
//!
//! let tool = |name: &str, description: &str| CatalogTool {
//!     name: name.into(),
//!     tool: ToolRef {
//!         upstream: UpstreamName::parse("files").unwrap(),
//!         tool: name.into(),
//!     },
//!     definition: format!(r#"{{"name":"{name}","description":"{description}"}}"#).into(),
//!     is_hidden: true,
//! };
//! let tools = vec![
//!     tool("read_file", "Reads a file"),
//!     tool("send_mail", "Sends a mail"),
//! ];
//! let now = Timestamp::UNIX_EPOCH;
//! let session = SessionId::new(now, [1; 10]);
//! let request = SearchRequest {
//!     vector: None,
//!     session,
//!     session_key: SessionKey::Connection(session),
//!     principal: Principal::local(),
//!     client: "example".into(),
//!     query: "read the file".into(),
//!     limit: Some(1),
//!     catalog: Arc::new(Catalog::new(tools, Vec::new())),
//!     shown: None,
//!     told: HashSet::new(),
//!     pinned: Vec::new(),
//!     client_model: None,
//! };
//! let clock = Arc::new(ManualClock::at(now));
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let search = ToolSearch::new(SearchParts::words_only(Arc::new(WordCounter), clock));
//! let reply = search.search(request).await;
//! assert_eq!(reply.results[0].tool.tool.as_str(), "read_file");
//! # });
//! ```

pub mod activity_units;
pub mod entropy;
pub mod experiments;
pub mod fair_permits;
pub mod intent;
pub mod learning;
pub mod recommend;
pub mod search;
pub mod weight_tuning;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
