//! What the operator wants of lists at a time, and what of it changed: options that stay as they
//! are must leave epochs alone, others have them chosen anew.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::options::ListOptions;

/// Options, with what tells them from those before.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    /// The options.
    pub(super) options: Arc<ListOptions>,
    /// Counts what they were.
    pub(super) number: u64,
    /// When they became what they are; `None` for those of the start.
    pub(super) changed_at: Option<Timestamp>,
}

impl Numbered {
    fn new(options: ListOptions) -> Self {
        Self {
            options: Arc::new(options),
            number: 0,
            changed_at: None,
        }
    }

    fn at(&self, now: Timestamp) -> Self {
        Self {
            options: Arc::clone(&self.options),
            number: self.number.wrapping_add(1),
            changed_at: Some(now),
        }
    }

    fn replaced(&self, options: ListOptions, now: Timestamp) -> Self {
        if *self.options == options {
            return self.clone();
        }
        Self {
            options: Arc::new(options),
            ..self.at(now)
        }
    }
}

/// The options of all clients.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    general: Numbered,
    profiles: HashMap<String, Numbered>,
}

impl Wanted {
    /// Returns the options of the start.
    pub(super) fn new(options: ListOptions, profiles: HashMap<String, ListOptions>) -> Self {
        let profiles = profiles.into_iter();
        Self {
            general: Numbered::new(options),
            profiles: profiles
                .map(|(name, options)| (name, Numbered::new(options)))
                .collect(),
        }
    }

    /// Returns the options under a profile, or those of everybody else.
    pub(super) fn of(&self, profile: Option<&str>) -> &Numbered {
        let of_profile = profile.and_then(|profile| self.profiles.get(profile));
        of_profile.unwrap_or(&self.general)
    }

    /// Returns the options with these in their place; `None` where they are the same. A profile that
    /// is not among `profiles` keeps its options, and there are no new ones.
    pub(super) fn replaced(
        &self,
        options: ListOptions,
        mut profiles: HashMap<String, ListOptions>,
        now: Timestamp,
    ) -> Option<Self> {
        let mut replaced = |name: &String, known: &Numbered| match profiles.remove(name) {
            Some(options) => known.replaced(options, now),
            None => known.clone(),
        };
        let wanted = Self {
            general: self.general.replaced(options, now),
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

    /// Returns the same options as others, so that lists are chosen anew.
    pub(super) fn renewed(&self, now: Timestamp) -> Self {
        Self {
            general: self.general.at(now),
            profiles: (self.profiles.iter())
                .map(|(name, known)| (name.clone(), known.at(now)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn options(coverage: f64) -> ListOptions {
        ListOptions {
            coverage,
            ..ListOptions::default()
        }
    }

    fn profiles(of_a: f64) -> HashMap<String, ListOptions> {
        HashMap::from([("a".into(), options(of_a)), ("b".into(), options(0.7))])
    }

    #[test]
    fn only_what_changed_gets_another_number() {
        let wanted = Wanted::new(options(0.9), profiles(0.8));
        assert!(wanted.replaced(options(0.9), profiles(0.8), NOW).is_none());
        let other = wanted.replaced(options(0.9), profiles(0.6), NOW).unwrap();
        let numbers = |wanted: &Wanted| {
            [None, Some("a"), Some("b"), Some("unknown")]
                .map(|profile| (wanted.of(profile).number, wanted.of(profile).changed_at))
        };
        let same = (0, None);
        assert_eq!(numbers(&other), [same, (1, Some(NOW)), same, same]);
        assert!((other.of(Some("a")).options.coverage - 0.6).abs() < 1e-12);
        let all = (1, Some(NOW));
        assert_eq!(numbers(&wanted.renewed(NOW)), [all; 4]);
    }

    #[test]
    fn profiles_neither_come_nor_go() {
        let wanted = Wanted::new(options(0.9), profiles(0.8));
        let others = HashMap::from([("new".into(), options(0.5))]);
        let other = wanted.replaced(options(0.6), others, NOW).unwrap();
        assert_eq!(other.of(Some("a")).number, 0);
        assert_eq!(other.of(Some("new")).number, other.of(None).number);
    }
}
