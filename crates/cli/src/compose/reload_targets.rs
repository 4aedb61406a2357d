//! The parts of a running proxy that a reload of the configuration changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use riglm_app::proxy::{Proxy, Upstream};
use riglm_app::selection::{FilteringConfig, Forbidden, ListChoice, ListFilter, Strategy};
use riglm_discovery::intent::Intents;
use riglm_discovery::learning::NextTools;
use riglm_discovery::recommend::Recommender;
use riglm_discovery::weight_tuning::WeightSource;
use riglm_domain::prediction::NamePattern;
use riglm_ports::observer::{Event, Observer};
use tokio::sync::watch;

use super::keys::Keys;
use super::learning::next_tools_options;
use super::lists::{forbidden_names, list_policy_from, profile_options};
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
    pub(super) next_tools: Option<Arc<NextTools>>,
    pub(super) intents: Option<Arc<Intents>>,
    pub(super) recommender: Option<Arc<Recommender>>,
    pub(super) weights: Arc<WeightSource>,
    pub(super) retention: watch::Sender<Option<Duration>>,
    pub(super) observer: Arc<dyn Observer>,
    /// The number of applied configurations.
    pub(super) n_followed: AtomicU64,
}

impl ReloadTargets {
    /// Applies the changes from one configuration to the next. No step can fail, so either all
    /// changes take effect or none.
    pub(super) fn follow(&self, before: &Config, now: &Config) {
        if before.logging.level != now.logging.level {
            telemetry::set_level(now.logging.level);
        }
        // Before the keys: a client with a new key must find the connections already shared out.
        expect_principals(&self.proxy, now);
        self.keys.follow(now);
        if before.limits != now.limits {
            self.proxy.set_limits(now.limits.clone());
        }
        if let Some(intents) = &self.intents
            && before.intent != now.intent
        {
            intents.set_weights(now.intent);
        }
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
        self.observer.observe(&Event::ConfigChanged { version });
    }

    fn follow_lists(&self, before: &Config, now: &Config) {
        if before.paused != now.paused {
            self.proxy.set_pause(now.paused);
        }
        self.forbidden.set_names(forbidden_names(now));
        let is_judged_anew = (self.next_tools.as_ref())
            .is_some_and(|next| next.set_options(next_tools_options(&now.prediction)));
        if let Some(lists) = self.filter.lists() {
            let profiles: HashMap<_, _> = profile_options(now).collect();
            lists.set_options(now.filtering.clone(), profiles);
            if is_judged_anew {
                lists.reselect_all();
            }
            return;
        }
        if names(&before.filtering) != names(&now.filtering)
            && let Some(policy) = list_policy_from(&now.filtering)
        {
            self.filter.set_choice(ListChoice::Names(policy));
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
    }
}

/// Sets the number of principals, which share the connections. Over standard input and output there
/// is one principal, whatever keys are configured.
pub(super) fn expect_principals(proxy: &Proxy, config: &Config) {
    if config.downstream == Downstream::Http {
        proxy.expect_principals(config.keys.n_principals());
    }
}

/// Returns the name patterns of the allowlist or denylist.
fn names(filtering: &FilteringConfig) -> &[NamePattern] {
    match filtering.strategy {
        Strategy::None | Strategy::Prediction => &[],
        Strategy::Allowlist => &filtering.allow,
        Strategy::Denylist => &filtering.deny,
    }
}
