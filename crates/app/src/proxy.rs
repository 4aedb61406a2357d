//! The proxy: sessions of clients, each with its own upstream sessions.
//!
//! A message takes one path through this module. A downstream adapter passes it to
//! [`ClientSession::receive`], which checks it and passes it to `dispatch`. The session answers some
//! requests itself (`session_jobs`): calls of own tools (`local_tools`), selected lists
//! (`tool_lists`) and, with several upstreams, all that concerns them together (`aggregator`). The
//! others go to an `upstream_session`, which takes calls through their layers, forwards the bytes
//! (`request_pipeline`) and passes the answers back (`response_pipeline`).

mod admission;
mod aggregator;
mod batches;
mod client_context;
mod client_description;
mod client_requests;
mod connection_permits;
mod dispatch;
mod health_checks;
mod known_servers;
mod list_composer;
mod list_kind;
mod list_notices;
mod list_template;
mod local_tools;
mod log_spans;
mod message_rate_limit;
mod open_sessions;
mod operator_recommendations;
mod own_tools;
mod page_cache;
mod param_headers;
mod permitted_catalog;
mod recent_cache;
mod recent_calls;
mod registry;
mod request_id_namespace;
mod request_params;
mod request_permits;
mod request_tracing;
mod sampling;
mod session;
mod session_app;
mod session_jobs;
mod session_link;
mod shared_state;
mod tool_lists;
mod tool_sets;
mod upstream_cache;
mod upstream_session;
mod upstream_set;

pub use client_description::ClientIdentity;
pub use known_servers::ServerMemories;
pub use open_sessions::{NoForecast, SessionForecast};
pub use operator_recommendations::{NoRecommendation, RecommendationQuery};
pub use own_tools::{OwnTool, OwnToolNames, OwnToolSet};
pub use registry::{CLOSE_WITHIN, HintUse, Proxy, ProxyParts};
pub use request_permits::{ClientPresence, ReservedMemory};
pub use riglm_discovery::search::{N_SCHEMAS, is_app_only};
pub use riglm_domain::catalog::naming::NamespacePolicy;
pub use session::ClientSession;
pub use tool_sets::SeenToolSet;
pub use upstream_set::{Unavailable, Upstream, UpstreamOptions, UpstreamState};
