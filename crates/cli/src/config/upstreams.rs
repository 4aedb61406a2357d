//! The upstreams of the sections `upstream` and `upstreams`, with names that can be told apart.
//!
//! The name of an upstream becomes a part of the names of its tools, so it must survive there: what
//! differs only in case or in `.`, `-` and `_` counts as the same name, and `__`, which separates it
//! from the name of a tool, may not occur.

use std::collections::BTreeMap;

use config::{Map, Value};
use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_domain::id::UpstreamName;

use super::ConfigError;
use super::tree::origin_of;

/// The name of an upstream that is configured without one.
const DEFAULT_NAME: &str = "default";

/// What separates the name of an upstream from that of a tool.
const SEPARATOR: &str = "__";

/// An upstream with its name.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The name under which its calls are recorded.
    pub name: UpstreamName,
    /// How it is reached.
    pub config: UpstreamConfig,
}

/// Returns the upstreams of both sections: that without a name first, the others by their names.
/// `tree` tells where they come from.
pub(super) fn all_upstreams(
    single: Option<UpstreamConfig>,
    by_name: BTreeMap<UpstreamName, UpstreamConfig>,
    tree: &Map<String, Value>,
) -> Result<Vec<Upstream>, ConfigError> {
    let default = UpstreamName::parse(DEFAULT_NAME)
        .expect("the default name has only characters that a name may have");
    let single = single.map(|config| ("upstream".to_owned(), default, config));
    let named = by_name
        .into_iter()
        .map(|(name, config)| (format!("upstreams.{name}"), name, config));
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    let mut upstreams = Vec::new();
    for (key, name, config) in single.into_iter().chain(named) {
        check_name(&key, &name, tree)?;
        if let Some(other) = keys.insert(folded(&name), key.clone()) {
            return Err(ConfigError::SameName {
                origin: origin(tree, &key),
                key,
                other_origin: origin(tree, &other),
                other,
            });
        }
        upstreams.push(Upstream { name, config });
    }
    Ok(upstreams)
}

fn check_name(
    key: &str,
    name: &UpstreamName,
    tree: &Map<String, Value>,
) -> Result<(), ConfigError> {
    // A dot becomes an underscore where names of tools have none.
    let in_tools = name.as_str().replace('.', "_");
    let reason = if in_tools.contains(SEPARATOR) {
        "must not contain __, which separates the name of an upstream from that of a tool"
    } else if in_tools.ends_with('_') {
        "must not end with _ or ., which could be taken for a part of the name of a tool"
    } else {
        return Ok(());
    };
    Err(ConfigError::Value {
        origin: origin(tree, key),
        key: key.to_owned(),
        reason: format!("upstream name {:?} {reason}", name.as_str()),
    })
}

/// Returns what two names have in common that cannot be told apart.
fn folded(name: &UpstreamName) -> String {
    name.as_str().to_ascii_lowercase().replace(['.', '-'], "_")
}

fn origin(tree: &Map<String, Value>, key: &str) -> String {
    // The name of an upstream may itself have dots.
    let parts: Vec<&str> = key.splitn(2, '.').collect();
    origin_of(tree, &parts).unwrap_or_else(|| "configuration".into())
}
