//! Options of the operator for the selection of lists.

use std::time::Duration;

use riglm_domain::prediction::NamePattern;
use riglm_domain::selection::{ClientClass, ListBounds, ListPolicyName, ListPrices, PromptCache};

/// The options of lists.
#[derive(Clone, Debug, PartialEq)]
pub struct ListOptions {
    /// The policy of clients without a rule; `None` for the policy of their class.
    pub policy: Option<ListPolicyName>,
    /// The limits of the list size.
    pub bounds: ListBounds,
    /// The costs that the list size is computed from.
    pub prices: ListPrices,
    /// The share of the calls that the policy `conformal` covers, above 0 and below 1.
    pub coverage: f64,
    /// Duration of an epoch of a shared list.
    pub epoch: Duration,
    /// Tools that are always shown, by their own name or their name in lists.
    pub pins: Vec<NamePattern>,
    /// Tools that are never shown.
    pub bans: Vec<NamePattern>,
    /// Tools that the policy `allowlist` shows.
    pub allow: Vec<NamePattern>,
    /// Tools that the policy `denylist` hides.
    pub deny: Vec<NamePattern>,
    /// Whether tools that are not declared read-only are hidden from clients that only read.
    pub gate_writes: bool,
    /// Whether calls of these hidden tools are refused, too.
    pub enforce: bool,
    /// The least similarity of recent calls to the declared context at which the context still
    /// counts: from 0 to 1, 0 for always.
    pub context_shift: f64,
    /// Rules for clients by name; the first match applies.
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

/// Properties of the clients whose name matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// The pattern of the name that a client declares.
    pub name: NamePattern,
    /// The policy, if the operator chose one.
    pub policy: Option<ListPolicyName>,
    /// Whether the model of the client uses a prompt cache, if known.
    pub prompt_cache: Option<bool>,
    /// Whether the client loads tools on demand, if known.
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

/// Tools that are shown when nothing better is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The name of the pool.
    pub name: String,
    /// The patterns of its tools.
    pub tools: Vec<NamePattern>,
    /// The profile of the pool; `None` for all clients.
    pub profile: Option<String>,
    /// Words of an intent that select the pool; a pool without words always applies.
    pub words: Vec<String>,
}
