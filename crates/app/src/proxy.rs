//! The proxy: sessions of clients, each with its own upstream sessions.
//!
//! A message takes one path through this module. A downstream adapter passes it to
//! [`ClientSession::receive`]. With one upstream, the message goes verbatim to the `relay` of that
//! upstream. With several, the aggregator selects the relays for it. A relay opens the rows of a
//! request and forwards the bytes (`relay::from_client`). Messages from the upstream arrive in
//! `relay::from_upstream`. There they are matched with their requests, the rows are closed, and the
//! client gets the message. With several upstreams it passes through the aggregator first.

mod aggregator;
mod batches;
mod client_context;
mod client_description;
mod client_identity;
mod connection_permits;
mod dispatch;
mod forbidden_tools;
mod health_checks;
mod list_composer;
mod list_kind;
mod list_notices;
mod list_template;
mod local_tools;
mod message_rate_limit;
mod open_sessions;
mod operator_recommendations;
mod own_tools;
mod page_cache;
mod param_headers;
mod recent_cache;
mod registry;
mod request_id_namespace;
mod request_params;
mod request_permits;
mod requests;
mod sampling;
mod session;
mod session_jobs;
mod session_link;
mod shared_state;
mod spans;
mod tool_lists;
mod tool_sets;
mod traces;
mod upstream_cache;
mod upstream_session;
mod upstream_set;

pub use client_identity::ClientIdentity;
pub use open_sessions::{NoForecast, SessionForecast};
pub use operator_recommendations::{NoRecommendation, RecommendationQuery};
pub use own_tools::OwnToolNames;
pub use registry::{CLOSE_WITHIN, Proxy, ProxyParts};
pub use request_permits::{ClientPresence, ReservedMemory};
pub use riglm_domain::catalog::naming::NamespacePolicy;
pub use session::ClientSession;
pub use tool_sets::SeenToolSet;
pub use upstream_set::{Unavailable, Upstream, UpstreamOptions, UpstreamState};
