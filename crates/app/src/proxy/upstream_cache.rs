//! The cache of one upstream: its handshake results and its last known lists.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::protocol::{Era, Revision};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::privacy::principal::Principal;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::list_kind::ListKind;

/// The maximum number of different handshake results.
const MAX_GREETINGS: usize = 16;
/// The maximum number of lists. Beyond it, the principal with the most lists loses one.
const MAX_LISTS: usize = 256;
/// The maximum number of different client capabilities with a separate list, per principal and
/// kind.
const MAX_CAPABILITIES: usize = 4;
/// The maximum size of capabilities that are kept, in bytes.
const MAX_CAPABILITIES_BYTES: usize = 16 << 10;
/// The maximum size of all lists in bytes. Beyond it, the principal with the most bytes loses a
/// list.
const MAX_BYTES: usize = 32 << 20;
/// The maximum number of entries of one list of one upstream.
const MAX_ENTRIES: usize = 5_000;
/// The maximum size of one list of one upstream in bytes.
const MAX_LIST_BYTES: usize = 16 << 20;
/// The maximum size of a small list in bytes. Hashing it takes about one millisecond at most.
const SMALL_BYTES: usize = 512 << 10;

/// The cache key of a list. The list of a server may depend on the principal, on the capabilities
/// of the client and on its era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct ListKey {
    pub(in crate::proxy) kind: ListKind,
    pub(in crate::proxy) principal: Principal,
    /// The digest of the client's capabilities.
    pub(in crate::proxy) capabilities: [u8; 8],
    /// The era of the client; `None` for a server that speaks one era only.
    pub(in crate::proxy) era: Option<Era>,
}

impl ListKey {
    /// Returns the key of the list that a health check gets.
    pub(in crate::proxy) fn of_check(kind: ListKind, era: Option<Era>) -> Self {
        Self {
            kind,
            principal: Principal::local(),
            // Of no client.
            capabilities: [0; 8],
            era,
        }
    }
}

/// One complete list of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::proxy) struct CachedList {
    /// The SHA-256 of the entries, set when the list is stored.
    pub(in crate::proxy) digest: [u8; 32],
    pub(in crate::proxy) entries: Vec<Entry>,
    /// The time to live that the server sets; `None` if it sets none.
    pub(in crate::proxy) ttl_ms: Option<u64>,
    /// Whether the server declares that the list is the same for all clients.
    pub(in crate::proxy) is_public: bool,
    n_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct Entry {
    /// Its name or URI.
    pub(in crate::proxy) key: Box<str>,
    /// The JSON text, verbatim.
    pub(in crate::proxy) text: Box<str>,
}

impl CachedList {
    /// Adds the entries of a page. Entries without a name or URI are skipped, and so are entries
    /// beyond the limits. Returns the JSON text of the next cursor.
    pub(in crate::proxy) fn add_page(&mut self, kind: ListKind, result: &str) -> Option<String> {
        // The members are read one by one, so that an invalid member does not affect the others.
        let text = |key| edit::member(result, key).and_then(unescape);
        let ttl_ms = edit::member(result, "ttlMs").and_then(millis);
        let is_public = text("cacheScope").as_deref() == Some("public");
        let is_first = self.entries.is_empty();
        self.ttl_ms = match (is_first, self.ttl_ms, ttl_ms) {
            (true, _, ttl) => ttl,
            // All pages must be valid, so the shortest time counts.
            (false, Some(one), Some(other)) => Some(one.min(other)),
            (false, ..) => None,
        };
        self.is_public = is_public && (is_first || self.is_public);
        let listed = edit::member(result, kind.member());
        let entries: Vec<&RawValue> = listed
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let next = edit::member(result, "nextCursor").filter(|text| text.starts_with('"'));
        for entry in entries {
            let text = entry.get();
            let key = edit::member(text, kind.key()).and_then(unescape);
            let Some(key) = key.filter(|_| text.starts_with('{')) else {
                continue;
            };
            self.n_bytes += text.len();
            if self.entries.len() >= MAX_ENTRIES || self.n_bytes > MAX_LIST_BYTES {
                return None;
            }
            self.entries.push(Entry {
                key: key.into(),
                text: text.into(),
            });
        }
        next.map(str::to_owned)
    }

    /// Returns whether the list is small enough for processing without delay.
    pub(in crate::proxy) fn is_small(&self) -> bool {
        self.n_bytes <= SMALL_BYTES
    }

    /// Returns the list as one page of a result. [`Self::add_page`] reads it.
    pub(in crate::proxy) fn to_page(&self, kind: ListKind) -> String {
        let entries: Vec<&str> = self.entries.iter().map(|entry| &*entry.text).collect();
        let ttl = (self.ttl_ms).map_or_else(String::new, |ttl| format!(r#","ttlMs":{ttl}"#));
        let scope = if self.is_public { "public" } else { "private" };
        format!(
            r#"{{"{}":[{}]{ttl},"cacheScope":"{scope}"}}"#,
            kind.member(),
            entries.join(",")
        )
    }

    fn set_digest(&mut self) {
        let mut digest = Sha256::new();
        for entry in &self.entries {
            digest.update((entry.text.len() as u64).to_le_bytes());
            digest.update(entry.text.as_bytes());
        }
        self.digest = digest.finalize().into();
    }
}

/// A result of a handshake or of discovery.
#[derive(Debug)]
struct KnownGreeting {
    /// The era of the client; `None` for a server that speaks one era only.
    era: Option<Era>,
    /// The revision that the handshake asked for; `None` for discovery.
    asked: Option<Box<str>>,
    result: Arc<str>,
}

/// The cache of one upstream.
#[derive(Debug, Default)]
pub(in crate::proxy) struct UpstreamCache {
    /// The newest first.
    greetings: Mutex<Vec<KnownGreeting>>,
    /// The capabilities of the last local client of each era, which checks declare.
    capabilities: Mutex<Vec<(Era, Arc<str>)>>,
    lists: Mutex<Vec<(ListKey, Arc<CachedList>)>>,
    /// The keys of lists that come from an earlier process, until the server lists again.
    recalled: Mutex<Vec<ListKey>>,
    /// The parts that are stored, with the digests of their contents.
    pub(in crate::proxy) stored: Mutex<HashMap<String, [u8; 32]>>,
}

impl UpstreamCache {
    /// Stores a result of discovery, or of a handshake that asked for the revision `asked`. Equal
    /// results share their memory.
    pub(in crate::proxy) fn note_greeting(
        &self,
        era: Option<Era>,
        asked: Option<&str>,
        result: &str,
    ) -> Arc<str> {
        let mut greetings = self.greetings.lock();
        let mut known = greetings.iter().map(|known| &known.result);
        let equal = known.find(|known| ***known == *result).cloned();
        let result = equal.unwrap_or_else(|| result.into());
        greetings.retain(|known| known.era != era || known.asked.as_deref() != asked);
        let greeting = KnownGreeting {
            era,
            asked: asked.map(Into::into),
            result: Arc::clone(&result),
        };
        greetings.insert(0, greeting);
        greetings.truncate(MAX_GREETINGS);
        result
    }

    /// Returns the last result of a handshake or of discovery that a client of the era `client` may
    /// get: of what it asks, or else of the other, which the bridge may have translated.
    pub(in crate::proxy) fn greeting(&self, era: Option<Era>, client: Era) -> Option<Arc<str>> {
        let is_asked = |asked: Option<&str>| asked.is_some() == (client == Era::Legacy);
        (self.greeting_where(era, is_asked)).or_else(|| self.greeting_where(era, |_| true))
    }

    /// Returns the last result of discovery, or of a handshake that asked for the revision `asked`.
    pub(in crate::proxy) fn answer_to(
        &self,
        era: Option<Era>,
        asked: Option<&str>,
    ) -> Option<Arc<str>> {
        self.greeting_where(era, |known| known == asked)
    }

    fn greeting_where(
        &self,
        era: Option<Era>,
        is_wanted: impl Fn(Option<&str>) -> bool,
    ) -> Option<Arc<str>> {
        let greetings = self.greetings.lock();
        let mut known = greetings.iter().filter(|known| known.era == era);
        let found = known.find(|known| is_wanted(known.asked.as_deref()));
        found.map(|known| Arc::clone(&known.result))
    }

    /// Returns whether clients of the two eras are told apart.
    pub(in crate::proxy) fn tells_eras_apart(&self) -> bool {
        self.greetings
            .lock()
            .iter()
            .any(|known| known.era.is_some())
    }

    /// Stores the capabilities of a client of an era.
    pub(in crate::proxy) fn note_capabilities(&self, era: Era, text: &str) {
        let mut all = self.capabilities.lock();
        all.retain(|(of, _)| *of != era);
        if text.starts_with('{') && text.len() <= MAX_CAPABILITIES_BYTES {
            all.push((era, text.into()));
        }
    }

    /// Returns the capabilities of the last client of an era, as JSON text.
    pub(in crate::proxy) fn capabilities(&self, era: Era) -> Arc<str> {
        let all = self.capabilities.lock();
        let found = all.iter().find(|(of, _)| *of == era);
        found.map_or_else(|| "{}".into(), |(_, text)| Arc::clone(text))
    }

    /// Returns the numbers of tools for legacy and for modern clients, if they are other tools.
    pub(in crate::proxy) fn tools_by_era(&self) -> Option<(usize, usize)> {
        let lists = self.lists.lock();
        let of_era = |era| {
            let mut lists = lists.iter();
            lists.find(|(key, _)| key.kind == ListKind::Tools && key.era == Some(era))
        };
        let names = |(_, list): &(ListKey, Arc<CachedList>)| -> BTreeSet<Box<str>> {
            list.entries.iter().map(|entry| entry.key.clone()).collect()
        };
        let legacy = names(of_era(Era::Legacy)?);
        let modern = names(of_era(Era::Modern)?);
        (legacy != modern).then_some((legacy.len(), modern.len()))
    }

    /// Returns the last known list for this key.
    pub(in crate::proxy) fn list(&self, key: &ListKey) -> Option<Arc<CachedList>> {
        let lists = self.lists.lock();
        let found = lists.iter().find(|(known, _)| known == key);
        found.map(|(_, list)| Arc::clone(list))
    }

    /// Returns a substitute for a list that is not cached under its key: the newest list of the
    /// same principal with other capabilities, or else a public list, or else that of the last
    /// health check, which depends on no client.
    pub(in crate::proxy) fn similar_list(&self, key: &ListKey) -> Option<Arc<CachedList>> {
        let lists = self.lists.lock();
        let alike = || {
            lists
                .iter()
                .filter(|(known, _)| known.kind == key.kind && known.era == key.era)
        };
        let of_check = ListKey::of_check(key.kind, key.era);
        let found = alike()
            .find(|(known, _)| known.principal == key.principal)
            .or_else(|| alike().find(|(_, list)| list.is_public))
            .or_else(|| alike().find(|(known, _)| *known == of_check));
        found.map(|(_, list)| Arc::clone(list))
    }

    /// Returns the parts that outlast the process, with their names: the newest greetings, and the
    /// lists of the local principal. The content of each is JSON text.
    pub(in crate::proxy) fn lasting_parts(&self) -> Vec<(String, String)> {
        let mut parts: Vec<(String, String)> = Vec::new();
        for known in self.greetings.lock().iter() {
            let asked = known.asked.as_deref();
            if asked.is_none_or(|asked| Revision::WITH_SESSIONS.contains(&asked)) {
                let (era, asked) = (name_of(known.era), asked.unwrap_or(DISCOVERY));
                parts.push((
                    format!("{GREETING}:{era}:{asked}"),
                    known.result.to_string(),
                ));
            }
        }
        for (era, text) in self.capabilities.lock().iter() {
            parts.push((
                format!("{CAPABILITIES}:{}", name_of(Some(*era))),
                text.to_string(),
            ));
        }
        let local = Principal::local();
        for (key, list) in self.lists.lock().iter() {
            if key.principal == local {
                let (kind, era) = (key.kind.member(), name_of(key.era));
                let part = format!("{kind}:{era}:{}", hex::encode(key.capabilities));
                parts.push((part, list.to_page(key.kind)));
            }
        }
        parts
    }

    /// Takes over a part of [`Self::lasting_parts`], unless it is known better already. Unknown
    /// parts are skipped.
    pub(in crate::proxy) fn recall(&self, part: &str, content: &str) {
        let mut names = part.split(':');
        let (Some(what), Some(era)) = (names.next(), names.next()) else {
            return;
        };
        let era = match era {
            "legacy" => Some(Era::Legacy),
            "modern" => Some(Era::Modern),
            _ => None,
        };
        if what == GREETING {
            let asked = names
                .next()
                .map(|asked| Some(asked).filter(|it| *it != DISCOVERY));
            if let Some(asked) = asked.filter(|asked| self.answer_to(era, *asked).is_none()) {
                self.note_greeting(era, asked, content);
            }
            return;
        }
        if what == CAPABILITIES {
            let is_known = |era| self.capabilities.lock().iter().any(|(of, _)| *of == era);
            if let Some(era) = era.filter(|era| !is_known(*era)) {
                self.note_capabilities(era, content);
            }
            return;
        }
        let mut capabilities = [0; 8];
        let kind = ListKind::of_member(what);
        let digest = names.next().unwrap_or_default();
        let (Some(kind), Ok(())) = (kind, hex::decode_to_slice(digest, &mut capabilities)) else {
            return;
        };
        let key = ListKey {
            kind,
            principal: Principal::local(),
            capabilities,
            era,
        };
        if self.list(&key).is_none() {
            let mut list = CachedList::default();
            list.add_page(kind, content);
            self.remember(key.clone(), list);
            self.recalled.lock().push(key);
        }
    }

    /// Returns whether the server has sent the list for this key to this process.
    pub(in crate::proxy) fn is_confirmed(&self, key: &ListKey) -> bool {
        self.list(key).is_some() && !self.recalled.lock().contains(key)
    }

    /// Stores a list. Returns it, or an equal list that is already stored.
    pub(in crate::proxy) fn remember(&self, key: ListKey, mut list: CachedList) -> Arc<CachedList> {
        list.set_digest();
        self.recalled.lock().retain(|recalled| *recalled != key);
        let mut lists = self.lists.lock();
        let equal = lists.iter().find(|(_, known)| **known == list);
        let list = equal.map_or_else(|| Arc::new(list), |(_, known)| Arc::clone(known));
        lists.retain(|(known, _)| *known != key);
        let mut n_alike = 1;
        lists.retain(|(known, _)| {
            let is_alike =
                known.kind == key.kind && known.principal == key.principal && known.era == key.era;
            n_alike += usize::from(is_alike);
            !is_alike || n_alike <= MAX_CAPABILITIES
        });
        lists.insert(0, (key, Arc::clone(&list)));
        while lists.len() > MAX_LISTS {
            drop_of_largest(&mut lists, |_| 1);
        }
        while n_bytes_of(&lists) > MAX_BYTES {
            drop_of_largest(&mut lists, |list| list.n_bytes.max(1));
        }
        list
    }
}

/// The name of the parts with greetings.
const GREETING: &str = "greeting";
/// The name of greetings by discovery.
const DISCOVERY: &str = "discovery";
/// The name of the parts with capabilities of clients.
const CAPABILITIES: &str = "capabilities";

fn name_of(era: Option<Era>) -> &'static str {
    match era {
        None => "any",
        Some(Era::Legacy) => "legacy",
        Some(Era::Modern) => "modern",
    }
}

/// Returns the size of lists in bytes. Equal lists share their memory and count once.
fn n_bytes_of(lists: &[(ListKey, Arc<CachedList>)]) -> usize {
    let mut counted = HashSet::new();
    let lists = lists.iter().map(|(_, list)| list);
    let own = lists.filter(|list| counted.insert(Arc::as_ptr(list)));
    own.map(|list| list.n_bytes).sum()
}

/// Removes the oldest list of the principal with the highest sum of a measure. Among equal sums, it
/// is the principal whose list was stored last.
fn drop_of_largest(
    lists: &mut Vec<(ListKey, Arc<CachedList>)>,
    measure: impl Fn(&CachedList) -> usize,
) {
    let mut sums: HashMap<&Principal, usize> = HashMap::new();
    for (key, list) in lists.iter() {
        *sums.entry(&key.principal).or_default() += measure(list);
    }
    let most = sums.values().copied().max().unwrap_or_default();
    let mut newest_first = lists.iter().map(|(key, _)| &key.principal);
    let largest = newest_first.find(|principal| sums[*principal] == most);
    let oldest = largest.and_then(|largest| {
        let mut all = lists.iter();
        all.rposition(|(key, _)| key.principal == *largest)
    });
    if let Some(oldest) = oldest {
        lists.remove(oldest);
    }
}

/// Returns a time in whole milliseconds from the JSON number of a server.
pub(in crate::proxy) fn millis(json: &str) -> Option<u64> {
    json.parse().ok().or_else(|| {
        let number: f64 = serde_json::from_str(json).ok()?;
        let whole = Duration::try_from_secs_f64(number / 1_000.0).ok()?;
        u64::try_from(whole.as_millis()).ok()
    })
}

/// Returns the digest of a client's capabilities.
pub(in crate::proxy) fn digest_of(capabilities: Option<&str>) -> [u8; 8] {
    let whole = Sha256::digest(capabilities.unwrap_or_default().as_bytes());
    let mut digest = [0; 8];
    digest.copy_from_slice(&whole[..8]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_joined_and_malformed_entries_left_out() {
        let mut list = CachedList::default();
        let first = r#"{"tools":[{"name":"a","n":1.0},{"x":1},7,{"name":5}],"nextCursor":"c",
            "ttlMs":9,"cacheScope":"public"}"#;
        assert_eq!(
            list.add_page(ListKind::Tools, first).as_deref(),
            Some(r#""c""#)
        );
        let second = r#"{"tools":[{"name":"b"}],"ttlMs":4,"cacheScope":"public"}"#;
        assert_eq!(list.add_page(ListKind::Tools, second), None);
        let keys: Vec<_> = list.entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(&*list.entries[0].text, r#"{"name":"a","n":1.0}"#);
        assert_eq!((list.ttl_ms, list.is_public), (Some(4), true));
    }

    #[test]
    fn invalid_page_members_do_not_hide_the_next_cursor() {
        for (ttl, expected) in [
            ("5e3", Some(5_000)),
            ("1.5", Some(1)),
            ("-1", None),
            ("{}", None),
        ] {
            let mut list = CachedList::default();
            let page = format!(r#"{{"tools":[{{"name":"a"}}],"nextCursor":"c","ttlMs":{ttl}}}"#);
            assert_eq!(
                list.add_page(ListKind::Tools, &page).as_deref(),
                Some(r#""c""#)
            );
            assert_eq!(list.ttl_ms, expected, "{ttl}");
        }
    }

    #[test]
    fn listed_entries_are_limited_per_upstream() {
        let mut list = CachedList::default();
        let entries = vec![r#"{"name":"x"}"#; MAX_ENTRIES + 1].join(",");
        list.add_page(ListKind::Tools, &format!(r#"{{"tools":[{entries}]}}"#));
        assert_eq!(list.entries.len(), MAX_ENTRIES);
    }

    #[test]
    fn listed_bytes_are_limited_per_upstream() {
        let mut list = CachedList::default();
        let big = "x".repeat(6 << 20);
        for name in ["a", "b", "c"] {
            let page = format!(r#"{{"tools":[{{"name":"{name}","d":"{big}"}}],"nextCursor":"c"}}"#);
            let next = list.add_page(ListKind::Tools, &page);
            assert_eq!(next.is_none(), name == "c");
        }
        assert_eq!(list.entries.len(), 2);
    }

    #[test]
    fn similar_lists_come_from_the_principal_or_are_public() {
        let key = |principal: &str, capabilities| ListKey {
            kind: ListKind::Tools,
            principal: Principal::from_name(principal),
            capabilities: [capabilities; 8],
            era: None,
        };
        let list = |scope: &str| {
            let mut list = CachedList::default();
            let page = format!(r#"{{"tools":[{{"name":"{scope}"}}],"cacheScope":"{scope}"}}"#);
            list.add_page(ListKind::Tools, &page);
            list
        };
        let catalog = UpstreamCache::default();
        let private = catalog.remember(key("ann", 1), list("private"));
        assert_eq!(catalog.similar_list(&key("ann", 2)), Some(private));
        assert_eq!(catalog.similar_list(&key("bob", 1)), None);
        let public = catalog.remember(key("eve", 1), list("public"));
        assert_eq!(catalog.similar_list(&key("bob", 1)), Some(public));
    }

    /// Stores a list with this many bytes.
    fn remember(catalog: &UpstreamCache, principal: &str, capabilities: u16, n_bytes: usize) {
        let mut list = CachedList::default();
        let text = "x".repeat(n_bytes);
        let page = format!(r#"{{"tools":[{{"name":"{principal}-{capabilities}","d":"{text}"}}]}}"#);
        list.add_page(ListKind::Tools, &page);
        catalog.remember(key_of(principal, capabilities), list);
    }

    fn key_of(principal: &str, capabilities: u16) -> ListKey {
        let mut digest = [0; 8];
        digest[..2].copy_from_slice(&capabilities.to_le_bytes());
        ListKey {
            kind: ListKind::Tools,
            principal: Principal::from_name(principal),
            capabilities: digest,
            era: None,
        }
    }

    #[test]
    fn varying_capabilities_evict_only_lists_of_the_same_principal() {
        let catalog = UpstreamCache::default();
        remember(&catalog, "ann", 1, 10);
        for capabilities in 0..1_000 {
            remember(&catalog, "eve", capabilities, 10);
        }
        assert!(catalog.list(&key_of("ann", 1)).is_some());
        let n_kept = (0..1_000).filter(|n| catalog.list(&key_of("eve", *n)).is_some());
        assert_eq!(n_kept.count(), MAX_CAPABILITIES);
        assert!(catalog.list(&key_of("eve", 999)).is_some());
    }

    #[test]
    fn lists_of_one_principal_do_not_evict_others() {
        let catalog = UpstreamCache::default();
        for principal in 0..MAX_LISTS - MAX_CAPABILITIES {
            remember(&catalog, &principal.to_string(), 1, 10);
        }
        for capabilities in 0..100 {
            remember(&catalog, "eve", capabilities, 10);
        }
        for principal in 0..MAX_LISTS - MAX_CAPABILITIES {
            assert!(catalog.list(&key_of(&principal.to_string(), 1)).is_some());
        }
        remember(&catalog, "new", 1, 10);
        assert!(catalog.list(&key_of("new", 1)).is_some());
        assert_eq!(catalog.list(&key_of("eve", 96)), None);
    }

    #[test]
    fn the_principal_with_the_largest_lists_is_evicted_first() {
        let catalog = UpstreamCache::default();
        remember(&catalog, "ann", 1, 1 << 20);
        for capabilities in 0..4 {
            remember(&catalog, "eve", capabilities, 12 << 20);
        }
        assert!(catalog.list(&key_of("ann", 1)).is_some());
        let kept: Vec<u16> = (0..4)
            .filter(|n| catalog.list(&key_of("eve", *n)).is_some())
            .collect();
        assert_eq!(kept, [2, 3]);
    }

    #[test]
    fn equal_greetings_share_their_memory() {
        let catalog = UpstreamCache::default();
        let one = catalog.note_greeting(None, None, "{}");
        assert!(Arc::ptr_eq(&one, &catalog.note_greeting(None, None, "{}")));
        assert_eq!(catalog.greeting(None, Era::Legacy), Some(one));
        assert_eq!(catalog.greeting(Some(Era::Modern), Era::Modern), None);
    }

    #[test]
    fn recalled_parts_are_those_that_were_kept() {
        let known = UpstreamCache::default();
        known.note_greeting(Some(Era::Modern), None, r#"{"capabilities":{"n":1.0}}"#);
        known.note_greeting(
            Some(Era::Legacy),
            Some("2025-06-18"),
            r#"{"capabilities":{}}"#,
        );
        known.note_capabilities(Era::Legacy, r#"{"roots":{}}"#);
        let mut list = CachedList::default();
        let page =
            r#"{"tools":[{"name":"a","n":1e3}, {"name":"b"}],"ttlMs":7,"cacheScope":"public"}"#;
        list.add_page(ListKind::Tools, page);
        let key = ListKey::of_check(ListKind::Tools, Some(Era::Modern));
        let list = known.remember(key.clone(), list);
        remember(&known, "ann", 1, 10);
        let recalled = UpstreamCache::default();
        for (part, content) in known.lasting_parts() {
            recalled.recall(&part, &content);
        }
        recalled.recall("tools:modern:ff", "{}");
        recalled.recall("later:modern:0000000000000000", "{}");
        assert_eq!(&*recalled.capabilities(Era::Legacy), r#"{"roots":{}}"#);
        assert_eq!(recalled.lasting_parts().len(), 4, "{recalled:?}");
        assert_eq!(recalled.list(&key), Some(list));
        assert!(known.is_confirmed(&key) && !recalled.is_confirmed(&key));
        for era in [Era::Legacy, Era::Modern] {
            let greeting = |of: &UpstreamCache| of.greeting(Some(era), era);
            assert_eq!(greeting(&recalled), greeting(&known));
        }
    }

    #[test]
    fn lists_of_health_checks_stand_in_for_those_of_every_principal() {
        let catalog = UpstreamCache::default();
        remember(&catalog, "eve", 1, 10);
        assert_eq!(catalog.similar_list(&key_of("ann", 1)), None);
        let checked = catalog.remember(
            ListKey::of_check(ListKind::Tools, None),
            CachedList::default(),
        );
        assert_eq!(catalog.similar_list(&key_of("ann", 1)), Some(checked));
    }
}
