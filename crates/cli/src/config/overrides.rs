//! The layer of the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use config::{Map, Value, ValueKind};
use riglm_adapters_http::ControlAddress;
use riglm_adapters_prediction::Strategy;

use super::Downstream;

/// Where values come from that are set here.
pub(super) const ORIGIN: &str = "command line";

/// The longest part of a host that becomes a name: names of tools follow it.
const MAX_HOST_CHARS: usize = 32;

/// What the command line says about the configuration.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The configuration file to read instead of the usual one.
    pub file: Option<PathBuf>,
    /// The directory of all files that riglm writes.
    pub data_dir: Option<PathBuf>,
    /// How clients are connected.
    pub downstream: Downstream,
    /// Where the MCP server listens.
    pub listen: Option<SocketAddr>,
    /// Where the control server listens.
    pub control: Option<ControlAddress>,
    /// How tools are chosen.
    pub strategy: Option<Strategy>,
    /// The name of the policy of learned lists.
    pub policy: Option<String>,
    /// The profile of the client over standard input and output.
    pub profile: Option<String>,
    /// The upstreams, which replace all configured ones.
    pub upstream: Option<UpstreamChoice>,
}

/// The upstreams named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamChoice {
    /// Servers by their addresses.
    Urls(Vec<String>),
    /// A program and its arguments, which speaks MCP over its standard input and output.
    Command(Vec<String>),
}

impl Overrides {
    /// Returns the part of the configuration that the command line makes up.
    pub(super) fn layer(&self) -> Map<String, Value> {
        let mut layer = Map::new();
        if let Some(directory) = &self.data_dir {
            let text = directory.to_string_lossy().into_owned();
            layer.insert("data_dir".into(), leaf(text));
        }
        if let Some(address) = self.listen {
            layer.insert(
                "listen".into(),
                section("address", leaf(address.to_string())),
            );
        }
        if let Some(address) = self.control {
            layer.insert(
                "control".into(),
                section("address", leaf(address.to_string())),
            );
        }
        let mut filtering = Map::new();
        if let Some(strategy) = self.strategy {
            let text = strategy.to_string();
            filtering.insert("strategy".into(), leaf(text));
        }
        if let Some(policy) = &self.policy {
            filtering.insert("policy".into(), leaf(policy.clone()));
        }
        if !filtering.is_empty() {
            layer.insert("filtering".into(), value(ValueKind::Table(filtering)));
        }
        if let Some(upstream) = &self.upstream {
            let (key, upstream) = upstream.layer();
            layer.insert(key.into(), upstream);
        }
        layer
    }
}

impl UpstreamChoice {
    fn layer(&self) -> (&'static str, Value) {
        match self {
            Self::Command(command) => {
                let command = command.iter().cloned().map(leaf).collect();
                (
                    "upstream",
                    section("command", value(ValueKind::Array(command))),
                )
            }
            Self::Urls(urls) => match urls.as_slice() {
                [url] => ("upstream", section("url", leaf(url.clone()))),
                several => {
                    let upstreams = names_of(several).into_iter().zip(several);
                    let upstreams =
                        upstreams.map(|(name, url)| (name, section("url", leaf(url.clone()))));
                    let upstreams = ValueKind::Table(upstreams.collect());
                    ("upstreams", value(upstreams))
                }
            },
        }
    }
}

/// Returns a name for each address, made of its host; what would repeat a name gets a number.
fn names_of(urls: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(urls.len());
    for url in urls {
        let host = host_of(url);
        let numbered = (2..).map(|n| format!("{host}-{n}"));
        let mut free = std::iter::once(host.clone())
            .chain(numbered)
            .filter(|name| !names.contains(name));
        // There are more numbers than addresses.
        names.extend(free.next());
    }
    names
}

/// Returns the host of an address in the characters that a name may have.
fn host_of(url: &str) -> String {
    let parsed = url::Url::parse(url.strip_prefix("sse+").unwrap_or(url));
    let host = parsed
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned));
    let name: String = host
        .unwrap_or_default()
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    let cut: String = name.chars().take(MAX_HOST_CHARS).collect();
    let cut = cut.trim_end_matches('-');
    if cut.is_empty() {
        "upstream".into()
    } else {
        cut.to_ascii_lowercase()
    }
}

fn section(key: &str, inner: Value) -> Value {
    value(ValueKind::Table(Map::from_iter([(key.to_owned(), inner)])))
}

fn leaf(text: String) -> Value {
    value(ValueKind::String(text))
}

fn value(kind: ValueKind) -> Value {
    Value::new(Some(&ORIGIN.to_owned()), kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_named_by_their_hosts_and_every_name_is_another_one() {
        let urls = [
            "https://Mcp.Example.com/a",
            "http://127.0.0.1:3001/mcp",
            "sse+http://127.0.0.1:3002/sse",
            "http://127.0.0.1:3003/mcp",
            "http://[::1]:80/mcp",
            "no address",
        ];
        let names = names_of(&urls.map(str::to_owned));
        let expected = [
            "mcp-example-com",
            "127-0-0-1",
            "127-0-0-1-2",
            "127-0-0-1-3",
            "1",
            "upstream",
        ];
        assert_eq!(names, expected);
    }
}
