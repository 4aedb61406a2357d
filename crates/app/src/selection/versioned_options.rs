//! The list options of the operator, with a version number for each profile. Unchanged options must
//! keep their epochs; changed options make lists be selected again.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::config::FilteringConfig;

/// Options with the number of their version.
#[derive(Clone, Debug)]
pub(super) struct VersionedOptions {
    pub(super) options: Arc<FilteringConfig>,
    /// Counts the changes of the options.
    pub(super) number: u64,
    /// Time of the last change; `None` for the options of the start.
    pub(super) changed_at: Option<Timestamp>,
}

impl VersionedOptions {
    fn new(options: FilteringConfig) -> Self {
        Self {
            options: Arc::new(options),
            number: 0,
            changed_at: None,
        }
    }

    fn next_version(&self, now: Timestamp) -> Self {
        Self {
            options: Arc::clone(&self.options),
            number: self.number.wrapping_add(1),
            changed_at: Some(now),
        }
    }

    fn with_options(&self, options: FilteringConfig, now: Timestamp) -> Self {
        // Equal options keep their number, so that a reload without changes keeps all lists.
        if self.options.selects_like(&options) {
            return self.clone();
        }
        Self {
            options: Arc::new(options),
            ..self.next_version(now)
        }
    }
}

/// The options of all clients, in general and by profile.
#[derive(Clone, Debug)]
pub(super) struct OptionsByProfile {
    general: VersionedOptions,
    profiles: HashMap<String, VersionedOptions>,
}

impl OptionsByProfile {
    /// Creates the options of the start.
    pub(super) fn new(
        options: FilteringConfig,
        profiles: HashMap<String, FilteringConfig>,
    ) -> Self {
        let profiles = profiles.into_iter();
        Self {
            general: VersionedOptions::new(options),
            profiles: profiles
                .map(|(name, options)| (name, VersionedOptions::new(options)))
                .collect(),
        }
    }

    /// Returns the options under a profile, or the general ones.
    pub(super) fn of(&self, profile: Option<&str>) -> &VersionedOptions {
        let of_profile = profile.and_then(|profile| self.profiles.get(profile));
        of_profile.unwrap_or(&self.general)
    }

    /// Returns a copy with new options; `None` if nothing changed. A profile that is missing in
    /// `profiles` keeps its options. New profiles are ignored.
    pub(super) fn with_all_options(
        &self,
        options: FilteringConfig,
        mut profiles: HashMap<String, FilteringConfig>,
        now: Timestamp,
    ) -> Option<Self> {
        let mut replaced = |name: &String, known: &VersionedOptions| match profiles.remove(name) {
            Some(options) => known.with_options(options, now),
            None => known.clone(),
        };
        let wanted = Self {
            general: self.general.with_options(options, now),
            profiles: (self.profiles.iter())
                .map(|(name, known)| (name.clone(), replaced(name, known)))
                .collect(),
        };
        let is_same = wanted.general.number == self.general.number
            && (wanted.profiles.iter()).all(|(name, one)| {
                self.profiles.get(name).map(|one| one.number) == Some(one.number)
            });
        (!is_same).then_some(wanted)
    }

    /// Returns the same options under new version numbers, so that lists are selected again.
    pub(super) fn with_new_versions(&self, now: Timestamp) -> Self {
        Self {
            general: self.general.next_version(now),
            profiles: (self.profiles.iter())
                .map(|(name, known)| (name.clone(), known.next_version(now)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::prediction::NamePattern;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn options(coverage: f64) -> FilteringConfig {
        FilteringConfig {
            coverage,
            ..FilteringConfig::default()
        }
    }

    fn profiles(of_a: f64) -> HashMap<String, FilteringConfig> {
        HashMap::from([("a".into(), options(of_a)), ("b".into(), options(0.7))])
    }

    #[test]
    fn only_changed_options_get_a_new_version() {
        let wanted = OptionsByProfile::new(options(0.9), profiles(0.8));
        assert!(
            wanted
                .with_all_options(options(0.9), profiles(0.8), NOW)
                .is_none()
        );
        let other = wanted
            .with_all_options(options(0.9), profiles(0.6), NOW)
            .unwrap();
        let numbers = |wanted: &OptionsByProfile| {
            [None, Some("a"), Some("b"), Some("unknown")]
                .map(|profile| (wanted.of(profile).number, wanted.of(profile).changed_at))
        };
        let same = (0, None);
        assert_eq!(numbers(&other), [same, (1, Some(NOW)), same, same]);
        assert!((other.of(Some("a")).options.coverage - 0.6).abs() < 1e-12);
        let all = (1, Some(NOW));
        assert_eq!(numbers(&wanted.with_new_versions(NOW)), [all; 4]);
        let forbidding = FilteringConfig {
            forbid: vec![NamePattern::new("rm")],
            ..options(0.9)
        };
        let same = wanted.with_all_options(forbidding, profiles(0.8), NOW);
        assert!(
            same.is_none(),
            "forbidden tools do not change the selection"
        );
    }

    #[test]
    fn options_of_unknown_profiles_are_the_general_ones() {
        let wanted = OptionsByProfile::new(options(0.9), profiles(0.8));
        let others = HashMap::from([("new".into(), options(0.5))]);
        let other = wanted.with_all_options(options(0.6), others, NOW).unwrap();
        assert_eq!(other.of(Some("a")).number, 0);
        assert_eq!(other.of(Some("new")).number, other.of(None).number);
    }
}
