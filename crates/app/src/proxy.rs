//! The proxy: sessions of clients, each joined to the upstreams by connections of its own.
//!
//! A message takes one way through this module: a downstream adapter hands it to
//! [`ClientSession::receive`]. With one upstream it goes on to the `relay` of that upstream as it
//! is; with several, `united` decides which relays it is for. A relay opens the rows and forwards
//! the bytes (`relay::from_client`); what the upstream sends arrives in `relay::from_upstream`, is
//! matched with its request, closes the rows and is delivered to the client, through the session
//! where there are several upstreams (`member`).

mod caller;
mod checking;
mod client_description;
mod escape;
mod floods;
mod known_params;
mod listing;
mod live;
mod member;
mod permitted;
mod places;
mod recommended;
mod registry;
mod relay;
mod sampling;
mod search_tool;
mod session;
mod shared;
mod slots;
mod tool_sets;
mod traces;
mod united;
mod upstream_set;
mod visitor;

pub use live::{NoForecast, SessionForecast};
pub use places::{Presence, Room};
pub use recommended::{NoRecommendation, RecommendationWanted};
pub use registry::{CLOSE_WITHIN, Proxy, ProxyParts};
pub use riglm_domain::naming::Naming;
pub use search_tool::MetaTools;
pub use session::ClientSession;
pub use tool_sets::SeenToolSet;
pub use upstream_set::{Unavailable, Upstream, UpstreamOptions, UpstreamState};
pub use visitor::Visitor;
