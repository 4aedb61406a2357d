//! The upstreams of the sections `upstream` and `upstreams`, with distinct names.
//!
//! The name of an upstream is the namespace of its tools, so it must survive in tool names. Names
//! that differ only in case or in `.`, `-` and `_` count as equal. `__`, the separator of the
//! namespace, is not allowed.

use std::collections::BTreeMap;

use config::{Map, Value};
use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_domain::id::UpstreamName;

use super::ConfigError;
use super::tree::origin_of;

/// The name of the upstream in section `upstream`.
const DEFAULT_NAME: &str = "default";

/// The separator between the name of an upstream and the name of a tool.
const SEPARATOR: &str = "__";

/// An upstream with its name.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The name under which its calls are recorded.
    pub name: UpstreamName,
    /// The configuration of the connection.
    pub config: UpstreamConfig,
}

/// Returns the enabled upstreams of both sections: the unnamed one first, the others by name. `tree`
/// has their origins.
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
        if let Some(other) = keys.insert(comparison_key(&name), key.clone()) {
            return Err(ConfigError::SameName {
                origin: origin(tree, &key),
                key,
                other_origin: origin(tree, &other),
                other,
            });
        }
        if config.enabled {
            upstreams.push(Upstream { name, config });
        }
    }
    Ok(upstreams)
}

fn check_name(
    key: &str,
    name: &UpstreamName,
    tree: &Map<String, Value>,
) -> Result<(), ConfigError> {
    let Some(reason) = name_problem(name) else {
        return Ok(());
    };
    Err(ConfigError::Value {
        origin: origin(tree, key),
        key: key.to_owned(),
        reason: format!("upstream name {:?} {reason}", name.as_str()),
    })
}

/// Returns the reason why an upstream cannot have a name; `None` if it can.
pub(crate) fn name_problem(name: &UpstreamName) -> Option<&'static str> {
    // The namespace has an underscore for each dot, because tool names have no dots.
    let in_tools = name.as_str().replace('.', "_");
    if in_tools.contains(SEPARATOR) {
        Some("must not contain __, which separates the upstream name from the tool name")
    } else if in_tools.ends_with('_') {
        Some("must not end with _ or ., which could be read as a part of the tool name")
    } else {
        None
    }
}

/// Returns the form in which similar names are equal.
pub(crate) fn comparison_key(name: &UpstreamName) -> String {
    name.as_str().to_ascii_lowercase().replace(['.', '-'], "_")
}

fn origin(tree: &Map<String, Value>, key: &str) -> String {
    // The name of an upstream may contain dots.
    let parts: Vec<&str> = key.splitn(2, '.').collect();
    origin_of(tree, &parts).unwrap_or_else(|| "configuration".into())
}
