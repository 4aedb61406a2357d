//! How lists are chosen, as the operator wants it.

use std::time::Duration;

use riglm_domain::listing::{ClientClass, ListBounds, ListPolicyName, ListPrices, PromptCache};
use riglm_domain::prediction::NamePattern;

/// What the operator wants of lists.
#[derive(Clone, Debug, PartialEq)]
pub struct ListOptions {
    /// The policy of clients that no rule names; `None` for the one of their class.
    pub policy: Option<ListPolicyName>,
    /// How long lists may be.
    pub bounds: ListBounds,
    /// What they are chosen by.
    pub prices: ListPrices,
    /// The share of the calls that the policy `conformal` covers, above 0 and below 1.
    pub coverage: f64,
    /// How long an epoch lasts that several sessions share.
    pub epoch: Duration,
    /// Tools that are always shown, by their own name or the one that clients see.
    pub pins: Vec<NamePattern>,
    /// Tools that are never shown.
    pub bans: Vec<NamePattern>,
    /// What the policy `allowlist` shows.
    pub allow: Vec<NamePattern>,
    /// What the policy `denylist` hides.
    pub deny: Vec<NamePattern>,
    /// Whether tools that are not known to be read-only are hidden from who only reads.
    pub gate_writes: bool,
    /// Whether their calls are refused, too.
    pub enforce: bool,
    /// How like recent calls are to what the client said that it does, at least, so that it counts as
    /// what it does: from 0 to 1, 0 for always.
    pub context_shift: f64,
    /// What is known of clients by their name; the first that fits counts.
    pub clients: Vec<ClientRule>,
    /// The default pools.
    pub pools: Vec<Pool>,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self {
            policy: None,
            bounds: ListBounds::default(),
            prices: ListPrices::default(),
            coverage: 0.95,
            epoch: Duration::from_hours(24),
            pins: Vec::new(),
            bans: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            gate_writes: false,
            enforce: false,
            context_shift: 0.0,
            clients: Vec::new(),
            pools: Vec::new(),
        }
    }
}

/// What is known of the clients whose name fits a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// The pattern of the name that a client gives itself.
    pub name: NamePattern,
    /// Their policy, if the operator chose one.
    pub policy: Option<ListPolicyName>,
    /// Whether their model reads prompts from a cache, if that is known.
    pub prompt_cache: Option<bool>,
    /// Whether they load tools on demand, if that is known.
    pub loads_on_demand: Option<bool>,
}

impl ClientRule {
    /// Adds what the rule knows to what is known of a client.
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

/// Tools that are shown where nothing better is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The patterns of its tools.
    pub tools: Vec<NamePattern>,
    /// The profile that it is for; `None` for all.
    pub profile: Option<String>,
    /// Words of what is being done that call for it; without any it is always used.
    pub words: Vec<String>,
}
