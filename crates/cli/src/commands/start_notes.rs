//! The first lines of `riglm serve`: addresses, files and upstreams.

use std::net::SocketAddr;
use std::path::Path;

use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_adapters_prediction::encoder::preferred_model;
use riglm_adapters_prediction::models::catalog::DEFAULT_MODEL;

use crate::compose;
use crate::config::{Config, Upstream};
use crate::output::note;

/// The facts that the first lines show.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartNotes<'a> {
    pub(super) config: &'a Config,
    pub(super) file: Option<&'a Path>,
    /// The address of the control server, if it is on.
    pub(super) control: Option<SocketAddr>,
    /// The URL for clients; `None` over standard input and output.
    pub(super) url: Option<&'a str>,
}

impl StartNotes<'_> {
    /// Writes the lines to standard error.
    pub(super) fn write(self) {
        for line in self.lines() {
            note(&line);
        }
    }

    fn lines(self) -> Vec<String> {
        let data_dir = &self.config.data_dir;
        let served = match self.url {
            Some(url) => format!("listening on {url}"),
            None => "serving one client over standard input and output".into(),
        };
        let control = self.control.map_or_else(
            || "no control API".to_owned(),
            |address| {
                let token = if self.config.control.token.is_some() {
                    "token: control.token of the configuration".into()
                } else {
                    format!("token in {}", data_dir.join("control.token").display())
                };
                format!("control API on http://{address}, {token}")
            },
        );
        let file = self.file.map_or_else(
            || "no configuration file: defaults are used".to_owned(),
            |file| format!("configuration in {}", file.display()),
        );
        let upstreams = self.config.upstreams().unwrap_or_default();
        let upstreams: Vec<String> = upstreams.iter().map(upstream_summary).collect();
        let mut lines = vec![served, control];
        if self.control.is_some() {
            lines.push("page: riglm open".into());
        }
        lines.extend([
            file,
            format!("data in {}", data_dir.display()),
            format!("upstreams: {}", upstreams.join(", ")),
        ]);
        lines.extend(model_hint(self.config));
        lines
    }
}

/// Returns the hint that a model would find more than the embedded table, if searches use only the
/// table.
fn model_hint(config: &Config) -> Option<String> {
    if !cfg!(feature = "model") || !compose::needs_encoders(config) {
        return None;
    }
    let pulled = preferred_model(&config.data_dir);
    match (config.search.encoder.model.as_str(), pulled) {
        ("auto", None) => Some(format!(
            "searches use the embedded table: `riglm model pull` gets {DEFAULT_MODEL}, which finds \
             more and is used without a restart"
        )),
        ("embedded", Some(pulled)) => Some(format!(
            "searches use the embedded table: {} is pulled and finds more \
             (search.encoder.model = \"auto\")",
            pulled.name
        )),
        _ => None,
    }
}

/// Returns the name and the transport of an upstream. Arguments, and all of a URL except its
/// origin, are left out because they may contain secrets.
fn upstream_summary(Upstream { name, config }: &Upstream) -> String {
    format!("{name} ({})", endpoint_text(config))
}

fn endpoint_text(config: &UpstreamConfig) -> String {
    if let Some(program) = config.command.as_ref().and_then(|command| command.first()) {
        return program.clone();
    }
    let address = config.url.as_deref().unwrap_or_default();
    let url = url::Url::parse(address.strip_prefix("sse+").unwrap_or(address));
    url.map_or_else(|_| "?".into(), |url| url.origin().ascii_serialization())
}
