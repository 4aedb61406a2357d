//! The first lines of `riglm serve`: where it listens, what it reads and writes, and what stands behind it.

use std::net::SocketAddr;
use std::path::Path;

use riglm_adapters_mcp::upstream::UpstreamConfig;

use crate::config::{Config, Upstream};
use crate::output::note;

/// The facts of a start that people look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartNotes<'a> {
    pub(super) config: &'a Config,
    /// The configuration file in use, where there is one.
    pub(super) file: Option<&'a Path>,
    /// The address of the control server, where there is one.
    pub(super) control: Option<SocketAddr>,
    /// The URL that clients are pointed at; `None` over standard input and output.
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
            || "no configuration file: everything not given otherwise is default".to_owned(),
            |file| format!("configuration in {}", file.display()),
        );
        let upstreams = self.config.upstreams().unwrap_or_default();
        let upstreams: Vec<String> = upstreams.iter().map(described).collect();
        vec![
            served,
            control,
            file,
            format!("data in {}", data_dir.display()),
            format!("upstreams: {}", upstreams.join(", ")),
        ]
    }
}

/// Returns the name of an upstream and how it is reached, without what may hold a secret: arguments, and
/// all of an address but its origin.
fn described(Upstream { name, config }: &Upstream) -> String {
    format!("{name} ({})", reached(config))
}

fn reached(config: &UpstreamConfig) -> String {
    if let Some(program) = config.command.as_ref().and_then(|command| command.first()) {
        return program.clone();
    }
    let address = config.url.as_deref().unwrap_or_default();
    let url = url::Url::parse(address.strip_prefix("sse+").unwrap_or(address));
    url.map_or_else(|_| "?".into(), |url| url.origin().ascii_serialization())
}
