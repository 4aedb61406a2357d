//! Classes of clients, and the default list policy for each.

use super::policy::ListPolicyName;

/// Whether the model of a client reads its prompt from a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptCache {
    /// It has a prompt cache, or this is unknown. The default, because a wrong assumption is cheap.
    #[default]
    Assumed,
    /// It has no prompt cache: a local model, or a provider without one.
    None,
}

/// Observed behaviour of a client with lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListBehaviour {
    /// Whether it requested the list again after a notification of a change.
    pub refetches_lists: bool,
}

/// The known properties of a client that requests a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientClass {
    /// Whether it uses revision 2026-07-28 or later.
    pub is_modern: bool,
    /// Whether it loads tools on demand, and honours the marks of tools to load at once.
    pub loads_on_demand: bool,
    /// Whether its model has a prompt cache.
    pub prompt_cache: PromptCache,
    /// Observed behaviour.
    pub shown: ListBehaviour,
}

impl ClientClass {
    /// Returns the default policy for the client, if the operator has not chosen one.
    #[must_use]
    pub fn policy(&self) -> ListPolicyName {
        match self {
            Self {
                loads_on_demand: true,
                ..
            } => ListPolicyName::Hints,
            Self {
                is_modern: true, ..
            }
            | Self {
                shown: ListBehaviour {
                    refetches_lists: false,
                },
                ..
            } => ListPolicyName::Epoch,
            Self {
                prompt_cache: PromptCache::None,
                ..
            } => ListPolicyName::Conformal,
            _ => ListPolicyName::Append,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_class_has_its_safest_policy() {
        let class = ClientClass::default();
        assert_eq!(class.policy(), ListPolicyName::Epoch);
        let refetches_lists = ClientClass {
            shown: ListBehaviour {
                refetches_lists: true,
            },
            ..class
        };
        assert_eq!(refetches_lists.policy(), ListPolicyName::Append);
        let uncached = ClientClass {
            prompt_cache: PromptCache::None,
            ..refetches_lists
        };
        assert_eq!(uncached.policy(), ListPolicyName::Conformal);
        let modern = ClientClass {
            is_modern: true,
            ..uncached
        };
        assert_eq!(modern.policy(), ListPolicyName::Epoch);
        let on_demand = ClientClass {
            loads_on_demand: true,
            ..modern
        };
        assert_eq!(on_demand.policy(), ListPolicyName::Hints);
    }
}
