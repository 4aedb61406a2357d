//! The merged lists of several upstreams: the shown name and the owner of each entry.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use riglm_domain::catalog::naming::{NamespacePolicy, earlier_name, prefixed_name, shown_names};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::edit::{member, with_member, with_meta};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::mcp::uri_template;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::skills;
use crate::proxy::list_kind::ListKind;
use crate::proxy::own_tools::{OwnTool, OwnTools, TakenNames};
use crate::proxy::recent_cache::RecentCache;
use crate::proxy::upstream_cache::CachedList;
use riglm_discovery::search::CatalogTool;

/// The maximum number of cached merged lists.
const MAX_LISTS: usize = 32;
/// The maximum size of all cached lists in bytes.
const MAX_BYTES: usize = 64 << 20;
/// The maximum number of templates that are compared with a URI, among those with the same
/// beginning.
const MAX_COMPARED: usize = 256;
/// The entry in `_meta` of a definition with the reason why it is not available.
const UNAVAILABLE: &str = "io.github.riglm/unavailable";

/// The list of one upstream as part of a merged list.
#[derive(Debug)]
pub(super) struct ListPart {
    pub(super) upstream: UpstreamName,
    pub(super) list: Arc<CachedList>,
    /// The reason why its entries are not available.
    pub(super) unavailable: Option<String>,
    pub(super) hidden: HashSet<ToolName>,
}

/// The owner of an entry and the name of the entry there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct EntryOwner {
    pub(in crate::proxy) upstream: UpstreamName,
    pub(in crate::proxy) own: Box<str>,
}

/// A merged list of all upstreams. Equal content has an equal version, on every machine.
#[derive(Debug)]
pub(in crate::proxy) struct AggregateList {
    kind: ListKind,
    version: String,
    entries: Vec<ListEntry>,
    /// The positions of the entries that are shown.
    shown: Vec<usize>,
    /// The owners by shown name or URI, including those of hidden entries.
    owners: HashMap<Arc<str>, EntryOwner>,
    /// The shown names of long entries, by the names that earlier versions showed.
    renamed: HashMap<String, Arc<str>>,
    n_bytes: usize,
}

/// An entry under its shown name.
#[derive(Debug)]
struct ListEntry {
    name: Arc<str>,
    text: Arc<str>,
    is_hidden: bool,
}

impl AggregateList {
    fn new(kind: ListKind, naming: NamespacePolicy, version: String, parts: &[ListPart]) -> Self {
        let mut list = Self {
            kind,
            version,
            entries: Vec::new(),
            shown: Vec::new(),
            owners: HashMap::new(),
            renamed: HashMap::new(),
            n_bytes: 0,
        };
        // With one upstream nothing is renamed.
        let naming = if parts.len() == 1 {
            NamespacePolicy::Collision
        } else {
            naming
        };
        for (part, names) in parts.iter().zip(names(kind, naming, parts)) {
            for (entry, name) in part.list.entries.iter().zip(names) {
                let Some(name) = name else {
                    tracing::debug!(
                        upstream = %part.upstream,
                        "upstream {} lists an entry twice: it is shown once",
                        part.upstream
                    );
                    continue;
                };
                let owner = EntryOwner {
                    upstream: part.upstream.clone(),
                    own: entry.key.clone(),
                };
                // URIs are not changed. If two upstreams have the same URI, the first one owns it.
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
                if kind.has_names() && parts.len() > 1 {
                    let earlier = earlier_name(&part.upstream, &entry.key);
                    if earlier != prefixed_name(&part.upstream, &entry.key) {
                        list.renamed.insert(earlier, Arc::clone(&name));
                    }
                }
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

    /// Returns the version, which differs for lists with different content.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the number of shown entries.
    pub(super) fn len(&self) -> usize {
        self.shown.len()
    }

    /// Returns the size of the entries in bytes, including hidden ones.
    pub(super) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Returns the JSON array of at most `n` shown entries from `start` on.
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

    /// Returns the tools of a tool list, including hidden ones.
    pub(super) fn catalog_tools(&self) -> Vec<CatalogTool> {
        let entries = self.entries.iter();
        let offered = entries.filter_map(|entry| {
            let owner = self.owner(&entry.name)?;
            Some(CatalogTool {
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

    /// Returns the shown entries: the name or URI, and the JSON text.
    pub(in crate::proxy) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        let shown = self.shown.iter().filter_map(|at| self.entries.get(*at));
        shown.map(|entry| (&*entry.name, &*entry.text))
    }

    /// Returns the owner of the entry with this name or URI, or with this name in earlier versions.
    pub(super) fn owner(&self, name: &str) -> Option<&EntryOwner> {
        let shown = || self.owners.get(self.renamed.get(name)?);
        self.owners.get(name).or_else(shown)
    }

    /// Returns the shown names and the owners of all entries with this own name, by name.
    pub(super) fn owners_of(&self, own: &str) -> Vec<(&str, &EntryOwner)> {
        let owners = self.owners.iter();
        let of_name = owners.filter(|(_, owner)| &*owner.own == own);
        let mut found: Vec<(&str, &EntryOwner)> =
            of_name.map(|(name, owner)| (&**name, owner)).collect();
        found.sort_unstable_by_key(|(name, _)| *name);
        found
    }

    /// Returns the shown names or URIs of all entries, including hidden ones.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// Returns the owner of a template that `uri` may come from. Of several templates the longest
    /// is used, because it is the most specific.
    pub(super) fn owner_by_template(&self, uri: &str) -> Option<&EntryOwner> {
        let templates = self.entries.iter().map(|entry| &*entry.name);
        let near = templates.filter(|template| uri_template::may_match(template, uri));
        let fitting = near
            .take(MAX_COMPARED)
            .filter(|template| uri_template::matches_template(template, uri));
        let by_length = |one: &&str, other: &&str| one.len().cmp(&other.len()).then(other.cmp(one));
        self.owner(fitting.max_by(by_length)?)
    }
}

/// Returns the own tools whose names a list uses for tools of upstreams. These own tools are left
/// out.
pub(in crate::proxy) fn taken_names(tools: &OwnTools, list: &AggregateList) -> TakenNames {
    let mut all = TakenNames::default();
    for own in OwnTool::ALL {
        let owner = tools.name(own).and_then(|name| list.owner(name));
        if let Some(owner) = owner {
            let mut taken = TakenNames::default();
            taken.add(own);
            tools.warn_of_clash(&owner.upstream, taken);
            all = all.and(taken);
        }
    }
    all
}

/// Returns the shown names of the entries of each part.
fn names(kind: ListKind, naming: NamespacePolicy, parts: &[ListPart]) -> Vec<Vec<Option<String>>> {
    if kind == ListKind::Skills {
        return skills::shown_uris(naming, parts);
    }
    let keys = |part: &ListPart| {
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
    shown_names(naming, &owned)
}

/// Returns the text of an entry with its shown name.
fn entry_text(kind: ListKind, text: &str, own: &str, name: &str, part: &ListPart) -> Arc<str> {
    let renamed = if own == name {
        None
    } else if kind == ListKind::Skills {
        Some(skills::with_shown_uris(text, &part.upstream))
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
    // A frontmatter must stay as its file has it.
    if kind == ListKind::Skills {
        return text.into();
    }
    let description = member(&text, "description").and_then(unescape);
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

/// The cache of recently merged lists, for all sessions.
#[derive(Debug)]
pub(in crate::proxy) struct MergedListCache(RecentCache<AggregateList>);

impl Default for MergedListCache {
    fn default() -> Self {
        Self(RecentCache::new(MAX_LISTS, MAX_BYTES))
    }
}

impl MergedListCache {
    /// Returns the merged list of these parts.
    pub(super) fn aggregate(
        &self,
        kind: ListKind,
        naming: NamespacePolicy,
        parts: &[ListPart],
    ) -> Arc<AggregateList> {
        let version = version_of(kind, naming, parts);
        let is_it = |list: &AggregateList| list.kind == kind && list.version == version;
        if let Some(known) = self.0.find(is_it) {
            return known;
        }
        let list = Arc::new(AggregateList::new(kind, naming, version, parts));
        self.0.insert(&list, list.n_bytes);
        list
    }
}

fn version_of(kind: ListKind, naming: NamespacePolicy, parts: &[ListPart]) -> String {
    let mut digest = Sha256::new();
    digest.update(format!("{kind:?} {naming:?}"));
    for part in parts {
        digest.update(format!("\n{} {:?} ", part.upstream, part.unavailable));
        digest.update(part.list.digest);
        let mut hidden: Vec<&ToolName> = part.hidden.iter().collect();
        hidden.sort_unstable();
        digest.update(format!("{hidden:?}"));
    }
    hex::encode(&digest.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(upstream: &str, kind: ListKind, result: &str) -> ListPart {
        let mut list = CachedList::default();
        list.add_page(kind, result);
        ListPart {
            upstream: UpstreamName::parse(upstream).unwrap(),
            list: Arc::new(list),
            unavailable: None,
            hidden: HashSet::new(),
        }
    }

    #[test]
    fn merged_tools_change_only_their_names() {
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
        let list =
            MergedListCache::default().aggregate(ListKind::Tools, NamespacePolicy::Prefix, &parts);
        assert_eq!(
            list.page(0, 9),
            r#"[{"n":1.0,"name":"a__x","z":1e3},{"name":"b__x"}]"#
        );
        assert_eq!(&*list.owner("b__x").unwrap().own, "x");
        assert_eq!(list.owners_of("x").len(), 2);
    }

    #[test]
    fn duplicate_uris_belong_to_the_first_upstream() {
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
        let list = MergedListCache::default().aggregate(
            ListKind::Resources,
            NamespacePolicy::Prefix,
            &parts,
        );
        assert_eq!(list.page(0, 9), r#"[{"uri":"r://1"},{"uri":"r://2"}]"#);
        assert_eq!(list.owner("r://1").unwrap().upstream.as_str(), "a");
    }

    #[test]
    fn tools_of_unavailable_upstreams_are_marked() {
        let mut parts = [
            part(
                "a",
                ListKind::Tools,
                r#"{"tools":[{"name":"x","description":"Does."}]}"#,
            ),
            part("b", ListKind::Tools, r#"{"tools":[]}"#),
        ];
        let healthy = version_of(ListKind::Tools, NamespacePolicy::Prefix, &parts);
        parts[0].unavailable = Some("gone".into());
        let list =
            MergedListCache::default().aggregate(ListKind::Tools, NamespacePolicy::Prefix, &parts);
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
        let list =
            MergedListCache::default().aggregate(ListKind::Tools, NamespacePolicy::Prefix, &parts);
        assert_eq!(list.page(0, 9), r#"[{"name":"a__y"}]"#);
        assert!(list.owner("a__x").is_some());
        let offered = list.catalog_tools();
        let hidden: Vec<_> = offered.iter().filter(|tool| tool.is_hidden).collect();
        assert_eq!((offered.len(), hidden.len()), (2, 1));
        assert_eq!(
            (&*hidden[0].name, hidden[0].tool.tool.as_str()),
            ("a__x", "x")
        );
        assert_eq!(&*hidden[0].definition, r#"{"name":"a__x"}"#);
    }
}
