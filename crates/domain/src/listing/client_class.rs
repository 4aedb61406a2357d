//! What kind of client asks for a list.

use super::policy::ListPolicyName;

/// Whether a client's model reads its prompt from a cache, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptCache {
    /// It does, or is not known not to: the case in which a mistake is cheap.
    #[default]
    Assumed,
    /// It does not: a local model, or a provider without one.
    None,
}

/// What a client showed of how it uses lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// It asked for the list again after it was told of a change.
    pub relists: bool,
}

/// What is known of a client when it asks for a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientClass {
    /// It speaks revision 2026-07-28 or a later one.
    pub is_modern: bool,
    /// It loads tools when it needs them, and honours the marks of those to be loaded at once.
    pub loads_on_demand: bool,
    /// Whether it reads prompts from a cache.
    pub prompt_cache: PromptCache,
    /// What it showed.
    pub shown: Shown,
}

impl ClientClass {
    /// Returns the policy for the client where the operator chose none.
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
                shown: Shown { relists: false },
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
    fn each_class_has_the_policy_that_cannot_hurt_it() {
        let class = ClientClass::default();
        assert_eq!(class.policy(), ListPolicyName::Epoch);
        let relists = ClientClass {
            shown: Shown { relists: true },
            ..class
        };
        assert_eq!(relists.policy(), ListPolicyName::Append);
        let uncached = ClientClass {
            prompt_cache: PromptCache::None,
            ..relists
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
