//! The configuration section `filtering`.

mod costs;
mod profiles;
mod strategy;

use std::time::Duration;

use riglm_domain::id::ProfileName;
use riglm_domain::num::check_share;
use riglm_domain::prediction::NamePattern;
use riglm_domain::selection::{
    ClientClass, ExplorationShare, ListBounds, ListPolicyName, ListPrices, PromptCache,
};
use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

pub use costs::CostsConfig;
pub use profiles::{PolicyChoice, ProfileConfig, ProfileFilteringConfig};
pub use strategy::Strategy;

/// Upper bound of the list size.
const MOST_TOOLS: usize = 5_000;

/// The configuration section `filtering`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(
    schema(function = "check_bounds"),
    schema(function = "check_patterns"),
    schema(function = "check_epoch"),
    schema(function = "check_coverage"),
    schema(function = "check_context_shift"),
    schema(function = "check_enforce"),
    schema(function = "check_forbid")
)]
pub struct FilteringConfig {
    /// Whether lists are filtered.
    pub enabled: bool,
    /// Strategy for the selection of lists.
    pub strategy: Strategy,
    /// The list policy of `prediction` for every client without a rule. Without it, the policy
    /// depends on the class of the client.
    #[serde(deserialize_with = "policy", skip_serializing_if = "Option::is_none")]
    pub policy: Option<ListPolicyName>,
    /// Minimum list size with `prediction`, if the catalog has as many tools. No effect at a cold
    /// start.
    #[validate(range(max = 5_000, message = "expected a number from 0 to 5000"))]
    pub min_tools: usize,
    /// Maximum list size with `prediction`. No effect at a cold start.
    #[validate(range(min = 1, max = 5_000, message = "expected a number from 1 to 5000"))]
    pub max_tools: usize,
    /// Maximum number of tokens of the definitions in a list, or `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_budget: Option<u64>,
    /// Length of an epoch, during which a list that sessions share does not change.
    #[serde(with = "humantime_serde")]
    pub epoch: Duration,
    /// The fraction of calls that the policy `conformal` covers.
    pub coverage: f64,
    /// Whether write gating is on: tools without a read-only hint are hidden from sessions that
    /// only read.
    pub gate_writes: bool,
    /// Whether calls of tools that write gating hides are refused.
    pub enforce: bool,
    /// Minimum similarity between recent calls and the stated context, 0 to 1. Below it, lists are
    /// chosen by the recent calls. 0 turns this off.
    pub context_shift: f64,
    /// Patterns of tools that are always shown. `*` matches any characters.
    pub pins: Vec<NamePattern>,
    /// Patterns of tools that are never shown.
    pub bans: Vec<NamePattern>,
    /// Patterns of tools that must not be called.
    pub forbid: Vec<NamePattern>,
    /// Patterns of the tools that `allowlist` shows.
    pub allow: Vec<NamePattern>,
    /// Patterns of the tools that `denylist` hides.
    pub deny: Vec<NamePattern>,
    /// Rules for clients by name.
    #[validate(nested)]
    pub clients: Vec<ClientRule>,
    /// Fallback tools, shown if no better prediction is available.
    #[validate(nested)]
    pub pools: Vec<Pool>,
    /// Cost model of the clients' language models.
    #[validate(nested)]
    pub costs: CostsConfig,
    /// Exploration of list sizes.
    #[validate(nested)]
    pub exploration: ExplorationConfig,
}

impl FilteringConfig {
    /// Returns whether lists may be shortened. That is not the case with strategy `none`, and with
    /// filtering disabled.
    #[must_use]
    pub fn may_hide(&self) -> bool {
        self.enabled && self.strategy != Strategy::None
    }

    /// Returns whether lists are selected in the same way. Forbidden tools are left out of every list
    /// and refused; they have no part in the selection.
    pub(super) fn selects_like(&self, other: &Self) -> bool {
        let without_forbidden = |section: &Self| Self {
            forbid: Vec::new(),
            ..section.clone()
        };
        without_forbidden(self) == without_forbidden(other)
    }

    /// Returns the limits of the list size.
    #[must_use]
    pub fn bounds(&self) -> ListBounds {
        ListBounds {
            min_tools: self.min_tools,
            max_tools: self.max_tools,
            token_budget: self.token_budget,
        }
    }

    /// Returns the prices that the list size is computed from, with search answers of this size.
    #[must_use]
    pub fn prices(&self, answer: SearchAnswerSize) -> ListPrices {
        ListPrices {
            n_inline: answer.n_tools,
            answer_tokens: answer.tokens,
            ..self.costs.prices()
        }
    }

    /// Returns whether lists are selected by predictions.
    #[must_use]
    pub fn uses_predictions(&self) -> bool {
        self.enabled && self.strategy == Strategy::Prediction
    }
}

impl Default for FilteringConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            strategy: Strategy::None,
            policy: None,
            min_tools: 5,
            max_tools: 20,
            token_budget: None,
            epoch: Duration::from_hours(24),
            coverage: 0.95,
            gate_writes: false,
            enforce: false,
            context_shift: 0.0,
            pins: Vec::new(),
            bans: Vec::new(),
            forbid: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            // Claude Code is known to load tools on demand.
            clients: vec![ClientRule {
                name: NamePattern::new("claude-code*"),
                policy: None,
                prompt_cache: None,
                loads_on_demand: Some(true),
            }],
            pools: Vec::new(),
            costs: CostsConfig::default(),
            exploration: ExplorationConfig::default(),
        }
    }
}

/// The size of the answer of a search, on which the price of a hidden tool depends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchAnswerSize {
    /// The number of tools with a definition in an answer: a found one and the predicted ones.
    pub n_tools: u32,
    /// The maximum number of tokens.
    pub tokens: f64,
}

impl Default for SearchAnswerSize {
    fn default() -> Self {
        let prices = ListPrices::default();
        Self {
            n_tools: prices.n_inline,
            tokens: prices.answer_tokens,
        }
    }
}

/// The configuration section `filtering.exploration`: lists whose size is drawn at random, so that
/// the costs of sizes can be compared without bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ExplorationConfig {
    /// Share of the lists with a random size, 0 to 1. 0 turns exploration off.
    #[validate(custom(function = "check_share"))]
    pub share: f64,
    /// Seed of the draws. Equal seeds have the same draws for the same lists. Without one, each run
    /// has other draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl ExplorationConfig {
    /// Returns the share of the lists with a random size; 0 for an invalid one.
    #[must_use]
    pub fn share(&self) -> ExplorationShare {
        ExplorationShare::try_from(self.share).unwrap_or_default()
    }
}

/// A rule for clients whose name matches a pattern; the first match applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ClientRule {
    /// Pattern of the name that a client gives itself. `*` matches any characters.
    #[validate(custom(function = "check_client_name"))]
    pub name: NamePattern,
    /// Their list policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "policy")]
    pub policy: Option<ListPolicyName>,
    /// Whether their model has a prompt cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_cache: Option<bool>,
    /// Whether they load tools on demand, and honour the mark of tools to load at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loads_on_demand: Option<bool>,
}

impl ClientRule {
    /// Overrides the properties of a client that the rule sets.
    pub(super) fn refine(&self, class: &mut ClientClass) {
        if let Some(loads_on_demand) = self.loads_on_demand {
            class.loads_on_demand = loads_on_demand;
        }
        if let Some(has_cache) = self.prompt_cache {
            class.prompt_cache = if has_cache {
                PromptCache::Assumed
            } else {
                PromptCache::None
            };
        }
    }
}

/// A default pool: tools that are shown when nothing better is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Name of the pool.
    #[validate(length(min = 1, message = "expected a name"))]
    pub name: String,
    /// Patterns of its tools. `*` matches any characters.
    #[validate(length(min = 1, message = "expected at least one name"))]
    pub tools: Vec<NamePattern>,
    /// The profile to which the pool is restricted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileName>,
    /// Words of the task that select the pool. Without words, it is always used.
    #[serde(default)]
    pub words: Vec<String>,
}

/// Reads the name of a policy. `auto` stands for the policy of the client's class.
pub(super) fn policy<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ListPolicyName>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    match name.as_deref() {
        None | Some("auto") => Ok(None),
        Some(name) => name.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

fn check_client_name(name: &NamePattern) -> Result<(), ValidationError> {
    if !name.as_str().is_empty() {
        return Ok(());
    }
    Err(refusal("length", "expected a pattern of names".into()))
}

fn refusal(code: &'static str, text: String) -> ValidationError {
    ValidationError::new(code).with_message(text.into())
}

fn check_bounds(config: &FilteringConfig) -> Result<(), ValidationError> {
    if config.token_budget > Some(u64::from(u32::MAX)) {
        let text = format!("token_budget must be a number from 0 to {}", u32::MAX);
        return Err(refusal("token_budget", text));
    }
    let (min_tools, max_tools) = (config.min_tools, config.max_tools);
    if min_tools <= max_tools || max_tools > MOST_TOOLS {
        return Ok(());
    }
    let text = format!("min_tools ({min_tools}) must not be greater than max_tools ({max_tools})");
    Err(refusal("min_tools", text))
}

fn check_patterns(config: &FilteringConfig) -> Result<(), ValidationError> {
    if !config.enabled {
        return Ok(());
    }
    let policies = config.clients.iter().filter_map(|client| client.policy);
    let policies: Vec<ListPolicyName> = policies.chain(config.policy).collect();
    let is_learned = config.strategy == Strategy::Prediction;
    let is_used = |strategy, policy| {
        config.strategy == strategy || (is_learned && policies.contains(&policy))
    };
    let needs_allow = is_used(Strategy::Allowlist, ListPolicyName::Allowlist);
    let needs_deny = is_used(Strategy::Denylist, ListPolicyName::Denylist);
    let key = if needs_allow && config.allow.is_empty() {
        "allow"
    } else if needs_deny && config.deny.is_empty() {
        "deny"
    } else {
        return Ok(());
    };
    let text = format!("this strategy needs at least one pattern in {key}");
    Err(refusal("patterns", text))
}

fn check_epoch(config: &FilteringConfig) -> Result<(), ValidationError> {
    if config.epoch >= Duration::from_secs(1) && config.epoch <= Duration::from_hours(24 * 366) {
        return Ok(());
    }
    Err(refusal("epoch", "epoch must be from 1s to 366days".into()))
}

fn check_coverage(config: &FilteringConfig) -> Result<(), ValidationError> {
    let coverage = config.coverage;
    if (0.5..=0.999).contains(&coverage) {
        return Ok(());
    }
    let text = format!("coverage must be a number from 0.5 to 0.999, not {coverage}");
    Err(refusal("coverage", text))
}

fn check_context_shift(config: &FilteringConfig) -> Result<(), ValidationError> {
    let context_shift = config.context_shift;
    if (0.0..=1.0).contains(&context_shift) {
        return Ok(());
    }
    let text = format!("context_shift must be a number from 0 to 1, not {context_shift}");
    Err(refusal("context_shift", text))
}

// Without the other settings, `enforce` would have no effect, but be taken for a safeguard.
fn check_enforce(config: &FilteringConfig) -> Result<(), ValidationError> {
    if !config.enforce || (config.uses_predictions() && config.gate_writes) {
        return Ok(());
    }
    let text = "enforce needs strategy = \"prediction\" and gate_writes = true";
    Err(refusal("enforce", text.into()))
}

// An empty pattern matches no tool, so it would forbid nothing.
fn check_forbid(config: &FilteringConfig) -> Result<(), ValidationError> {
    let is_named = |pattern: &NamePattern| !pattern.as_str().is_empty();
    if config.forbid.iter().all(is_named) {
        return Ok(());
    }
    let text = "forbid has an empty name; expected names of tools, with * for any characters";
    Err(refusal("forbid", text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> FilteringConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn bounds_and_patterns_are_checked() {
        let refusal = |json: &str| config(json).validate().unwrap_err().to_string();
        for sound in [
            "{}",
            r#"{"min_tools":20,"max_tools":20}"#,
            r#"{"strategy":"denylist","enabled":false}"#,
            r#"{"policy":"auto"}"#,
            r#"{"strategy":"prediction","policy":"denylist","deny":["x"]}"#,
            r#"{"context_shift":0.0}"#,
            r#"{"context_shift":1.0}"#,
            r#"{"strategy":"prediction","gate_writes":true,"enforce":true}"#,
        ] {
            assert!(config(sound).validate().is_ok(), "{sound}");
        }
        for (json, expected) in [
            (
                r#"{"min_tools":21,"max_tools":20}"#,
                "min_tools (21) must not be greater than max_tools (20)",
            ),
            (r#"{"max_tools":0,"min_tools":0}"#, "from 1 to 5000"),
            (
                r#"{"strategy":"allowlist"}"#,
                "at least one pattern in allow",
            ),
            (
                r#"{"strategy":"prediction","policy":"denylist"}"#,
                "at least one pattern in deny",
            ),
            (
                r#"{"strategy":"prediction","clients":[{"name":"x","policy":"denylist"}]}"#,
                "at least one pattern in deny",
            ),
            (r#"{"coverage":1.0}"#, "coverage must be"),
            (r#"{"epoch":"0s"}"#, "epoch must be"),
            (r#"{"context_shift":1.01}"#, "context_shift must be"),
            (r#"{"context_shift":-0.01}"#, "context_shift must be"),
            (r#"{"gate_writes":true,"enforce":true}"#, "enforce needs"),
            (
                r#"{"strategy":"prediction","enforce":true}"#,
                "enforce needs",
            ),
            (r#"{"forbid":["rm",""]}"#, "forbid has an empty name"),
            (r#"{"token_budget":5000000000}"#, "token_budget must be"),
            (r#"{"costs":{"cached_read":-1}}"#, "cached_read must be"),
            (
                r#"{"pools":[{"name":"","tools":["x"]}]}"#,
                "expected a name",
            ),
            (
                r#"{"pools":[{"name":"p","tools":[]}]}"#,
                "at least one name",
            ),
        ] {
            let refusal = refusal(json);
            assert!(refusal.contains(expected), "{json}: {refusal}");
        }
    }

    #[test]
    fn the_name_of_a_policy_is_read() {
        assert_eq!(config("{}").policy, None);
        let append = config(r#"{"policy":"append"}"#).policy;
        assert_eq!(append, Some(ListPolicyName::Append));
        let error = serde_json::from_str::<FilteringConfig>(r#"{"policy":"often"}"#).unwrap_err();
        assert!(
            error.to_string().contains("expected epoch, append"),
            "{error}"
        );
    }

    #[test]
    fn a_share_is_a_number_from_zero_to_one() {
        let read = |json: &str| serde_json::from_str::<ExplorationConfig>(json).unwrap();
        assert!(read("{}").share().is_off());
        let config = read(r#"{"share":0.25,"seed":18446744073709551615}"#);
        assert!(config.validate().is_ok() && (config.share().get() - 0.25).abs() < 1e-12);
        assert_eq!(config.seed, Some(u64::MAX));
        for json in [r#"{"share":1.01}"#, r#"{"share":-0.1}"#] {
            let error = read(json).validate().unwrap_err().to_string();
            assert!(error.contains("expected a number from 0 to 1"), "{error}");
            assert!(read(json).share().is_off());
        }
        assert!(serde_json::from_str::<ExplorationConfig>(r#"{"seed":-1}"#).is_err());
    }
}
