//! The requests of a client, in the form of each era of the protocol.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;

/// The `_meta` of every request of a client of revision 2026-07-28.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"riglm-bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The era of the protocol that a client and the upstream speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Era {
    /// Revision 2025-11-25: a handshake and a session.
    Legacy,
    /// Revision 2026-07-28: every request is complete in itself.
    Modern,
}

impl Era {
    /// Returns the revision of the protocol.
    pub(crate) fn revision(self) -> &'static str {
        match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
        }
    }
}

impl fmt::Display for Era {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        })
    }
}

/// A measured request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// `tools/call` with arguments and a result of this size in bytes.
    Call(usize),
    /// `tools/list` of a server with this many tools.
    List(usize),
}

impl Case {
    /// The cases that are measured by default.
    pub(crate) const ALL: [Self; 5] = [
        Self::Call(1_000),
        Self::Call(100_000),
        Self::Call(1_000_000),
        Self::List(100),
        Self::List(1_000),
    ];

    /// Returns the number of tools that the upstream must have.
    pub(crate) fn n_tools(self) -> usize {
        match self {
            Self::Call(_) => 100,
            Self::List(n_tools) => n_tools,
        }
    }

    /// Returns the request.
    pub(crate) fn request(self, era: Era) -> Request {
        self.request_to(era, "echo")
    }

    /// Returns the request, with another name of the tool that returns its text.
    pub(crate) fn request_to(self, era: Era, echo: &str) -> Request {
        match self {
            Self::Call(size) => Request::echo(era, echo, size),
            Self::List(_) => Request::list(era),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(size) if *size >= 1_000_000 => {
                write!(formatter, "call-{}mb", size / 1_000_000)
            }
            Self::Call(size) => write!(formatter, "call-{}kb", size / 1_000),
            Self::List(n_tools) => write!(formatter, "list-{n_tools}"),
        }
    }
}

impl FromStr for Case {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let known = || format!("`{text}` is no case, such as call-1kb, call-1mb or list-100");
        let (kind, size) = text.split_once('-').with_context(known)?;
        let n_digits = size.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = size.split_at(n_digits);
        let number: usize = number.parse().with_context(known)?;
        let case = match (kind, unit) {
            ("call", "kb") => Self::Call(number.saturating_mul(1_000)),
            ("call", "mb") => Self::Call(number.saturating_mul(1_000_000)),
            ("list", "") => Self::List(number),
            _ => bail!(known()),
        };
        match case {
            Self::Call(size) if (1_000..=100_000_000).contains(&size) => Ok(case),
            Self::List(n_tools) if (1..=100_000).contains(&n_tools) => Ok(case),
            _ => bail!("{text}: 1 kB to 100 MB, and 1 to 100000 tools are possible"),
        }
    }
}

/// A request without its id, so that it is prepared once and sent many times.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The name of the method.
    pub(crate) method: &'static str,
    /// The name of the tool, if it is a call.
    pub(crate) tool: Option<String>,
    /// The text after the id.
    pub(crate) tail: Bytes,
    /// The least length of a complete response, in bytes.
    pub(crate) least_response: usize,
}

impl Request {
    /// Returns a call of a tool that returns its text, so that the result is as long as the arguments.
    fn echo(era: Era, tool: &str, size: usize) -> Self {
        let mut text = "lorem ipsum ".repeat(size / 12 + 1);
        text.truncate(size);
        let mut request = Self::call(era, tool, &format!(r#"{{"text":"{text}"}}"#));
        request.least_response = size;
        request
    }

    /// Returns a call with arguments in JSON.
    pub(crate) fn call(era: Era, tool: &str, arguments: &str) -> Self {
        let params = format!(r#""name":"{tool}","arguments":{arguments}"#);
        let mut request = Self::new(era, "tools/call", &params);
        request.tool = Some(tool.to_owned());
        request
    }

    /// Returns a request for the list of tools.
    pub(crate) fn list(era: Era) -> Self {
        Self::new(era, "tools/list", "")
    }

    /// Returns the request that begins a session of revision 2025-11-25.
    pub(crate) fn initialize() -> Self {
        let params = r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"riglm-bench","version":"1"}"#;
        Self::new(Era::Legacy, "initialize", params)
    }

    /// Returns a request with `params`, which are members in JSON without the braces.
    fn new(era: Era, method: &'static str, params: &str) -> Self {
        let meta = match era {
            Era::Legacy => "",
            Era::Modern => META,
        };
        let comma = if params.is_empty() || meta.is_empty() {
            ""
        } else {
            ","
        };
        Self {
            method,
            tool: None,
            tail: format!(r#","method":"{method}","params":{{{params}{comma}{meta}}}}}"#).into(),
            least_response: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_parsed_from_their_names() {
        for case in Case::ALL {
            assert_eq!(case.to_string().parse::<Case>().unwrap(), case);
        }
        for wrong in [
            "", "call", "call-", "call-5", "list-0", "call-0kb", "list-1kb", "x-1",
        ] {
            assert!(wrong.parse::<Case>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn modern_requests_carry_the_revision() {
        for (era, has_meta) in [(Era::Legacy, false), (Era::Modern, true)] {
            for case in [Case::Call(1_000), Case::List(100)] {
                let tail = case.request(era).tail;
                let text = format!(r#"{{"id":1{}"#, String::from_utf8_lossy(&tail));
                let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                let version = &value["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
                assert_eq!(version.is_string(), has_meta, "{text}");
            }
        }
    }
}
