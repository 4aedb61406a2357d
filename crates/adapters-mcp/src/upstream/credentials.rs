//! The credentials of the proxy for an upstream: a fixed token, tokens of OAuth 2.1, or headers that
//! a program prints.
//!
//! Credentials of a client are never used here. [`section`] is the configuration, [`mod@tokens`]
//! provides the headers for each request, [`authority`] obtains tokens (rmcp implements the protocol,
//! over [`guarded_client`]), [`store`] saves them in a file, and [`login`] is the only step that
//! needs a person and a browser. [`program`] runs a program.

mod authority;
mod guarded_client;
pub(super) mod login;
mod program;
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
use program::CredentialProgram;
use tokens::TokenSource;
pub(super) use tokens::Tokens;

/// Returns the source of credentials that change; `None` if `config` has none or a fixed token.
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
    let Some(credentials) = &config.credentials else {
        return Ok(None);
    };
    let source = if let Some(settings) = credentials.oauth() {
        let authority = Authority::new(name.clone(), url.clone(), settings, data_dir)?;
        TokenSource::Authority(authority)
    } else if let Some(settings) = credentials.program() {
        TokenSource::Program(CredentialProgram::new(name.clone(), url.clone(), settings))
    } else {
        return Ok(None);
    };
    Ok(Some(Arc::new(Tokens::new(source))))
}
