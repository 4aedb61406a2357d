//! The parts of a running proxy that a reload of the configuration changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use riglm_app::proxy::{Proxy, Upstream};
use riglm_app::selection::{FilteringConfig, Forbidden, ListFilter, Strategy};
use riglm_discovery::intent::Intents;
use riglm_discovery::recommend::Recommender;
use riglm_discovery::search::{SearchChange, ToolSearch};
use riglm_discovery::weight_tuning::WeightSource;
use riglm_domain::prediction::NamePattern;
use riglm_ports::observer::Event;
use tokio::sync::watch;

use super::keys::Keys;
use super::learning::{BuiltPredictor, PredictorRunner, needs_other_predictor};
use super::lists::{choice_from, forbidden_names, profile_options, search_terms, warn_of_profiles};
use super::safeguards::SafeguardsFactory;
use super::search::{model_change, search_change};
use super::telemetry::Telemetry;
use super::unlisted_own_tools;
use super::upstreams::UpstreamFactory;
use crate::config::{Config, Downstream};
use crate::telemetry;

/// The parts of a running proxy that a reload changes.
#[derive(Debug)]
pub(super) struct ReloadTargets {
    pub(super) keys: Arc<Keys>,
    pub(super) proxy: Arc<Proxy>,
    pub(super) upstreams: Arc<UpstreamFactory>,
    pub(super) filter: ListFilter,
    pub(super) forbidden: Arc<Forbidden>,
    pub(super) predictor: Arc<PredictorRunner>,
    pub(super) search: Arc<ToolSearch>,
    pub(super) safeguards: SafeguardsFactory,
    pub(super) intents: Arc<Intents>,
    pub(super) recommender: Option<Arc<Recommender>>,
    pub(super) weights: Arc<WeightSource>,
    pub(super) retention: watch::Sender<Option<Duration>>,
    pub(super) telemetry: Telemetry,
    /// The number of applied configurations.
    pub(super) n_followed: AtomicU64,
}

/// The parts of a proxy that a change of the configuration replaces, built beforehand, because
/// building them can fail.
#[derive(Debug)]
pub(super) struct ChangedParts {
    search: Option<SearchChange>,
    predictor: PredictorChange,
}

/// The change of the predictor.
#[derive(Debug)]
enum PredictorChange {
    /// The predictor stays.
    Unchanged,
    /// Nothing is predicted any more.
    Off,
    /// This predictor is to replace the earlier one.
    New(Box<BuiltPredictor>),
}

impl ReloadTargets {
    /// Builds the parts that differ between two configurations.
    ///
    /// # Errors
    ///
    /// Returns the error of an encoder, a language model or an external predictor that cannot be
    /// used.
    pub(super) fn build_parts(
        &self,
        before: &Config,
        now: &Config,
    ) -> anyhow::Result<ChangedParts> {
        let has_other_predictor = needs_other_predictor(&before.prediction, &now.prediction);
        let predictor = if has_other_predictor {
            let built = self.predictor.build(now)?;
            built.map_or(PredictorChange::Off, |built| {
                PredictorChange::New(Box::new(built))
            })
        } else {
            PredictorChange::Unchanged
        };
        Ok(ChangedParts {
            search: search_change(before, now, &self.telemetry)?,
            predictor,
        })
    }

    /// Applies the changes from one configuration to the next. No step can fail, so either all
    /// changes take effect or none.
    pub(super) fn follow(&self, before: &Config, now: &Config, parts: ChangedParts) {
        if before.logging.level != now.logging.level {
            telemetry::set_level(now.logging.level);
        }
        // Before the keys: a client with a new key must find the connections already shared out.
        expect_principals(&self.proxy, now);
        self.keys.follow(now);
        if before.limits != now.limits {
            self.proxy.set_limits(now.limits.clone());
        }
        if before.intent != now.intent {
            self.intents.set_weights(now.intent);
        }
        if let Some(change) = parts.search {
            self.search.set_config(change);
        }
        match parts.predictor {
            PredictorChange::Unchanged => {}
            PredictorChange::Off => self.predictor.replace(None),
            PredictorChange::New(built) => self.predictor.replace(Some(*built)),
        }
        self.follow_safeguards(before, now);
        if let Some(recommender) = &self.recommender {
            recommender.invalidate_rankings();
        }
        if before.recommend.weights != now.recommend.weights {
            self.weights.set_configured(now.recommend.weights);
        }
        self.retention.send_if_modified(|keep| {
            let asked = now.recording.retention();
            std::mem::replace(keep, asked) != asked
        });
        self.follow_lists(before, now);
        let version = self.n_followed.fetch_add(1, Ordering::Relaxed) + 1;
        let observer = self.telemetry.observer();
        observer.observe(&Event::ConfigChanged { version });
    }

    /// Takes the encoders into use that are available now.
    ///
    /// # Errors
    ///
    /// Returns the error of a part of the search that cannot be used.
    pub(super) fn follow_models(&self, config: &Config) -> anyhow::Result<()> {
        self.search
            .set_config(model_change(config, &self.telemetry)?);
        if let Some(recommender) = &self.recommender {
            recommender.invalidate_rankings();
        }
        Ok(())
    }

    fn follow_lists(&self, before: &Config, now: &Config) {
        if before.paused != now.paused {
            self.proxy.set_pause(now.paused);
        }
        self.forbidden.set_names(forbidden_names(now));
        let is_judged_anew = self.predictor.set_options(&now.prediction);
        if let Some(lists) = self.filter.all_lists() {
            let profiles: HashMap<_, _> = profile_options(now).collect();
            lists.set_options(now.filtering.clone(), profiles);
            if before.search != now.search {
                lists.set_search(search_terms(now));
            } else if is_judged_anew {
                lists.reselect_all();
            }
        }
        self.proxy.set_unlisted_own_tools(unlisted_own_tools(now));
        if way_of(&before.filtering) != way_of(&now.filtering) {
            self.filter.set_choice(choice_from(&now.filtering));
            warn_of_profiles(now);
        }
    }

    fn follow_safeguards(&self, before: &Config, now: &Config) {
        let is_same = before.safeguards == now.safeguards
            && before.profile_safeguards == now.profile_safeguards
            && before.search == now.search;
        if !is_same {
            let earlier = self.proxy.safeguards();
            let safeguards = self.safeguards.rebuild(now, earlier.as_deref());
            self.proxy.set_safeguards(safeguards);
        }
    }

    pub(super) fn replace_upstreams(&self, upstreams: Vec<Upstream>) {
        let names: Vec<&str> = upstreams
            .iter()
            .map(|upstream| upstream.connector.name().as_str())
            .collect();
        tracing::info!(
            "configuration changed: upstreams are now {}",
            names.join(", ")
        );
        self.proxy.replace_upstreams(upstreams);
        let proxy = Arc::clone(&self.proxy);
        tokio::spawn(async move { proxy.recall_upstreams().await });
    }
}

/// Sets the number of principals, which share the connections. Over standard input and output there
/// is one principal, whatever keys are configured.
pub(super) fn expect_principals(proxy: &Proxy, config: &Config) {
    if config.downstream == Downstream::Http {
        proxy.expect_principals(config.keys.n_principals());
    }
}

/// Returns the strategy of lists, and the patterns of the allowlist or denylist.
fn way_of(filtering: &FilteringConfig) -> (Strategy, &[NamePattern]) {
    let strategy = if filtering.enabled {
        filtering.strategy
    } else {
        Strategy::None
    };
    let patterns: &[NamePattern] = match strategy {
        Strategy::None | Strategy::Prediction => &[],
        Strategy::Allowlist => &filtering.allow,
        Strategy::Denylist => &filtering.deny,
    };
    (strategy, patterns)
}
