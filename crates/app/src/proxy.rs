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
mod checking;
mod client_context;
mod client_description;
mod client_identity;
mod connection_permits;
mod dispatch;
mod forbidden_tools;
mod known_params;
mod list_notices;
mod listing;
mod live;
mod local_tools;
mod message_rate_limit;
mod operator_recommendations;
mod permits;
mod registry;
mod relay;
mod request_id_namespace;
mod requests;
mod sampling;
mod search_tool;
mod session;
mod session_jobs;
mod shared_state;
mod tool_lists;
mod tool_sets;
mod traces;
mod upstream_session;
mod upstream_set;

pub use client_identity::ClientIdentity;
pub use live::{NoForecast, SessionForecast};
pub use operator_recommendations::{NoRecommendation, RecommendationQuery};
pub use permits::{ClientPresence, ReservedMemory};
pub use registry::{CLOSE_WITHIN, Proxy, ProxyParts};
pub use riglm_domain::catalog::naming::NamespacePolicy;
pub use search_tool::OwnToolNames;
pub use session::ClientSession;
pub use tool_sets::SeenToolSet;
pub use upstream_set::{Unavailable, Upstream, UpstreamOptions, UpstreamState};
