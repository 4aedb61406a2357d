//! Namespaces: unique names for the tools and prompts of several upstreams that are shown as one
//! server.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::id::{ToolName, UpstreamName};

/// The separator between the name of an upstream and the name of a tool or prompt.
pub const SEPARATOR: &str = "__";
/// The maximum length of a generated name. Providers accept `^[a-zA-Z0-9_-]{1,64}$` and nothing else,
/// and clients put a prefix of their own before it, such as `mcp__riglm__`.
pub const MAX_LEN: usize = 52;
/// The maximum length of the names that earlier versions made.
const EARLIER_MAX_LEN: usize = 64;
/// The number of hexadecimal digits of the hash in a shortened name.
const HASH_LEN: usize = 8;

/// The rule for adding namespaces to names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamespacePolicy {
    /// Every name gets the name of its upstream as a prefix.
    #[default]
    Prefix,
    /// Only names that more than one upstream has get the prefix.
    Collision,
}

/// Returns `{upstream}__{name}`, with at most 52 characters of `[A-Za-z0-9_-]`. Other characters
/// become `_`. A name that is changed or cut by that ends with 8 digits of the SHA-256 of the whole
/// name. The result is the same on every machine.
#[must_use]
pub fn prefixed_name(upstream: &UpstreamName, name: &str) -> String {
    name_within(MAX_LEN, upstream, name)
}

/// Returns the result that [`prefixed_name`] had while names had at most 64 characters. Operators and
/// clients may have kept it.
#[must_use]
pub fn earlier_name(upstream: &UpstreamName, name: &str) -> String {
    name_within(EARLIER_MAX_LEN, upstream, name)
}

fn name_within(max_len: usize, upstream: &UpstreamName, name: &str) -> String {
    let whole = format!("{upstream}{SEPARATOR}{name}");
    if whole.len() <= max_len && whole.bytes().all(is_plain) {
        return whole;
    }
    shorten_with_hash(max_len, &whole, &whole)
}

/// Returns all names by which an operator may refer to a tool, independent of the names that
/// clients see: the name that the upstream gave it, the same with the unchanged name of the
/// upstream as a prefix, and the results of [`prefixed_name`] and [`earlier_name`] if they differ.
#[must_use]
pub fn tool_aliases(upstream: &UpstreamName, own: &ToolName) -> Vec<ToolName> {
    let name = own.as_str();
    let mut named = vec![format!("{upstream}{SEPARATOR}{name}")];
    for made in [prefixed_name(upstream, name), earlier_name(upstream, name)] {
        if !named.contains(&made) {
            named.push(made);
        }
    }
    let named = named.iter().map(|name| ToolName::from(name.as_str()));
    std::iter::once(own.clone()).chain(named).collect()
}

/// Returns the beginning of `whole`, without special characters, followed by the hash of
/// `identity`: `max_len` characters at most.
fn shorten_with_hash(max_len: usize, whole: &str, identity: &str) -> String {
    let digest = Sha256::digest(identity.as_bytes());
    let hash = hex::encode(digest);
    let mut short: String = whole
        .chars()
        .take(max_len - HASH_LEN - 1)
        .map(|c| match u8::try_from(c) {
            Ok(byte) if is_plain(byte) => c,
            _ => '_',
        })
        .collect();
    short.push('_');
    short.push_str(&hash[..HASH_LEN]);
    short
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Returns the shown names of all tools of all upstreams, in the same order. `None` stands for a
/// name that its upstream has twice; the first one is shown.
///
/// No two shown names are equal. If shortening or the choice of an upstream makes two names equal,
/// the later one gets a hash.
#[must_use]
pub fn shown_names(
    naming: NamespacePolicy,
    owned: &[(&UpstreamName, Vec<&str>)],
) -> Vec<Vec<Option<String>>> {
    let mut n_owners: HashMap<&str, usize> = HashMap::new();
    for (_, names) in owned {
        let mut own: Vec<&str> = names.clone();
        // A name that one upstream has twice does not collide with itself.
        own.sort_unstable();
        own.dedup();
        for name in own {
            *n_owners.entry(name).or_default() += 1;
        }
    }
    let mut taken: HashSet<String> = HashSet::new();
    let mut all = Vec::with_capacity(owned.len());
    for (upstream, names) in owned {
        let mut seen: HashSet<&str> = HashSet::new();
        let mut own = Vec::with_capacity(names.len());
        for name in names {
            if !seen.insert(name) {
                own.push(None);
                continue;
            }
            let is_shared = n_owners.get(name).is_some_and(|n| *n > 1);
            let mut new = match naming {
                NamespacePolicy::Collision if !is_shared => (*name).to_owned(),
                NamespacePolicy::Collision | NamespacePolicy::Prefix => {
                    prefixed_name(upstream, name)
                }
            };
            // The salt makes a new hash in each round, since the first hash may be taken too.
            let mut salt = 0_u32;
            while taken.contains(&new) {
                salt += 1;
                let whole = format!("{upstream}{SEPARATOR}{name}");
                new = shorten_with_hash(MAX_LEN, &whole, &format!("{whole}\0{salt}"));
            }
            taken.insert(new.clone());
            own.push(Some(new));
        }
        all.push(own);
    }
    all
}

/// Splits a name that [`prefixed_name`] made without shortening into the upstream and its own name.
#[must_use]
pub fn split_namespace(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}

/// Returns whether a name may have been changed or cut by [`prefixed_name`], or got a hash from
/// [`shown_names`]. Only a list can tell the upstream's name of such a tool.
#[must_use]
pub fn may_be_hashed(name: &str) -> bool {
    name.rsplit_once('_').is_some_and(|(_, hash)| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        hash.len() == HASH_LEN && hash.bytes().all(is_digit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::tool::ToolRef;

    fn upstream(name: &str) -> UpstreamName {
        UpstreamName::parse(name).unwrap()
    }

    fn texts(names: &[Vec<Option<String>>]) -> Vec<Vec<&str>> {
        let text = |name: &Option<String>| name.clone().map_or("-", |name| name.leak());
        names
            .iter()
            .map(|own| own.iter().map(text).collect())
            .collect()
    }

    #[test]
    fn a_short_plain_name_is_only_prefixed() {
        assert_eq!(prefixed_name(&upstream("git"), "log"), "git__log");
        assert_eq!(split_namespace("git__log__x"), Some(("git", "log__x")));
    }

    #[test]
    fn odd_and_long_names_are_shortened_with_a_stable_hash() {
        assert_eq!(prefixed_name(&upstream("a.b"), "x/y"), "a_b__x_y_75ad370b");
        let long = prefixed_name(&upstream("git"), &"x".repeat(100));
        assert_eq!(long.len(), MAX_LEN);
        assert!(may_be_hashed(&long) && may_be_hashed("a_b__x_y_75ad370b"));
        assert!(!may_be_hashed("git__log") && !may_be_hashed("git__log_75AD370B"));
        assert_ne!(long, prefixed_name(&upstream("git"), &"x".repeat(101)));
    }

    #[test]
    fn aliases_of_a_tool_include_its_original_name() {
        let names = |own: &str| -> Vec<String> {
            let names = tool_aliases(&upstream("fs"), &own.into());
            names.iter().map(|name| name.as_str().to_owned()).collect()
        };
        assert_eq!(names("rm"), ["rm", "fs__rm"]);
        assert_eq!(names("fs.rm")[..2], ["fs.rm", "fs__fs.rm"]);
        assert!(may_be_hashed(&names("fs.rm")[2]));
        let long = "x".repeat(100);
        assert_eq!(names(&long)[1], format!("fs__{long}"));
        let lengths: Vec<usize> = names(&long)[2..].iter().map(String::len).collect();
        assert_eq!(lengths, [MAX_LEN, EARLIER_MAX_LEN]);
        // The earlier name was the whole one.
        assert_eq!(names(&"x".repeat(60)).len(), 3);
    }

    #[test]
    fn the_collision_policy_prefixes_only_shared_names() {
        let (a, b) = (upstream("a"), upstream("b"));
        let owned = [(&a, vec!["x", "y"]), (&b, vec!["y", "odd name"])];
        assert_eq!(
            texts(&shown_names(NamespacePolicy::Collision, &owned)),
            [["x", "a__y"], ["b__y", "odd name"]]
        );
    }

    #[test]
    fn a_prefixed_name_with_a_collision_gets_a_hash() {
        let (a, b) = (upstream("a"), upstream("b"));
        let owned = [(&a, vec!["y", "b__y"]), (&b, vec!["y"])];
        let names = shown_names(NamespacePolicy::Collision, &owned);
        assert_eq!(names[0][1].as_deref(), Some("b__y"));
        let third = names[1][0].as_deref().unwrap();
        assert!(third.starts_with("b__y_") && third.len() == 13, "{third}");
    }

    #[test]
    fn a_repeated_name_of_one_upstream_is_left_out() {
        let a = upstream("a");
        assert_eq!(
            texts(&shown_names(
                NamespacePolicy::Prefix,
                &[(&a, vec!["x", "x"])]
            )),
            [["a__x", "-"]]
        );
    }

    proptest! {
        #[test]
        fn a_tool_keeps_the_name_that_earlier_versions_showed(own in "[a-z_./é]{0,80}") {
            let tool = ToolRef { upstream: upstream("fs"), tool: own.as_str().into() };
            let earlier = earlier_name(&tool.upstream, &own);
            prop_assert!(earlier.len() <= EARLIER_MAX_LEN);
            prop_assert!(tool_aliases(&tool.upstream, &tool.tool).contains(&earlier.as_str().into()));
            prop_assert!(tool.is_named(&earlier) && tool.is_shown_as(&earlier));
            let now = prefixed_name(&tool.upstream, &own);
            // Names that fit within the new length are not changed again.
            prop_assert!(now == earlier || earlier.len() > MAX_LEN);
            prop_assert!(tool.is_named(&now) && tool.is_shown_as(&now));
        }

        #[test]
        fn names_are_short_plain_and_unique(
            lists in proptest::collection::vec(proptest::collection::vec(".{0,80}", 0..6), 1..4)
        ) {
            let upstreams: Vec<_> = (0..lists.len()).map(|n| upstream(&format!("u{n}"))).collect();
            let owned: Vec<_> = upstreams
                .iter()
                .zip(&lists)
                .map(|(upstream, list)| (upstream, list.iter().map(String::as_str).collect()))
                .collect();
            let names: Vec<String> =
                shown_names(NamespacePolicy::Prefix, &owned).into_iter().flatten().flatten().collect();
            let mut unique = names.clone();
            unique.sort();
            unique.dedup();
            prop_assert_eq!(unique.len(), names.len());
            for name in names {
                prop_assert!(name.len() <= MAX_LEN && name.bytes().all(is_plain), "{}", name);
            }
        }
    }
}
