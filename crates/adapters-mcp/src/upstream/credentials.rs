//! The credentials of the proxy for an upstream: a fixed token, or tokens of OAuth 2.1.
//!
//! Credentials of a client are never used here. [`section`] is the configuration, [`mod@tokens`]
//! provides the token for each request, [`authority`] obtains tokens (rmcp implements the protocol,
//! over [`guarded_client`]), [`store`] saves them in a file, and [`login`] is the only step that
//! needs a person and a browser.

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

/// Returns the source of tokens for `config`; `None` if it does not use OAuth.
///
/// # Errors
///
/// Returns [`UpstreamConfigError`] when its HTTP client cannot be set up.
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
