//! The configuration section `filtering`.

use std::time::Duration;

use riglm_domain::id::ProfileName;
use riglm_domain::listing::ListPolicyName;
use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

use super::Strategy;
use super::costs::CostsConfig;

/// The most tools of a list.
const MOST_TOOLS: u32 = 5_000;

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
    /// Whether lists are filtered at all.
    pub enabled: bool,
    /// How tools are chosen.
    pub strategy: Strategy,
    /// The policy of `prediction` for every client that no rule names; without it each has that of
    /// its class.
    #[serde(deserialize_with = "policy", skip_serializing_if = "Option::is_none")]
    pub policy: Option<ListPolicyName>,
    /// The fewest tools that `prediction` leaves in a list that has as many. Without effect in a
    /// cold start.
    #[validate(range(max = 5_000, message = "expected a number from 0 to 5000"))]
    pub min_tools: u32,
    /// The most tools that `prediction` leaves in a list. Without effect in a cold start.
    #[validate(range(min = 1, max = 5_000, message = "expected a number from 1 to 5000"))]
    pub max_tools: u32,
    /// The most tokens that the definitions of a list have; `None` for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_budget: Option<u64>,
    /// How long a list stays as it is that several sessions share.
    #[serde(with = "humantime_serde")]
    pub epoch: Duration,
    /// The share of calls that the policy `conformal` covers.
    pub coverage: f64,
    /// Whether tools that do not say that they only read are hidden from who only reads.
    pub gate_writes: bool,
    /// Whether calls of tools that are hidden so are refused.
    pub enforce: bool,
    /// How like recent calls must be to what the client said that it does; 0 for no matter.
    pub context_shift: f64,
    /// Names of tools that are always shown; `*` stands for any run of characters.
    pub pins: Vec<String>,
    /// Names of tools that are never shown.
    pub bans: Vec<String>,
    /// Names of tools that nobody may call.
    pub forbid: Vec<String>,
    /// Names of the tools that `allowlist` shows.
    pub allow: Vec<String>,
    /// Names of the tools that `denylist` hides.
    pub deny: Vec<String>,
    /// What is known of clients by their names.
    #[validate(nested)]
    pub clients: Vec<ClientRuleConfig>,
    /// Tools that are shown where nothing better is known.
    #[validate(nested)]
    pub pools: Vec<PoolConfig>,
    /// What is assumed of the clients' models.
    #[validate(nested)]
    pub costs: CostsConfig,
}

impl FilteringConfig {
    /// Returns whether lists may be made shorter: not with strategy `none`, nor where filtering is
    /// switched off.
    #[must_use]
    pub fn may_hide(&self) -> bool {
        self.enabled && self.strategy != Strategy::None
    }

    /// Returns whether what is learned decides.
    #[must_use]
    pub fn is_learned(&self) -> bool {
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
            clients: vec![ClientRuleConfig {
                loads_on_demand: Some(true),
                ..ClientRuleConfig::named("claude-code*")
            }],
            pools: Vec::new(),
            costs: CostsConfig::default(),
        }
    }
}

/// What is known of the clients whose name fits a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ClientRuleConfig {
    /// The pattern of the name that a client gives itself; `*` stands for any run of characters.
    #[validate(length(min = 1, message = "expected a pattern of names"))]
    pub name: String,
    /// Their policy.
    #[serde(
        default,
        deserialize_with = "policy",
        skip_serializing_if = "Option::is_none"
    )]
    pub policy: Option<ListPolicyName>,
    /// Whether their model reads prompts from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_cache: Option<bool>,
    /// Whether they load tools on demand and honour the mark of those to be loaded at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loads_on_demand: Option<bool>,
}

impl ClientRuleConfig {
    fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            policy: None,
            prompt_cache: None,
            loads_on_demand: None,
        }
    }
}

/// A default pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Its name.
    #[validate(length(min = 1, message = "expected a name"))]
    pub name: String,
    /// Names of its tools; `*` stands for any run of characters.
    #[validate(length(min = 1, message = "expected at least one name"))]
    pub tools: Vec<String>,
    /// The profile that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileName>,
    /// Words of what is being done that call for it; without any it is always used.
    #[serde(default)]
    pub words: Vec<String>,
}

/// Reads the name of a policy, or `auto` for that of the class.
pub(super) fn policy<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ListPolicyName>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    match name.as_deref() {
        None | Some("auto") => Ok(None),
        Some(name) => name.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

fn refusal(code: &'static str, text: String) -> ValidationError {
    ValidationError::new(code).with_message(text.into())
}

fn check_bounds(config: &FilteringConfig) -> Result<(), ValidationError> {
    if config
        .token_budget
        .is_some_and(|budget| budget > u64::from(u32::MAX))
    {
        let text = format!("token_budget must be a number from 0 to {}", u32::MAX);
        return Err(refusal("token_budget", text));
    }
    if config.min_tools <= config.max_tools || config.max_tools > MOST_TOOLS {
        return Ok(());
    }
    let text = format!(
        "min_tools ({}) must not be greater than max_tools ({})",
        config.min_tools, config.max_tools
    );
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
    if config.coverage >= 0.5 && config.coverage <= 0.999 {
        return Ok(());
    }
    let text = format!(
        "coverage must be a number from 0.5 to 0.999, not {}",
        config.coverage
    );
    Err(refusal("coverage", text))
}

fn check_context_shift(config: &FilteringConfig) -> Result<(), ValidationError> {
    if (0.0..=1.0).contains(&config.context_shift) {
        return Ok(());
    }
    let text = format!(
        "context_shift must be a number from 0 to 1, not {}",
        config.context_shift
    );
    Err(refusal("context_shift", text))
}

/// What is to be refused must be: a key without effect would be taken for a safeguard.
fn check_enforce(config: &FilteringConfig) -> Result<(), ValidationError> {
    if !config.enforce || (config.is_learned() && config.gate_writes) {
        return Ok(());
    }
    let text = "enforce needs strategy = \"prediction\" and gate_writes = true";
    Err(refusal("enforce", text.into()))
}

/// An empty pattern fits no tool: it would forbid nothing.
fn check_forbid(config: &FilteringConfig) -> Result<(), ValidationError> {
    if config.forbid.iter().all(|pattern| !pattern.is_empty()) {
        return Ok(());
    }
    let text =
        "forbid has an empty name; expected names of tools, with * for any run of characters";
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
            error.to_string().contains("there are epoch, append"),
            "{error}"
        );
    }
}
