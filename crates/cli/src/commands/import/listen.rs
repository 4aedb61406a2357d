//! The address of the proxy in the configuration file, which `riglm setup --listen` sets.
//!
//! Clients, the service and later commands all read it there. Only its line changes.

use std::net::SocketAddr;

use ::config::{FileFormat, Source as _, ValueKind};
use serde_json::{Value, json};

use super::quote;
use crate::config::address;

/// The line of the section in the file.
const HEADER: &str = "[listen]";
/// The key of the address in the section.
const KEY: &str = "address";

/// A change of the address of the proxy in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddressChange {
    /// The address as the file has it, perhaps as a reference to a variable; the default address if
    /// the file has none.
    pub(super) old: String,
    pub(super) new: SocketAddr,
    pub(super) edit: ListenChange,
}

impl AddressChange {
    /// Returns the addresses as JSON.
    pub(super) fn as_json(&self) -> Value {
        json!({"old": self.old, "new": self.new.to_string()})
    }
}

/// A change of a configuration file, in TOML, that gives the proxy an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListenChange {
    /// The file has no such section, and gets one at its end.
    Section(SocketAddr),
    /// A line of the section has another address, or is added after others.
    Line {
        /// The number of lines before it.
        n_before: usize,
        /// The line in the file, if there is one.
        old: Option<String>,
        /// The line in its place.
        new: String,
    },
}

impl ListenChange {
    /// Returns the change of a text; `None` if its section is written in a way that is not known.
    pub(super) fn of(text: &str, address: SocketAddr) -> Option<Self> {
        let change = Self::propose(text, address);
        let changed = format!("{}\n{}", change.apply_to(text), change.section());
        (address_in(&changed) == Some(address)).then_some(change)
    }

    fn propose(text: &str, address: SocketAddr) -> Self {
        let entry = entry(address);
        let mut lines = text.lines().enumerate();
        let header = lines.find(|(_, line)| code_of(line) == HEADER);
        let Some((header, _)) = header else {
            return Self::Section(address);
        };
        let mut section = lines.take_while(|(_, line)| !line.trim_start().starts_with('['));
        let known = section.find(|(_, line)| {
            let key = line.split_once('=').map(|(key, _)| key.trim());
            key == Some(KEY)
        });
        match known {
            Some((n_before, line)) => Self::Line {
                n_before,
                old: Some(line.to_owned()),
                new: match line.split_once('#') {
                    Some((_, comment)) => format!("{entry} #{comment}"),
                    None => entry,
                },
            },
            None => Self::Line {
                n_before: header + 1,
                old: None,
                new: entry,
            },
        }
    }

    /// Returns the text with the changed line. A new section is left out.
    pub(super) fn apply_to(&self, text: &str) -> String {
        let Self::Line { n_before, old, new } = self else {
            return text.to_owned();
        };
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        let n_old = usize::from(old.is_some());
        // A file may mix line ends, and the other lines keep theirs. A new line follows its header.
        let neighbour = if old.is_some() {
            *n_before
        } else {
            n_before.saturating_sub(1)
        };
        let end = lines.get(neighbour).map_or("\n", |line| end_of(line));
        let line = format!("{new}{end}");
        if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
            last.push_str(end);
        }
        lines.splice(*n_before..n_before + n_old, [line]);
        lines.concat()
    }

    /// Returns the text of a new section; nothing if the file has one.
    pub(super) fn section(&self) -> String {
        match self {
            Self::Section(address) => format!("{HEADER}\n{}\n", entry(*address)),
            Self::Line { .. } => String::new(),
        }
    }
}

fn end_of(line: &str) -> &'static str {
    if line.ends_with("\r\n") { "\r\n" } else { "\n" }
}

/// Returns the address of the proxy in the text of a configuration file; `None` if it has none, or
/// not as an address.
fn address_in(text: &str) -> Option<SocketAddr> {
    address(&address_text(text)?).ok()
}

/// Returns the value of the address in the text of a configuration file, as it is written; `None` if
/// there is none.
pub(super) fn address_text(text: &str) -> Option<String> {
    let parsed = ::config::File::from_str(text, FileFormat::Toml).collect();
    let section = parsed.ok()?.remove("listen")?;
    let ValueKind::Table(mut section) = section.kind else {
        return None;
    };
    Some(section.remove(KEY)?.kind.to_string())
}

fn entry(address: SocketAddr) -> String {
    format!("{KEY} = {}", quote(&address.to_string()))
}

/// Returns a line without a comment and without space around.
fn code_of(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str) -> Option<String> {
        let change = ListenChange::of(text, "127.0.0.1:9000".parse().unwrap())?;
        Some(change.apply_to(text) + &change.section())
    }

    #[test]
    fn only_the_line_of_the_address_changes() {
        for (text, expected) in [
            ("", "[listen]\naddress = \"127.0.0.1:9000\"\n"),
            (
                "[search]\nenabled = true\n",
                "[search]\nenabled = true\n[listen]\naddress = \"127.0.0.1:9000\"\n",
            ),
            (
                "# mine\n[listen] # here\nsdk = true\naddress='[::1]:1' # old\n[search]\n",
                "# mine\n[listen] # here\nsdk = true\naddress = \"127.0.0.1:9000\" # old\n[search]\n",
            ),
            (
                "[listen]\r\nsdk = true\r\n[control]\r\naddress = \"off\"\r\n",
                "[listen]\r\naddress = \"127.0.0.1:9000\"\r\nsdk = true\r\n[control]\r\naddress = \"off\"\r\n",
            ),
            (
                "[search]\r\n[listen]\naddress = \"${ADDRESS}\"\nsdk = true\r\n",
                "[search]\r\n[listen]\naddress = \"127.0.0.1:9000\"\nsdk = true\r\n",
            ),
            (
                "[search]\n[listen]\r\naddress = \"127.0.0.1:1\"",
                "[search]\n[listen]\r\naddress = \"127.0.0.1:9000\"\n",
            ),
            (
                "[search]\r\n[listen]",
                "[search]\r\n[listen]\naddress = \"127.0.0.1:9000\"\n",
            ),
        ] {
            assert_eq!(changed(text).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_notations_are_not_changed() {
        for text in [
            "listen.address = \"127.0.0.1:1\"\n",
            "listen = { address = \"127.0.0.1:1\" }\n",
            "note = '''\n[listen]\n'''\n",
            "not TOML",
        ] {
            assert_eq!(changed(text), None, "{text}");
        }
        assert_eq!(
            address_in("[listen]\naddress = \"localhost:8642\"").map(|it| it.port()),
            Some(8642)
        );
        assert_eq!(address_in("[search]\n"), None);
        let reference = "[listen]\naddress = \"${ADDRESS}\"";
        assert_eq!(address_in(reference), None);
        assert_eq!(address_text(reference).as_deref(), Some("${ADDRESS}"));
        assert_eq!(address_text("[search]\n"), None);
    }
}
