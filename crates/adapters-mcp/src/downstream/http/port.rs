//! What the handlers of the MCP port share.

use std::sync::Arc;

use riglm_app::proxy::Proxy;
use riglm_domain::admission::Admission;
use riglm_ports::authenticator::Authenticator;

use super::connection::{HttpLink, SseLink};
use super::modern::Clients;
use super::sessions::Sessions;

/// What the handlers share.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) proxy: Arc<Proxy>,
    pub(super) admission: Admission,
    pub(super) authenticator: Arc<dyn Authenticator>,
    pub(super) streamable: Sessions<HttpLink>,
    pub(super) legacy: Sessions<SseLink>,
    pub(super) modern: Clients,
}
