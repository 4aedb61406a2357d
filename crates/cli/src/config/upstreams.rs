//! The choice of the one upstream from the sections `upstream` and `upstreams`.

use std::collections::BTreeMap;

use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_domain::id::UpstreamName;

use super::ConfigError;

/// The name of an upstream that is configured without one.
const DEFAULT_NAME: &str = "default";

/// An upstream with its name.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The name under which its calls are recorded.
    pub name: UpstreamName,
    /// How it is reached.
    pub config: UpstreamConfig,
}

/// Returns the only upstream of the two sections; `None` when both are empty.
pub(super) fn only_upstream(
    single: Option<UpstreamConfig>,
    by_name: BTreeMap<UpstreamName, UpstreamConfig>,
) -> Result<Option<Upstream>, ConfigError> {
    let default = UpstreamName::parse(DEFAULT_NAME)
        .expect("the default name has only characters that a name may have");
    let mut all: Vec<Upstream> = single
        .map(|config| Upstream {
            name: default,
            config,
        })
        .into_iter()
        .chain(
            by_name
                .into_iter()
                .map(|(name, config)| Upstream { name, config }),
        )
        .collect();
    if all.len() <= 1 {
        return Ok(all.pop());
    }
    let names: Vec<&str> = all.iter().map(|upstream| upstream.name.as_str()).collect();
    Err(ConfigError::SeveralUpstreams {
        n_upstreams: all.len(),
        names: names.join(", "),
    })
}
