//! The options of lists that are in use: those of the start, and later changes of the settings.

use riglm_domain::selection::economics::CostModel;
use serde::de::DeserializeOwned;

use super::settings::SharedSettings;
use crate::selection::{CostsConfig, FilteringConfig, Strategy};

/// Reads the strategy and the prices of the section `filtering`, which may change at any time.
#[derive(Clone, Debug)]
pub struct CurrentFiltering {
    initial: FilteringConfig,
    settings: Option<SharedSettings>,
}

impl CurrentFiltering {
    /// Returns a reader of the settings. Without settings, or for a key that they do not have, the
    /// `initial` options of the process apply.
    #[must_use]
    pub fn new(initial: FilteringConfig, settings: Option<SharedSettings>) -> Self {
        Self { initial, settings }
    }

    /// Returns the strategy; [`Strategy::None`] if filtering is disabled.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        let is_enabled = self.value("enabled").unwrap_or(self.initial.enabled);
        if is_enabled {
            self.value("strategy").unwrap_or(self.initial.strategy)
        } else {
            Strategy::None
        }
    }

    /// Returns the prices by which lists are selected and accounted for.
    #[must_use]
    pub fn prices(&self) -> CostModel {
        let costs: CostsConfig = self.value("costs").unwrap_or(self.initial.costs);
        costs.model()
    }

    fn value<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let view = self.settings.as_ref()?.view();
        let value = view.effective.get("filtering")?.get(key)?;
        serde_json::from_value(value.clone()).ok()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use riglm_domain::privacy::principal::Principal;
    use serde_json::{Map, Value, json};

    use super::super::settings::{
        ExpectedView, ReplaceFuture, Settings, SettingsError, SettingsView,
    };
    use super::*;

    /// Settings that a test changes by hand.
    #[derive(Debug, Default)]
    pub(in crate::control) struct EffectiveValues(Mutex<Value>);

    impl EffectiveValues {
        /// Replaces all values.
        pub(in crate::control) fn set(&self, effective: Value) {
            *self.0.lock() = effective;
        }
    }

    impl Settings for EffectiveValues {
        fn view(&self) -> Arc<SettingsView> {
            Arc::new(SettingsView {
                version: 0,
                tuning: Map::new(),
                effective: self.0.lock().clone(),
                tunable: Vec::new(),
                tag: String::new(),
            })
        }

        fn replace<'a>(
            &'a self,
            _: Map<String, Value>,
            _: ExpectedView,
            _: &'a Principal,
        ) -> ReplaceFuture<'a> {
            Box::pin(async { Err(SettingsError::Stale) })
        }
    }

    #[test]
    fn changed_settings_take_precedence_over_those_of_the_start() {
        let settings = Arc::new(EffectiveValues::default());
        let initial = FilteringConfig {
            strategy: Strategy::Denylist,
            ..FilteringConfig::default()
        };
        let filtering = CurrentFiltering::new(initial.clone(), Some(settings.clone()));
        assert_eq!(filtering.strategy(), Strategy::Denylist);
        assert_eq!(filtering.prices(), initial.costs.model());
        settings.set(json!({"filtering": {
            "strategy": "prediction",
            "costs": {"cached_read": 0.5, "search": 900},
            "clients": [],
        }}));
        assert_eq!(filtering.strategy(), Strategy::Prediction);
        let prices = filtering.prices();
        assert_eq!((prices.cached_read, prices.inline_search), (0.5, 900.0));
        settings.set(json!({"filtering": {"enabled": false, "strategy": "prediction"}}));
        assert_eq!(filtering.strategy(), Strategy::None);
        // A value of another form does not hide the others.
        settings.set(json!({"filtering": {"strategy": "allowlist", "costs": "$COSTS"}}));
        assert_eq!(filtering.strategy(), Strategy::Allowlist);
        assert_eq!(filtering.prices(), initial.costs.model());
    }
}
