//! Comparison of configurations key by key, with hashes instead of values: some values are secrets.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use config::{Map, Value, ValueKind};

use super::show::example;

/// The key of the hashes. It is random in each process, so that hashes reveal nothing outside of
/// it.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A hash of each value, by the parts of its key.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueHashes(BTreeMap<Vec<String>, u64>);

impl ValueHashes {
    /// Returns the hashes of these values. Missing keys have their defaults.
    pub(super) fn of(tree: &Map<String, Value>) -> Self {
        let mut leaves = Self::default();
        let mut defaults = example().clone();
        defaults.remove("upstream");
        leaves.add(&[], &defaults);
        leaves.add(&[], tree);
        leaves
    }

    fn add(&mut self, path: &[String], table: &Map<String, Value>) {
        for (part, value) in table {
            let mut path = path.to_vec();
            path.push(part.clone());
            if let ValueKind::Table(inner) = &value.kind {
                self.add(&path, inner);
            } else {
                // Hashed as text, because a number may be an integer, a float or text.
                self.0.insert(path, KEY.hash_one(value.kind.to_string()));
            }
        }
    }

    /// Returns the keys with different values, sorted.
    pub(super) fn differences<'a>(&'a self, other: &'a Self) -> Vec<&'a [String]> {
        let all = self.0.keys().chain(other.0.keys());
        let mut different: Vec<&[String]> = all
            .filter(|key| self.0.get(*key) != other.0.get(*key))
            .map(Vec::as_slice)
            .collect();
        different.sort_unstable();
        different.dedup();
        different
    }
}

#[cfg(test)]
mod tests {
    use config::{FileFormat, Source as _};

    use super::*;

    fn leaves(toml: &str) -> ValueHashes {
        let tree = config::File::from_str(toml, FileFormat::Toml).collect();
        ValueHashes::of(&tree.unwrap())
    }

    #[test]
    fn differing_keys_are_named_individually() {
        let before = leaves("upstreams.\"a.b\".url = 'x'\n[limits]\nsessions = 10000\n");
        assert!(before.differences(&before).is_empty());
        let after = leaves("upstreams.\"a.b\".url = 'y'\nintent.search = 1\nlisten.address = ':1'");
        let different: Vec<String> = (before.differences(&after).into_iter())
            .map(|key| key.join("/"))
            .collect();
        assert_eq!(
            different,
            ["intent/search", "listen/address", "upstreams/a.b/url"]
        );
        assert!(
            leaves("intent.search = 1")
                .differences(&leaves("intent.search = 1.0"))
                .is_empty()
        );
    }
}
