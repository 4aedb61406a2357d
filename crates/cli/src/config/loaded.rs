//! A configuration as it was loaded, with what tells of its keys: where they come from, which of
//! them can be tuned, and how they differ from those of the start.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::leaves::Leaves;
use super::tuning::{TuningKeys, is_of_keys, is_of_upstreams, joined, why_fixed};
use super::{Config, Shown, TuningDocument};

/// A configuration as it was loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it came to.
    pub config: Config,
    /// What was tuned.
    pub tuning: TuningDocument,
    /// Why what was tuned is left out, where it is.
    pub ignored: Option<String>,
    /// Every key, as people are shown it.
    pub(super) shown: Vec<Shown>,
    pub(super) leaves: Leaves,
    pub(super) keys: TuningKeys,
}

/// A key that changed and cannot take effect before the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedKey {
    /// The key, with dots.
    pub key: String,
    /// Why it cannot.
    pub why: &'static str,
}

impl Loaded {
    /// Returns whether a key of an upstream is set somewhere, rather than a default.
    #[must_use]
    pub fn sets_upstream_key(&self, upstream: &str, key: &str) -> bool {
        let is_it = |shown: &&Shown| match parts_of(&shown.parts)[..] {
            ["upstream", last] => upstream == "default" && last == key,
            ["upstreams", name, last] => name.eq_ignore_ascii_case(upstream) && last == key,
            _ => false,
        };
        let set = self.shown.iter().find(is_it);
        set.is_some_and(|shown| shown.origin != "default")
    }

    /// Returns the keys in which `newer` differs from this configuration, which the process was
    /// started with, and which cannot change while it runs.
    #[must_use]
    pub fn fixed_differences(&self, newer: &Self) -> Vec<FixedKey> {
        // Sections that mean the same are the same, however they are written.
        let sections = self.config.differences(&newer.config);
        let different = self.leaves.differences(&newer.leaves);
        let mut fixed = Vec::new();
        for section in sections {
            let n_before = fixed.len();
            let of_section = different.iter().filter(|key| key[0] == section);
            let mut is_tuned = false;
            for key in of_section {
                let parts = parts_of(key);
                if self.keys.has(&parts) || is_of_keys(&parts) {
                    is_tuned = true;
                    continue;
                }
                fixed.push(FixedKey {
                    key: joined(&parts),
                    why: why_fixed(&parts).unwrap_or("it is read at the start"),
                });
            }
            if fixed.len() == n_before && !is_tuned {
                fixed.push(FixedKey {
                    key: section.into(),
                    why: why_fixed(&[section]).unwrap_or("it is read at the start"),
                });
            }
        }
        fixed
    }

    /// Returns the tuning keys in which `newer` differs from this configuration, with dots.
    #[must_use]
    pub fn tuned_differences(&self, newer: &Self) -> Vec<String> {
        let different = self.leaves.differences(&newer.leaves).into_iter();
        let different = different.map(parts_of);
        different
            .filter(|parts| self.keys.has(parts))
            .map(|parts| joined(&parts))
            .collect()
    }

    /// Returns every key as it is in use, in its sections, where the process was started with this
    /// configuration and follows `newer` as far as it can.
    #[must_use]
    pub fn in_use(&self, newer: &Self) -> Json {
        let follows = |shown: &&Shown| {
            let parts = parts_of(&shown.parts);
            is_of_upstreams(&parts) || is_of_keys(&parts) || self.keys.has(&parts)
        };
        let still = self.shown.iter().filter(|shown| !follows(shown));
        let all: BTreeMap<&[String], &Json> = still
            .chain(newer.shown.iter().filter(follows))
            .map(|shown| (shown.parts.as_slice(), &shown.value))
            .collect();
        let mut sections = serde_json::Map::new();
        for (parts, value) in all {
            insert(&mut sections, parts, value);
        }
        Json::Object(sections)
    }

    /// Returns the keys that can be tuned in a process that was started with this configuration, with
    /// dots: those that neither the environment nor the command line sets.
    #[must_use]
    pub fn tunable(&self) -> Vec<String> {
        let keys = self.keys.all();
        let mut free: Vec<String> = keys
            .iter()
            .map(|key| parts_of(key))
            .filter(|parts| self.set_above(parts).is_none())
            .map(|parts| joined(&parts))
            .collect();
        free.sort();
        free
    }

    /// Checks that a document sets tuning keys alone, and none that is set above it.
    ///
    /// # Errors
    ///
    /// Returns the first key that cannot be tuned, and why.
    pub fn check_tuning(
        &self,
        document: &serde_json::Map<String, Json>,
    ) -> Result<(), (String, String)> {
        let checked = self.keys.check(document);
        checked.map_err(|refusal| (refusal.key, refusal.reason))?;
        for key in self.keys.all() {
            let parts = parts_of(&key);
            if is_set(document, &parts)
                && let Some(origin) = self.set_above(&parts)
            {
                let reason = format!("cannot be tuned, since it is set by the {origin}");
                return Err((joined(&parts), reason));
            }
        }
        Ok(())
    }

    /// Returns the environment variable or the command line that sets a key.
    fn set_above(&self, parts: &[&str]) -> Option<&str> {
        let shown = self
            .shown
            .iter()
            .find(|shown| parts_of(&shown.parts) == parts)?;
        shown.is_set_above_tuning().then_some(&*shown.origin)
    }
}

fn parts_of(key: &[String]) -> Vec<&str> {
    key.iter().map(String::as_str).collect()
}

fn is_set(table: &serde_json::Map<String, Json>, parts: &[&str]) -> bool {
    let Some((first, rest)) = parts.split_first() else {
        return true;
    };
    match table.get(*first) {
        None => false,
        Some(Json::Object(inner)) if !rest.is_empty() => is_set(inner, rest),
        Some(_) => rest.is_empty(),
    }
}

fn insert(table: &mut serde_json::Map<String, Json>, parts: &[String], value: &Json) {
    let Some((first, rest)) = parts.split_first() else {
        return;
    };
    if rest.is_empty() {
        table.insert(first.clone(), value.clone());
        return;
    }
    let section = table.entry(first.clone());
    let section = section.or_insert_with(|| Json::Object(serde_json::Map::new()));
    if let Json::Object(inner) = section {
        insert(inner, rest, value);
    }
}

#[cfg(test)]
mod tests;
