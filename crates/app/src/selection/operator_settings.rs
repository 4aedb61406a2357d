//! The settings of the operator, which may change at any time: the options of lists and the
//! overrides of tools.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::ToolOverride;

use super::config::FilteringConfig;
use super::operator_overrides::OperatorOverrides;
use super::versioned_options::{OptionsByProfile, VersionedOptions};

/// The current options and overrides. Each change makes another revision, with which lists are
/// selected again.
#[derive(Debug)]
pub(super) struct OperatorSettings {
    options: ArcSwap<OptionsByProfile>,
    pub(super) overrides: Arc<OperatorOverrides>,
    /// Counts the changes of the options.
    revision: AtomicU64,
}

/// The options before and after a change.
#[derive(Debug)]
pub(super) struct OptionsChange {
    before: Arc<OptionsByProfile>,
    after: Arc<OptionsByProfile>,
}

impl OptionsChange {
    /// Returns whether the coverage under a profile stayed the same.
    pub(super) fn keeps_coverage(&self, profile: &str) -> bool {
        let coverage = |options: &OptionsByProfile| options.of(Some(profile)).options.coverage;
        (coverage(&self.before).total_cmp(&coverage(&self.after))).is_eq()
    }
}

impl OperatorSettings {
    /// Returns the settings of the start.
    pub(super) fn new(
        options: FilteringConfig,
        profiles: HashMap<String, FilteringConfig>,
        overrides: Arc<OperatorOverrides>,
    ) -> Self {
        Self {
            options: ArcSwap::from_pointee(OptionsByProfile::new(options, profiles)),
            overrides,
            revision: AtomicU64::new(0),
        }
    }

    /// Returns the options under a profile, or the general ones.
    pub(super) fn options(&self, profile: Option<&str>) -> Arc<FilteringConfig> {
        Arc::clone(&self.options.load().of(profile).options)
    }

    /// Returns the options under a profile, with the number of their version.
    pub(super) fn versioned_options(&self, profile: Option<&str>) -> VersionedOptions {
        self.options.load().of(profile).clone()
    }

    /// Replaces the options, in general and under each profile. Returns `None` if all are the same.
    pub(super) fn set_options(
        &self,
        options: FilteringConfig,
        profiles: HashMap<String, FilteringConfig>,
        now: Timestamp,
    ) -> Option<OptionsChange> {
        let before = self.options.load_full();
        let after = Arc::new(before.with_all_options(options, profiles, now)?);
        self.options.store(Arc::clone(&after));
        self.revision.fetch_add(1, Ordering::AcqRel);
        Some(OptionsChange { before, after })
    }

    /// Gives all options another version, without a change.
    pub(super) fn renew_options(&self, now: Timestamp) {
        let renewed = self.options.load().with_new_versions(now);
        self.options.store(Arc::new(renewed));
        self.revision.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn overrides(&self) -> Arc<Vec<ToolOverride>> {
        self.overrides.all()
    }

    /// Returns the revision of options and overrides; it grows with each change.
    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire) + self.overrides.revision()
    }
}
