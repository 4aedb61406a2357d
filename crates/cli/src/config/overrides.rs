//! The command line layer.

use std::net::SocketAddr;
use std::path::PathBuf;

use config::{Map, Value, ValueKind};
use riglm_adapters_http::ControlAddress;
use riglm_app::selection::Strategy;

use super::Downstream;
use super::server_name::{name_of_command, names_of_urls};

/// The origin of values in this layer.
pub(super) const ORIGIN: &str = "command line";

/// The configuration values of the command line.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The configuration file, in place of the default one.
    pub file: Option<PathBuf>,
    /// Whether no configuration file is read.
    pub reads_no_file: bool,
    /// The directory of all files that riglm writes.
    pub data_dir: Option<PathBuf>,
    /// The transport of clients.
    pub downstream: Downstream,
    /// The address of the MCP server.
    pub listen: Option<SocketAddr>,
    /// The address of the control server.
    pub control: Option<ControlAddress>,
    /// The strategy that selects tools.
    pub strategy: Option<Strategy>,
    /// The list policy.
    pub policy: Option<String>,
    /// The profile of the client over standard input and output.
    pub profile: Option<String>,
    /// The upstreams, which replace all configured ones.
    pub upstream: Option<UpstreamChoice>,
    /// The name of the only upstream, in place of one derived from its program or host.
    pub name: Option<String>,
}

/// The upstreams on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamChoice {
    /// Servers by their URLs.
    Urls(Vec<String>),
    /// A program with its arguments, which speaks MCP over standard input and output.
    Command(Vec<String>),
}

impl Overrides {
    /// Returns the values of this layer.
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
            let upstreams = upstream.by_name(self.name.as_deref());
            layer.insert("upstreams".into(), value(ValueKind::Table(upstreams)));
        }
        layer
    }
}

impl UpstreamChoice {
    /// Returns the derived name of each upstream.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Command(command) => vec![name_of_command(command)],
            Self::Urls(urls) => names_of_urls(urls),
        }
    }

    /// Returns the section of each upstream by name; `name` is the name of an only one.
    fn by_name(&self, name: Option<&str>) -> Map<String, Value> {
        let sections: Vec<Value> = match self {
            Self::Command(command) => {
                let command_line = command.iter().cloned().map(leaf).collect();
                let command_line = value(ValueKind::Array(command_line));
                vec![section("command", command_line)]
            }
            Self::Urls(urls) => {
                let sections = urls.iter().map(|url| section("url", leaf(url.clone())));
                sections.collect()
            }
        };
        match name {
            Some(name) => std::iter::once(name.to_owned()).zip(sections).collect(),
            None => self.names().into_iter().zip(sections).collect(),
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
