//! Recognition of riglm and of other gateways among the servers of a client.

use super::server::{ConfiguredServer, ConfiguredTransport, ServerNature};

/// The addresses and programs that are riglm itself.
#[derive(Clone, Debug, Default)]
pub struct RiglmIdentity {
    /// The addresses of the endpoint, such as `http://127.0.0.1:8642/mcp`, of now and of earlier.
    pub addresses: Vec<String>,
    /// The paths of the program.
    pub programs: Vec<String>,
}

/// The names under which a machine reaches itself.
const LOOPBACK: [&str; 4] = ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"];

impl RiglmIdentity {
    /// Returns whether an address is an endpoint of riglm, of any profile.
    pub fn owns_url(&self, url: &str) -> bool {
        let Some(url) = AddressParts::parse(url) else {
            return false;
        };
        let mut addresses = self.addresses.iter();
        addresses.any(|address| {
            AddressParts::parse(address).is_some_and(|own| {
                let is_under = url.path.strip_prefix(own.path);
                own.authority == url.authority
                    && is_under.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        })
    }

    /// Returns whether a program is riglm.
    pub fn owns_program(&self, program: &str) -> bool {
        base_name(program) == "riglm" || self.programs.iter().any(|own| own == program)
    }

    /// Returns whether an entry of a file is riglm.
    pub(super) fn owns(&self, transport: &ConfiguredTransport) -> bool {
        match transport {
            ConfiguredTransport::Command(command) => self.owns_program(&command.program),
            ConfiguredTransport::Url(url) => self.owns_url(&url.url),
            ConfiguredTransport::Unusable(_) => false,
        }
    }

    /// Returns the nature of a server.
    pub(super) fn nature(&self, server: &ConfiguredServer) -> ServerNature {
        if self.owns(&server.transport) {
            return ServerNature::Riglm;
        }
        gateway(server).map_or(ServerNature::Server, ServerNature::Gateway)
    }
}

/// The parts of an address that identify a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AddressParts<'a> {
    /// The host in lower case, with the port. All names of this machine are the same.
    pub(super) authority: String,
    /// The path without a slash at the end.
    pub(super) path: &'a str,
}

impl<'a> AddressParts<'a> {
    /// Splits an address; user, query and fragment are left out.
    pub(super) fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let rest = rest.split(['?', '#']).next()?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let authority = authority.rsplit('@').next()?.to_ascii_lowercase();
        let port_at = authority
            .rfind(':')
            .filter(|at| !authority[*at..].contains(']'));
        let (host, port) = authority.split_at(port_at.unwrap_or(authority.len()));
        let default = if scheme.eq_ignore_ascii_case("https") {
            ":443"
        } else {
            ":80"
        };
        let host = if LOOPBACK.contains(&host) {
            "localhost"
        } else {
            host
        };
        let port = if port.is_empty() { default } else { port };
        Some(Self {
            authority: format!("{host}{port}"),
            path: path.trim_end_matches('/'),
        })
    }
}

/// Returns the name of a program without its folder and its extension, in lower case.
pub(super) fn base_name(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let name = name.to_ascii_lowercase();
    let extensions = [".exe", ".cmd", ".bat", ".ps1"];
    let stripped = extensions
        .iter()
        .find_map(|extension| name.strip_suffix(extension));
    stripped.unwrap_or(&name).to_owned()
}

/// Returns the name of the gateway that a server is.
fn gateway(server: &ConfiguredServer) -> Option<&'static str> {
    const PROGRAMS: [(&str, &str); 8] = [
        ("mcpproxy", "mcpproxy"),
        ("1mcp", "1mcp"),
        ("@1mcp/agent", "1mcp"),
        ("mcp-hub", "mcp-hub"),
        ("metamcp", "MetaMCP"),
        ("@metamcp/mcp-server-metamcp", "MetaMCP"),
        ("agentgateway", "agentgateway"),
        ("mcp-gateway", "mcp-gateway"),
    ];
    let of_word = |word: &str| {
        let package = without_version(word).to_ascii_lowercase();
        let base = base_name(word);
        let known = PROGRAMS
            .iter()
            .find(|(program, _)| *program == package || *program == base);
        known.map(|(_, name)| *name)
    };
    let by_name = || match server.name.as_str() {
        "MCP_DOCKER" => Some("Docker MCP gateway"),
        name => of_word(name),
    };
    match &server.transport {
        ConfiguredTransport::Command(command) => {
            let words: Vec<&str> = std::iter::once(command.program.as_str())
                .chain(command.args.iter().map(String::as_str))
                .collect();
            if base_name(words[0]) == "docker" && words[1..].starts_with(&["mcp", "gateway", "run"])
            {
                return Some("Docker MCP gateway");
            }
            // Later words are arguments of the program.
            let mut first = words.iter().filter(|word| !word.starts_with('-')).take(2);
            first.find_map(|word| of_word(word)).or_else(by_name)
        }
        ConfiguredTransport::Url(url) if url.url.contains("/metamcp/") => Some("MetaMCP"),
        ConfiguredTransport::Url(_) => by_name(),
        ConfiguredTransport::Unusable(_) => None,
    }
}

/// Returns the name of a package without its version.
pub(super) fn without_version(package: &str) -> &str {
    match package.rfind('@') {
        Some(at) if at > 0 => &package[..at],
        _ => package,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_riglm_are_recognised_by_any_name_of_the_machine() {
        let identity = RiglmIdentity {
            addresses: vec!["http://127.0.0.1:8642/mcp".to_owned()],
            programs: Vec::new(),
        };
        for url in [
            "http://127.0.0.1:8642/mcp",
            "http://localhost:8642/mcp/",
            "http://[::1]:8642/mcp/work?x=1#y",
            "http://key@LOCALHOST:8642/mcp",
        ] {
            assert!(identity.owns_url(url), "{url}");
        }
        for url in [
            "http://127.0.0.1:8643/mcp",
            "http://127.0.0.1:8642/mcpx",
            "http://127.0.0.1/mcp",
            "https://example.com:8642/mcp",
            "",
            "://",
        ] {
            assert!(!identity.owns_url(url), "{url}");
        }
        assert!(identity.owns_program("C:\\Tools\\riglm.EXE"));
        assert!(!identity.owns_program("/usr/bin/riglmx"));
    }
}
