//! The lists of several upstreams as one: what is shown under which name, and whose it is.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use riglm_domain::edit::{member, with_member, with_meta};
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::naming::{Naming, shown};
use riglm_domain::scan::unescaped;
use riglm_domain::tool::ToolRef;
use riglm_domain::uri_template;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::catalog::MemberList;
use super::list_kind::ListKind;
use crate::search::OfferedTool;

/// How many united lists are kept.
const MAX_LISTS: usize = 32;
/// How many bytes they may have in all.
const MAX_BYTES: usize = 64 << 20;
/// The most templates that a URI is compared with, of those that begin as it does.
const MAX_COMPARED: usize = 256;
/// The entry of a definition's `_meta` that tells why it cannot be used now.
const UNAVAILABLE: &str = "io.github.riglm/unavailable";

/// What one upstream adds to a list.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) upstream: UpstreamName,
    pub(super) list: Arc<MemberList>,
    /// Why none of it can be used now.
    pub(super) unavailable: Option<String>,
    /// The names that are not shown.
    pub(super) hidden: HashSet<ToolName>,
}

/// Whose an entry is, and what its owner calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct Owner {
    pub(in crate::proxy) upstream: UpstreamName,
    pub(in crate::proxy) own: Box<str>,
}

/// One list of all upstreams. Equal content has an equal version, on every machine.
#[derive(Debug)]
pub(in crate::proxy) struct UnitedList {
    kind: ListKind,
    version: String,
    entries: Vec<ListEntry>,
    /// The positions of those that are shown.
    shown: Vec<usize>,
    /// By the name or URI under which an entry is shown, hidden ones too.
    owners: HashMap<Arc<str>, Owner>,
    n_bytes: usize,
}

/// An entry under the name that it is shown by.
#[derive(Debug)]
struct ListEntry {
    name: Arc<str>,
    text: Arc<str>,
    is_hidden: bool,
}

impl UnitedList {
    fn new(kind: ListKind, naming: Naming, version: String, parts: &[Part]) -> Self {
        let mut list = Self {
            kind,
            version,
            entries: Vec::new(),
            shown: Vec::new(),
            owners: HashMap::new(),
            n_bytes: 0,
        };
        // With one upstream nothing is renamed.
        let naming = if parts.len() == 1 {
            Naming::Collision
        } else {
            naming
        };
        for (part, names) in parts.iter().zip(names(kind, naming, parts)) {
            for (entry, name) in part.list.entries.iter().zip(names) {
                let Some(name) = name else {
                    tracing::debug!(
                        upstream = %part.upstream,
                        "an entry that upstream {} lists twice is shown once",
                        part.upstream
                    );
                    continue;
                };
                let owner = Owner {
                    upstream: part.upstream.clone(),
                    own: entry.key.clone(),
                };
                // URIs are not changed: of two upstreams with the same one, the first has it.
                if list.owners.contains_key(name.as_str()) {
                    continue;
                }
                let text = entry_text(kind, &entry.text, &entry.key, &name, part);
                list.n_bytes += text.len();
                let is_hidden = part.hidden.contains(&ToolName::from(&*entry.key));
                if !is_hidden {
                    list.shown.push(list.entries.len());
                }
                let name: Arc<str> = name.into();
                list.entries.push(ListEntry {
                    name: Arc::clone(&name),
                    text,
                    is_hidden,
                });
                list.owners.insert(name, owner);
            }
        }
        list
    }

    /// Returns what tells this list from one with other content.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns how many entries are shown.
    pub(super) fn len(&self) -> usize {
        self.shown.len()
    }

    /// Returns how many bytes the entries have, hidden ones too.
    pub(super) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Returns the JSON array of the entries from `start` on, at most `n` of them.
    pub(super) fn page(&self, start: usize, n: usize) -> String {
        let page = self.shown.iter().skip(start).take(n);
        let mut text = String::from("[");
        for (position, entry) in page.enumerate() {
            if position > 0 {
                text.push(',');
            }
            text.push_str(&self.entries[*entry].text);
        }
        text.push(']');
        text
    }

    /// Returns the tools of a list of tools, hidden ones too.
    pub(super) fn offered(&self) -> Vec<OfferedTool> {
        let entries = self.entries.iter();
        let offered = entries.filter_map(|entry| {
            let owner = self.owner(&entry.name)?;
            Some(OfferedTool {
                name: (*entry.name).to_owned(),
                tool: ToolRef {
                    upstream: owner.upstream.clone(),
                    tool: ToolName::from(&*owner.own),
                },
                definition: Arc::clone(&entry.text),
                is_hidden: entry.is_hidden,
            })
        });
        offered.collect()
    }

    /// Returns whose the entry with this name or URI is.
    pub(super) fn owner(&self, name: &str) -> Option<&Owner> {
        self.owners.get(name)
    }

    /// Returns whose the entry is that its owner calls `own`, if only one upstream has such.
    pub(super) fn only_owner(&self, own: &str) -> Option<&Owner> {
        let mut owners = self.owners.values().filter(|owner| &*owner.own == own);
        owners.next().filter(|_| owners.next().is_none())
    }

    /// Returns whose template `uri` may have been made from; of several the longest decides, as the
    /// most exact one.
    pub(super) fn owner_by_template(&self, uri: &str) -> Option<&Owner> {
        let templates = self.entries.iter().map(|entry| &*entry.name);
        let near = templates.filter(|template| uri_template::may_fit(template, uri));
        let fitting = near
            .take(MAX_COMPARED)
            .filter(|template| uri_template::fits(template, uri));
        let by_length = |one: &&str, other: &&str| one.len().cmp(&other.len()).then(other.cmp(one));
        self.owner(fitting.max_by(by_length)?)
    }
}

/// Returns the names under which the entries of each part are shown.
fn names(kind: ListKind, naming: Naming, parts: &[Part]) -> Vec<Vec<Option<String>>> {
    let keys = |part: &Part| {
        let entries = part.list.entries.iter();
        entries
            .map(|entry| entry.key.to_string())
            .collect::<Vec<_>>()
    };
    if !kind.has_names() {
        let all = parts.iter().map(keys);
        return all
            .map(|keys| keys.into_iter().map(Some).collect())
            .collect();
    }
    let owned: Vec<(&UpstreamName, Vec<&str>)> = parts
        .iter()
        .map(|part| {
            let entries = part.list.entries.iter();
            (&part.upstream, entries.map(|entry| &*entry.key).collect())
        })
        .collect();
    shown(naming, &owned)
}

/// Returns the text of an entry under the name that it is shown by.
fn entry_text(kind: ListKind, text: &str, own: &str, name: &str, part: &Part) -> Arc<str> {
    let renamed = if own == name {
        None
    } else {
        Some(with_member(
            text,
            kind.key(),
            &Value::from(name).to_string(),
        ))
    };
    let Some(reason) = &part.unavailable else {
        return renamed.map_or_else(|| text.into(), Into::into);
    };
    let text = renamed.unwrap_or_else(|| text.into());
    let description = member(&text, "description").and_then(unescaped);
    let description = format!(
        "[unavailable: {reason}] {}",
        description.unwrap_or_default()
    );
    let marked = with_member(
        &text,
        "description",
        &Value::from(description.trim_end()).to_string(),
    );
    with_meta(
        &marked,
        &[(UNAVAILABLE, &Value::from(reason.as_str()).to_string())],
    )
    .into()
}

/// The united lists that were made lately, for all sessions.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Directories {
    lists: Mutex<Vec<Arc<UnitedList>>>,
}

impl Directories {
    /// Returns the list that these parts make.
    pub(super) fn unite(&self, kind: ListKind, naming: Naming, parts: &[Part]) -> Arc<UnitedList> {
        let version = version_of(kind, naming, parts);
        if let Some(known) = self.find(kind, &version) {
            return known;
        }
        let list = Arc::new(UnitedList::new(kind, naming, version, parts));
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.insert(0, Arc::clone(&list));
        lists.truncate(MAX_LISTS);
        let mut n_bytes = 0;
        lists.retain(|list| {
            n_bytes += list.n_bytes;
            n_bytes <= MAX_BYTES
        });
        list
    }

    /// Returns the list with this version.
    pub(super) fn find(&self, kind: ListKind, version: &str) -> Option<Arc<UnitedList>> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let at = lists
            .iter()
            .position(|list| list.kind == kind && list.version == version)?;
        lists[..=at].rotate_right(1);
        lists.first().cloned()
    }
}

fn version_of(kind: ListKind, naming: Naming, parts: &[Part]) -> String {
    let mut digest = Sha256::new();
    digest.update(format!("{kind:?} {naming:?}"));
    for part in parts {
        digest.update(format!("\n{} {:?} ", part.upstream, part.unavailable));
        digest.update(part.list.digest);
        let mut hidden: Vec<&ToolName> = part.hidden.iter().collect();
        hidden.sort_unstable();
        digest.update(format!("{hidden:?}"));
    }
    digest
        .finalize()
        .iter()
        .take(8)
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // Writing to a String cannot fail.
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(upstream: &str, kind: ListKind, result: &str) -> Part {
        let mut list = MemberList::default();
        list.add_page(kind, result);
        Part {
            upstream: UpstreamName::parse(upstream).unwrap(),
            list: Arc::new(list),
            unavailable: None,
            hidden: HashSet::new(),
        }
    }

    #[test]
    fn tools_are_renamed_and_otherwise_left_as_they_are() {
        let parts = [
            part(
                "a",
                ListKind::Tools,
                r#"{"tools":[{"n":1.0,"name":"x","z":1e3}]}"#,
            ),
            part(
                "b",
                ListKind::Tools,
                r#"{"tools":[{"name":"x"},{"name":"x","twice":1}]}"#,
            ),
        ];
        let list = Directories::default().unite(ListKind::Tools, Naming::Prefix, &parts);
        assert_eq!(
            list.page(0, 9),
            r#"[{"n":1.0,"name":"a__x","z":1e3},{"name":"b__x"}]"#
        );
        assert_eq!(&*list.owner("b__x").unwrap().own, "x");
        assert_eq!(list.only_owner("x"), None);
    }

    #[test]
    fn of_two_equal_uris_the_first_upstream_has_it() {
        let parts = [
            part(
                "a",
                ListKind::Resources,
                r#"{"resources":[{"uri":"r://1"}]}"#,
            ),
            part(
                "b",
                ListKind::Resources,
                r#"{"resources":[{"uri":"r://1"},{"uri":"r://2"}]}"#,
            ),
        ];
        let list = Directories::default().unite(ListKind::Resources, Naming::Prefix, &parts);
        assert_eq!(list.page(0, 9), r#"[{"uri":"r://1"},{"uri":"r://2"}]"#);
        assert_eq!(list.owner("r://1").unwrap().upstream.as_str(), "a");
    }

    #[test]
    fn what_cannot_be_used_says_so() {
        let mut parts = [
            part(
                "a",
                ListKind::Tools,
                r#"{"tools":[{"name":"x","description":"Does."}]}"#,
            ),
            part("b", ListKind::Tools, r#"{"tools":[]}"#),
        ];
        let healthy = version_of(ListKind::Tools, Naming::Prefix, &parts);
        parts[0].unavailable = Some("gone".into());
        let list = Directories::default().unite(ListKind::Tools, Naming::Prefix, &parts);
        let expected = r#"[{"name":"a__x","description":"[unavailable: gone] Does.","_meta":{"io.github.riglm/unavailable":"gone"}}]"#;
        assert_eq!(list.page(0, 9), expected);
        assert_ne!(list.version(), healthy);
    }

    #[test]
    fn a_hidden_tool_is_not_shown_and_still_has_an_owner() {
        let mut parts = [
            part(
                "a",
                ListKind::Tools,
                r#"{"tools":[{"name":"x"},{"name":"y"}]}"#,
            ),
            part("b", ListKind::Tools, r#"{"tools":[]}"#),
        ];
        parts[0].hidden.insert("x".into());
        let list = Directories::default().unite(ListKind::Tools, Naming::Prefix, &parts);
        assert_eq!(list.page(0, 9), r#"[{"name":"a__y"}]"#);
        assert!(list.owner("a__x").is_some());
        let offered = list.offered();
        let hidden: Vec<_> = offered.iter().filter(|tool| tool.is_hidden).collect();
        assert_eq!((offered.len(), hidden.len()), (2, 1));
        assert_eq!(
            (&*hidden[0].name, hidden[0].tool.tool.as_str()),
            ("a__x", "x")
        );
        assert_eq!(&*hidden[0].definition, r#"{"name":"a__x"}"#);
    }
}
