//! The layer of the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use config::{Map, Value, ValueKind};
use riglm_adapters_http::ControlAddress;
use riglm_adapters_prediction::Strategy;

use super::Downstream;

/// Where values come from that are set here.
pub(super) const ORIGIN: &str = "command line";

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
    /// The upstream, which replaces all configured ones.
    pub upstream: Option<UpstreamChoice>,
}

/// An upstream named on the command line.
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
        if let Some(strategy) = self.strategy {
            let text = strategy.to_string();
            layer.insert("filtering".into(), section("strategy", leaf(text)));
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
                    let upstreams = several.iter().enumerate().map(|(position, url)| {
                        let name = (position + 1).to_string();
                        (name, section("url", leaf(url.clone())))
                    });
                    let upstreams = ValueKind::Table(upstreams.collect());
                    ("upstreams", value(upstreams))
                }
            },
        }
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
