//! The list policy of a client.

use std::collections::HashSet;

use parking_lot::Mutex;
use riglm_domain::id::ToolName;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::selection::{ClientClass, ListBehaviour, ListPolicyName};

use super::config::FilteringConfig;
use super::list_request::ListRequest;

/// Returns the policy for a request: by a rule for the client name, by the arm of an experiment, by
/// the general option, or by the class of the client. Modern clients never get a policy that
/// depends on the session, and clients that load tools on demand get no policy that predicts which
/// tools to hide.
pub(super) fn policy_of(
    options: &FilteringConfig,
    of_arm: Option<ListPolicyName>,
    request: &ListRequest<'_>,
) -> ListPolicyName {
    let name = ToolName::from(request.client);
    let rule = options.clients.iter().find(|rule| rule.name.matches(&name));
    let chosen = rule.and_then(|rule| rule.policy);
    let chosen = chosen.or(of_arm).or(options.policy);
    let policy = chosen.unwrap_or_else(|| {
        let mut class = ClientClass {
            is_modern: request.era == Era::Modern,
            loads_on_demand: request.loads_on_demand,
            shown: ListBehaviour {
                refetches_lists: request.refetches_lists,
            },
            ..ClientClass::default()
        };
        if let Some(rule) = rule {
            rule.refine(&mut class);
        }
        class.policy()
    });
    match policy {
        // Such a client can load only tools that its list has. Marks say the same as a short list.
        ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Conformal
            if request.loads_on_demand =>
        {
            ListPolicyName::Hints
        }
        policy if request.era == Era::Modern => policy.without_session(),
        policy => policy,
    }
}

// Client names come from clients, so the memory for them is bounded.
const MAX_CLIENT_NAMES: usize = 1_000;
/// Longer client names are cut.
const MAX_NAME_CHARS: usize = 200;

/// The names of clients that request their list again after a `list_changed` notification.
#[derive(Debug, Default)]
pub(super) struct RefetchingClients(Mutex<HashSet<String>>);

impl RefetchingClients {
    pub(super) fn add(&self, client: &str) {
        let mut known = self.0.lock();
        if known.len() < MAX_CLIENT_NAMES {
            known.insert(client.chars().take(MAX_NAME_CHARS).collect());
        }
    }

    pub(super) fn has(&self, client: &str) -> bool {
        let client: String = client.chars().take(MAX_NAME_CHARS).collect();
        self.0.lock().contains(&client)
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::SessionId;
    use riglm_domain::prediction::NamePattern;
    use riglm_domain::privacy::principal::Principal;
    use riglm_domain::usage::invocation::SessionKey;

    use super::super::config::ClientRule;
    use super::*;

    #[test]
    fn an_arm_precedes_general_options_but_not_client_rules() {
        let now = jiff::Timestamp::constant(1_800_000_000, 0);
        let principal = Principal::local();
        let request = |client, era| ListRequest {
            principal: &principal,
            client,
            client_hash: None,
            profile: None,
            era,
            connection: None,
            refetches_lists: false,
            loads_on_demand: false,
            session: SessionKey::Connection(SessionId::new(now, [1; 10])),
            intent: None,
            stated: None,
            now,
        };
        let options = FilteringConfig {
            policy: Some(ListPolicyName::All),
            clients: vec![ClientRule {
                name: NamePattern::new("known"),
                policy: Some(ListPolicyName::Hints),
                prompt_cache: None,
                loads_on_demand: None,
            }],
            ..FilteringConfig::default()
        };
        let arm = Some(ListPolicyName::Append);
        let policy = |of_arm, client, era| policy_of(&options, of_arm, &request(client, era));
        assert_eq!(policy(None, "any", Era::Legacy), ListPolicyName::All);
        assert_eq!(policy(arm, "any", Era::Legacy), ListPolicyName::Append);
        assert_eq!(policy(arm, "any", Era::Modern), ListPolicyName::Epoch);
        assert_eq!(policy(arm, "known", Era::Legacy), ListPolicyName::Hints);
        let on_demand = ListRequest {
            loads_on_demand: true,
            ..request("any", Era::Legacy)
        };
        assert_eq!(policy_of(&options, arm, &on_demand), ListPolicyName::Hints);
        assert_eq!(policy_of(&options, None, &on_demand), ListPolicyName::All);
        let general = FilteringConfig::default();
        assert_eq!(policy_of(&general, None, &on_demand), ListPolicyName::Hints);
    }
}
