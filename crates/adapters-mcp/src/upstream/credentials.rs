//! What the proxy presents to a server on its own account: a fixed token, or tokens of OAuth 2.1.
//!
//! Nothing of what a client presents to the proxy gets here. [`section`] is the configuration,
//! [`mod@tokens`] what a request asks for a token, [`authority`] where tokens come from (rmcp speaks
//! the protocol, over [`guarded_client`]), [`store`] where they are kept, [`login`] the one thing
//! that needs a person and a browser.

mod authority;
mod guarded_client;
pub(super) mod login;
mod redirect;
pub(super) mod section;
pub(super) mod store;
mod tokens;

use std::path::Path;
use std::sync::Arc;

use riglm_domain::id::UpstreamName;
use url::Url;

use super::config::{UpstreamConfig, UpstreamConfigError};
use authority::Authority;
use section::UpstreamCredentials;
pub(super) use tokens::Tokens;

/// Returns the source of the tokens that `config` asks for; `None` if it asks for none.
///
/// # Errors
///
/// Returns [`UpstreamConfigError`] when the HTTP client for it cannot be set up.
pub(super) fn tokens(
    name: &UpstreamName,
    url: &Url,
    config: &UpstreamConfig,
    data_dir: &Path,
) -> Result<Option<Arc<Tokens>>, UpstreamConfigError> {
    let oauth = config
        .credentials
        .as_ref()
        .and_then(UpstreamCredentials::oauth);
    let Some(settings) = oauth else {
        return Ok(None);
    };
    let authority = Authority::new(name.clone(), url.clone(), settings, data_dir)?;
    Ok(Some(Arc::new(Tokens::new(authority))))
}
