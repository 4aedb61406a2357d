//! Which policy a client has.

use riglm_domain::id::ToolName;
use riglm_domain::listing::{ClientClass, ListPolicyName, Shown};

use super::ask::ListAsk;
use super::options::ListOptions;

/// Returns the policy for who asks: by a rule that names the client, by the operator's general
/// choice, or by the class of the client. Modern clients get none that depends on the session.
pub(super) fn policy_of(options: &ListOptions, ask: &ListAsk<'_>) -> ListPolicyName {
    let name = ToolName::from(ask.client);
    let rule = options.clients.iter().find(|rule| rule.name.matches(&name));
    let chosen = rule.and_then(|rule| rule.policy).or(options.policy);
    let policy = chosen.unwrap_or_else(|| {
        let mut class = ClientClass {
            is_modern: ask.is_modern,
            shown: Shown {
                relists: ask.relists,
            },
            ..ClientClass::default()
        };
        if let Some(rule) = rule {
            rule.refine(&mut class);
        }
        class.policy()
    });
    if ask.is_modern {
        policy.without_session()
    } else {
        policy
    }
}
