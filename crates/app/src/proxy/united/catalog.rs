//! What is remembered of one upstream: how it answered handshakes, and its last known lists.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use riglm_domain::edit;
use riglm_domain::principal::Principal;
use riglm_domain::scan::unescaped;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::list_kind::ListKind;

/// How many different answers to a handshake are remembered.
const MAX_HELLOS: usize = 16;
/// The most lists that are remembered. Where there are more, the principal with the most loses one.
const MAX_LISTS: usize = 256;
/// With how many different capabilities one principal has a list of a kind.
const MAX_CAPABILITIES: usize = 4;
/// The most bytes of all of them; the principal with the most bytes loses a list likewise.
const MAX_BYTES: usize = 32 << 20;
/// The most entries of one list of one upstream.
const MAX_ENTRIES: usize = 5_000;
/// The most bytes of them.
const MAX_LIST_BYTES: usize = 16 << 20;
/// Up to how many bytes a list is small: hashing takes about a millisecond at most.
const SMALL_BYTES: usize = 512 << 10;

/// Whose list it is: what a server lists may depend on who asks and on what the client can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct ListKey {
    pub(in crate::proxy) kind: ListKind,
    pub(in crate::proxy) principal: Principal,
    /// Digest of the client's capabilities.
    pub(in crate::proxy) capabilities: [u8; 8],
}

/// One list of one upstream, all pages of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::proxy) struct MemberList {
    /// SHA-256 of the entries; set when the list is remembered.
    pub(in crate::proxy) digest: [u8; 32],
    pub(in crate::proxy) entries: Vec<Entry>,
    /// How long the server says that it stays as it is; `None` if it does not say.
    pub(in crate::proxy) ttl_ms: Option<u64>,
    /// The server says that it is the same for everybody.
    pub(in crate::proxy) is_public: bool,
    n_bytes: usize,
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct Entry {
    /// Its name or URI.
    pub(in crate::proxy) key: Box<str>,
    /// The JSON text, as the server wrote it.
    pub(in crate::proxy) text: Box<str>,
}

impl MemberList {
    /// Adds the entries of a page. Those without a name or URI are left out, and so are those
    /// beyond what one upstream may list. Returns the cursor of the next page as it is written.
    pub(in crate::proxy) fn add_page(&mut self, kind: ListKind, result: &str) -> Option<String> {
        // Read one by one: an odd one must not cost the others.
        let text = |key| edit::member(result, key).and_then(unescaped);
        let ttl_ms = edit::member(result, "ttlMs").and_then(millis);
        let is_public = text("cacheScope").as_deref() == Some("public");
        let is_first = self.entries.is_empty();
        self.ttl_ms = match (is_first, self.ttl_ms, ttl_ms) {
            (true, _, ttl) => ttl,
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
            let key = edit::member(text, kind.key()).and_then(unescaped);
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

    /// Returns whether it takes no time worth mentioning to read all of it.
    pub(in crate::proxy) fn is_small(&self) -> bool {
        self.n_bytes <= SMALL_BYTES
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

/// The memory of one upstream.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Catalog {
    hellos: Mutex<Vec<Arc<str>>>,
    lists: Mutex<Vec<(ListKey, Arc<MemberList>)>>,
}

impl Catalog {
    /// Remembers an answer to a handshake; equal ones share their memory.
    pub(in crate::proxy) fn hello(&self, result: &str) -> Arc<str> {
        let mut hellos = self.hellos.lock().unwrap_or_else(PoisonError::into_inner);
        let known = hellos.iter().position(|hello| **hello == *result);
        let hello = known.map_or_else(|| Arc::from(result), |at| hellos.remove(at));
        hellos.insert(0, Arc::clone(&hello));
        hellos.truncate(MAX_HELLOS);
        hello
    }

    /// Returns the last answer to a handshake, whoever asked.
    pub(in crate::proxy) fn last_hello(&self) -> Option<Arc<str>> {
        let hellos = self.hellos.lock().unwrap_or_else(PoisonError::into_inner);
        hellos.first().cloned()
    }

    /// Returns the last known list.
    pub(in crate::proxy) fn list(&self, key: &ListKey) -> Option<Arc<MemberList>> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let found = lists.iter().find(|(known, _)| known == key);
        found.map(|(_, list)| Arc::clone(list))
    }

    /// Returns the list that stands for one that is not known under its key: the newest that a client
    /// of the same principal with other capabilities was given, or that the server says is the same
    /// for everybody.
    pub(in crate::proxy) fn similar_list(&self, key: &ListKey) -> Option<Arc<MemberList>> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = || lists.iter().filter(|(known, _)| known.kind == key.kind);
        let found = of_kind()
            .find(|(known, _)| known.principal == key.principal)
            .or_else(|| of_kind().find(|(_, list)| list.is_public));
        found.map(|(_, list)| Arc::clone(list))
    }

    /// Remembers a list. Returns it, or an equal one that is known already.
    pub(in crate::proxy) fn remember(&self, key: ListKey, mut list: MemberList) -> Arc<MemberList> {
        list.set_digest();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let equal = lists.iter().find(|(_, known)| **known == list);
        let list = equal.map_or_else(|| Arc::new(list), |(_, known)| Arc::clone(known));
        lists.retain(|(known, _)| *known != key);
        let mut n_alike = 1;
        lists.retain(|(known, _)| {
            let is_alike = known.kind == key.kind && known.principal == key.principal;
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

/// Returns the bytes of lists, of which equal ones share their memory.
fn n_bytes_of(lists: &[(ListKey, Arc<MemberList>)]) -> usize {
    let mut counted = HashSet::new();
    let lists = lists.iter().map(|(_, list)| list);
    let own = lists.filter(|list| counted.insert(Arc::as_ptr(list)));
    own.map(|list| list.n_bytes).sum()
}

/// Drops the oldest list of the principal whose lists have the most of a measure. Among those who have
/// as much, it is the one that was given a list last.
fn drop_of_largest(
    lists: &mut Vec<(ListKey, Arc<MemberList>)>,
    measure: impl Fn(&MemberList) -> usize,
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

/// Returns a time that the server gives as a number, in whole milliseconds.
pub(in crate::proxy) fn millis(json: &str) -> Option<u64> {
    json.parse().ok().or_else(|| {
        let number: f64 = serde_json::from_str(json).ok()?;
        let whole = Duration::try_from_secs_f64(number / 1_000.0).ok()?;
        u64::try_from(whole.as_millis()).ok()
    })
}

/// Returns a digest of a client's capabilities.
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
        let mut list = MemberList::default();
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
    fn an_odd_member_of_a_page_does_not_cost_the_next_one() {
        for (ttl, expected) in [
            ("5e3", Some(5_000)),
            ("1.5", Some(1)),
            ("-1", None),
            ("{}", None),
        ] {
            let mut list = MemberList::default();
            let page = format!(r#"{{"tools":[{{"name":"a"}}],"nextCursor":"c","ttlMs":{ttl}}}"#);
            assert_eq!(
                list.add_page(ListKind::Tools, &page).as_deref(),
                Some(r#""c""#)
            );
            assert_eq!(list.ttl_ms, expected, "{ttl}");
        }
    }

    #[test]
    fn an_upstream_lists_no_more_than_it_may() {
        let mut list = MemberList::default();
        let entries = vec![r#"{"name":"x"}"#; MAX_ENTRIES + 1].join(",");
        list.add_page(ListKind::Tools, &format!(r#"{{"tools":[{entries}]}}"#));
        assert_eq!(list.entries.len(), MAX_ENTRIES);
    }

    #[test]
    fn an_upstream_lists_no_more_bytes_than_it_may() {
        let mut list = MemberList::default();
        let big = "x".repeat(6 << 20);
        for name in ["a", "b", "c"] {
            let page = format!(r#"{{"tools":[{{"name":"{name}","d":"{big}"}}],"nextCursor":"c"}}"#);
            let next = list.add_page(ListKind::Tools, &page);
            assert_eq!(next.is_none(), name == "c");
        }
        assert_eq!(list.entries.len(), 2);
    }

    #[test]
    fn a_list_of_the_same_principal_or_a_public_one_stands_for_an_unknown_one() {
        let key = |principal: &str, capabilities| ListKey {
            kind: ListKind::Tools,
            principal: Principal::named(principal),
            capabilities: [capabilities; 8],
        };
        let list = |scope: &str| {
            let mut list = MemberList::default();
            let page = format!(r#"{{"tools":[{{"name":"{scope}"}}],"cacheScope":"{scope}"}}"#);
            list.add_page(ListKind::Tools, &page);
            list
        };
        let catalog = Catalog::default();
        let private = catalog.remember(key("ann", 1), list("private"));
        assert_eq!(catalog.similar_list(&key("ann", 2)), Some(private));
        assert_eq!(catalog.similar_list(&key("bob", 1)), None);
        let public = catalog.remember(key("eve", 1), list("public"));
        assert_eq!(catalog.similar_list(&key("bob", 1)), Some(public));
    }

    /// Remembers a list of so many bytes.
    fn remember(catalog: &Catalog, principal: &str, capabilities: u16, n_bytes: usize) {
        let mut list = MemberList::default();
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
            principal: Principal::named(principal),
            capabilities: digest,
        }
    }

    #[test]
    fn who_comes_with_ever_other_capabilities_takes_no_list_of_others() {
        let catalog = Catalog::default();
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
    fn each_of_many_principals_keeps_a_list_as_long_as_there_is_room() {
        let catalog = Catalog::default();
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
    fn who_has_the_largest_lists_makes_room_for_others() {
        let catalog = Catalog::default();
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
    fn equal_hellos_share_their_memory() {
        let catalog = Catalog::default();
        let one = catalog.hello("{}");
        assert!(Arc::ptr_eq(&one, &catalog.hello("{}")));
        assert_eq!(catalog.last_hello(), Some(one));
    }
}
