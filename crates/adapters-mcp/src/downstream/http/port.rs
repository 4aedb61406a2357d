//! The shared state of the handlers of the MCP server.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_app::proxy::Proxy;
use riglm_domain::id::ProfileName;
use riglm_domain::safeguards::admission::Admission;
use riglm_ports::authenticator::Authenticator;

use super::connection::{HttpLink, SseLink};
use super::modern::Clients;
use super::sdk::Agents;
use super::sessions::Sessions;

#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) proxy: Arc<Proxy>,
    pub(super) admission: Admission,
    pub(super) authenticator: Arc<dyn Authenticator>,
    /// The profiles that clients may name in the URL.
    pub(super) profiles: BTreeSet<ProfileName>,
    pub(super) streamable: Sessions<HttpLink>,
    pub(super) legacy: Sessions<SseLink>,
    pub(super) modern: Clients,
    pub(super) agents: Agents,
}
