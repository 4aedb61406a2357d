//! A loaded configuration, with facts about its keys: their origins, whether they can be tuned, and
//! their differences from the configuration at the start.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::tuning::{TuningKeys, dotted_key, fixed_reason, is_of_file, names_program};
use super::value_hashes::ValueHashes;
use super::{Config, ConfigEntry, TuningDocument};

/// A loaded configuration.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The effective configuration.
    pub config: Config,
    /// The tuning document.
    pub tuning: TuningDocument,
    /// The reason if the tuning document is ignored.
    pub ignored: Option<String>,
    /// Every key in its printable form.
    pub(super) shown: Vec<ConfigEntry>,
    pub(super) leaves: ValueHashes,
    pub(super) keys: TuningKeys,
}

/// A changed key that takes effect only at the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedKey {
    /// The key, with dots.
    pub key: String,
    /// The reason why it cannot change at run time.
    pub why: &'static str,
}

impl LoadedConfig {
    /// Returns whether a key of an upstream is set somewhere and is not a default.
    #[must_use]
    pub fn sets_upstream_key(&self, upstream: &str, key: &str) -> bool {
        let is_it = |shown: &&ConfigEntry| match parts_of(&shown.parts)[..] {
            ["upstream", last] => upstream == "default" && last == key,
            ["upstreams", name, last] => name.eq_ignore_ascii_case(upstream) && last == key,
            _ => false,
        };
        let set = self.shown.iter().find(is_it);
        set.is_some_and(|shown| shown.origin != "default")
    }

    /// Returns the keys of `newer` that differ from this configuration, the one at the start, and
    /// cannot change while the process runs.
    #[must_use]
    pub fn fixed_differences(&self, newer: &Self) -> Vec<FixedKey> {
        // Sections are compared by value first: the same value may be written differently.
        let sections = self.config.differences(&newer.config);
        let different = self.leaves.differences(&newer.leaves);
        let mut fixed = Vec::new();
        for section in sections {
            let n_before = fixed.len();
            let of_section = different.iter().filter(|key| key[0] == section);
            let mut is_tuned = false;
            for key in of_section {
                let parts = parts_of(key);
                if self.keys.has(&parts) || is_of_file(&parts) {
                    is_tuned = true;
                    continue;
                }
                fixed.push(FixedKey {
                    key: dotted_key(&parts),
                    why: fixed_reason(&parts).unwrap_or("it is read at startup"),
                });
            }
            if fixed.len() == n_before && !is_tuned {
                fixed.push(FixedKey {
                    key: section.into(),
                    why: fixed_reason(&[section]).unwrap_or("it is read at startup"),
                });
            }
        }
        fixed
    }

    /// Returns the keys in which `newer` differs from this configuration and that change while riglm
    /// runs, with dots. Upstreams and keys of access are not among them.
    #[must_use]
    pub fn tuned_differences(&self, newer: &Self) -> Vec<String> {
        let different = self.leaves.differences(&newer.leaves).into_iter();
        let different = different.map(parts_of);
        different
            .filter(|parts| self.keys.has(parts) || names_program(parts))
            .map(|parts| dotted_key(&parts))
            .collect()
    }

    /// Returns every effective value, in sections, of a process that started with this
    /// configuration and then loaded `newer`.
    #[must_use]
    pub fn effective_values(&self, newer: &Self) -> Json {
        let follows = |shown: &&ConfigEntry| {
            let parts = parts_of(&shown.parts);
            is_of_file(&parts) || self.keys.has(&parts)
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

    /// Returns the keys that can be tuned in a process that started with this configuration, with
    /// dots. Keys that the environment or the command line sets are not among them.
    #[must_use]
    pub fn tunable(&self) -> Vec<String> {
        let keys = self.keys.all();
        let mut free: Vec<String> = keys
            .iter()
            .map(|key| parts_of(key))
            .filter(|parts| self.higher_origin(parts).is_none())
            .map(|parts| dotted_key(&parts))
            .collect();
        free.sort();
        free
    }

    /// Validates a document: it may set only tuning keys, and none that a higher layer sets.
    ///
    /// # Errors
    ///
    /// Returns the first key that cannot be tuned, and the reason.
    pub fn check_tuning(
        &self,
        document: &serde_json::Map<String, Json>,
    ) -> Result<(), (String, String)> {
        let checked = self.keys.check(document);
        checked.map_err(|refusal| (refusal.key, refusal.reason))?;
        for key in self.keys.all() {
            let parts = parts_of(&key);
            if is_set(document, &parts)
                && let Some(origin) = self.higher_origin(&parts)
            {
                let reason = format!("cannot be tuned, because the {origin} sets it");
                return Err((dotted_key(&parts), reason));
            }
        }
        Ok(())
    }

    /// Returns the environment variable or the command line that sets a key.
    fn higher_origin(&self, parts: &[&str]) -> Option<&str> {
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
