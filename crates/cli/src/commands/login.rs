//! `riglm login`: a one-time OAuth login to an upstream, in a browser.

use anyhow::Context;
use riglm_adapters_mcp::upstream::login;

use super::browser;
use crate::args::LoginArgs;
use crate::config::{Config, ConfigError, Upstream};
use crate::output::{note, print, printable};

/// Logs in to the upstream of the arguments, and stores the tokens for `serve`.
///
/// # Errors
///
/// Returns [`ConfigError::UnknownUpstream`] for an unknown name, [`ConfigError::NothingToLogInTo`]
/// if no upstream is configured, and the error of the login.
pub(super) async fn run(config: &Config, arguments: &LoginArgs) -> anyhow::Result<()> {
    let Upstream { name, config: how } = find(config, &arguments.upstream)?;
    login(name, how, &config.data_dir, |address| {
        note(&format!(
            "open this address to log in to {name}: {}",
            printable(address)
        ));
        if !arguments.no_browser
            && let Err(error) = browser::open(address)
        {
            note(&format!("failed to open a browser: {error}"));
        }
    })
    .await
    .with_context(|| format!("failed to log in to upstream {name}"))?;
    Ok(print(&if arguments.format.is_json() {
        serde_json::json!({"upstream": name.as_str(), "stored": true}).to_string()
    } else {
        format!("logged in to {name}")
    })?)
}

fn find<'a>(config: &'a Config, name: &str) -> Result<&'a Upstream, ConfigError> {
    // The error of the configuration proposes options of `serve`, which `login` does not have.
    let upstreams = (config.upstreams()).map_err(|_| ConfigError::NothingToLogInTo)?;
    let known = |upstream: &Upstream| upstream.name.as_str().to_owned();
    upstreams
        .iter()
        .find(|upstream| upstream.name.as_str() == name)
        .ok_or_else(|| ConfigError::UnknownUpstream {
            name: name.to_owned(),
            known: upstreams.iter().map(known).collect(),
        })
}
