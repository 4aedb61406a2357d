//! The side of the upstreams: a child process, Streamable HTTP, or the older HTTP+SSE.
//!
//! Every connector opens a separate connection for each client session and forwards the original
//! bytes of messages. Differences between the transports are hidden here: the application sees only
//! `UpstreamLink` and `UpstreamEvents`.

mod config;
mod credentials;
mod detect;
pub mod era;
mod http;
mod programs;
pub mod shared;
mod sse;

use std::path::Path;
use std::sync::Arc;

use riglm_domain::id::UpstreamName;
use url::Url;
use validator::Validate;

pub use config::{Isolation, ToolChanges, UpstreamConfig, UpstreamConfigError};
pub use credentials::login::{LoginError, login};
pub use credentials::section::{CredentialsType, OAuthGrant, UpstreamCredentials};
pub use credentials::store::CredentialStoreError;
pub use detect::DetectConnector;
pub use http::HttpConnector;
pub use programs::Programs;
pub use riglm_adapters_programs::guard::Guard;
pub use riglm_adapters_programs::{
    Connector, FailureLog, Patience, StartGate, StartTime, StdioConnector, UpstreamLimits, guard,
    huge_pages, pool,
};
pub use sse::SseConnector;

/// Returns the connector for `config`. `guard` kills the child processes if the proxy dies, and
/// obtained tokens are stored under `data_dir`.
///
/// # Errors
///
/// Returns [`UpstreamConfigError`] when the configuration is invalid or cannot be used.
pub fn connector(
    name: UpstreamName,
    config: &UpstreamConfig,
    guard: Option<Arc<Guard>>,
    data_dir: &Path,
) -> Result<Connector, UpstreamConfigError> {
    config.validate()?;
    let programs = Programs::new(guard);
    if let Some(program) = programs.stdio_connector(&name, config) {
        return Ok(Arc::new(program));
    }
    let limits = config.limits();
    let url = config.url.as_deref().unwrap_or_default();
    let (prefix, url) = config::split_prefix(url);
    let url = Url::parse(url).map_err(UpstreamConfigError::Url)?;
    let headers = config.header_map()?;
    let tokens = credentials::tokens(&name, &url, config, data_dir)?;
    let endpoint = Arc::new(http::Endpoint::new(name, url, headers, tokens, limits)?);
    Ok(if prefix.is_empty() {
        Arc::new(DetectConnector::new(endpoint))
    } else {
        Arc::new(SseConnector::new(endpoint))
    })
}
