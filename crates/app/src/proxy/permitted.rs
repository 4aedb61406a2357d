//! What a caller may call: an offer without the tools that the operator forbids to it, and the refusal
//! of a call of one of these.

use std::sync::Arc;

use riglm_domain::id::{SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::invocation::CallSession;

use super::caller::Caller;
use super::shared::Shared;
use crate::filtering::{ForbidRules, ForbiddenBy, Subject};
use crate::search::{Offer, OfferedTool};

impl Shared {
    /// Returns what the session could call, as far as that is known.
    pub(super) fn offer_of(&self, caller: &Caller) -> Option<Arc<Offer>> {
        let whole = caller.search.whole_offer()?;
        Some(self.permitted(caller, &whole))
    }

    /// Returns what the session could call when it was shown a list last, which may have changed since.
    pub(super) fn last_offer_of(&self, caller: &Caller) -> Option<Arc<Offer>> {
        let whole = caller.search.last_whole_offer()?;
        Some(self.permitted(caller, &whole))
    }

    /// Returns an offer without the tools that are forbidden to a caller.
    pub(super) fn permitted(&self, caller: &Caller, whole: &Arc<Offer>) -> Arc<Offer> {
        let rules = self.forbidden_to(caller);
        if rules.is_empty() {
            return Arc::clone(whole);
        }
        let make = |rules: &ForbidRules| self.without_forbidden(rules, whole);
        caller.search.permitted(whole, rules, make)
    }

    /// Returns an offer without the tools that these rules forbid.
    fn without_forbidden(&self, rules: &ForbidRules, whole: &Arc<Offer>) -> Arc<Offer> {
        let is_forbidden = |tool: &OfferedTool| {
            let (upstream, own) = (&tool.tool.upstream, &tool.tool.tool);
            rules.forbids(upstream, own, Some(&tool.name)).is_some()
        };
        let forbidden: Vec<bool> = whole.tools().iter().map(is_forbidden).collect();
        if !forbidden.contains(&true) {
            return Arc::clone(whole);
        }
        // Offers with the same texts have the same identifier, whatever of them is hidden.
        let states = whole.tools().iter().zip(&forbidden);
        let states: Vec<u8> = states
            .map(|(tool, is_forbidden)| u8::from(tool.is_hidden) | u8::from(*is_forbidden) << 1)
            .collect();
        let key: [&[u8]; 3] = [b"permitted", &whole.id(), &states];
        self.offers
            .get(&key, Vec::new(), |_| whole.kept(|at| !forbidden[at]))
    }

    /// Returns an offer without the tools that are forbidden to everybody.
    pub(super) fn permitted_to_all(&self, whole: &Arc<Offer>) -> Arc<Offer> {
        let Some(forbidden) = self.filter.forbidden() else {
            return Arc::clone(whole);
        };
        let rules = forbidden.rules(&Subject {
            profile: None,
            client_hash: None,
            connection: None,
            work_session: None,
            now: self.recorder.now(),
        });
        self.without_forbidden(&rules, whole)
    }

    /// Returns what is forbidden to a caller now.
    pub(super) fn forbidden_to(&self, caller: &Caller) -> ForbidRules {
        self.rules(caller, caller.known_row(), caller.known_work())
    }

    /// Notes that a caller is shown a list of tools without those that are forbidden to it now.
    pub(super) fn note_listed(&self, caller: &Caller) {
        // Before the rules are asked for: what changes in between is told of then.
        let revision = self.filter.forbid_revision();
        caller.note_rules(revision, self.forbidden_to(caller));
    }

    /// Returns what is forbidden to a call of this connection that belongs to `together`.
    pub(super) fn forbidden_in(
        &self,
        caller: &Caller,
        connection: SessionId,
        together: CallSession,
    ) -> ForbidRules {
        self.rules(caller, Some(connection), together.work_session())
    }

    fn rules(
        &self,
        caller: &Caller,
        connection: Option<SessionId>,
        work_session: Option<WorkSessionId>,
    ) -> ForbidRules {
        let Some(forbidden) = self.filter.forbidden() else {
            return ForbidRules::default();
        };
        forbidden.rules(&Subject {
            profile: caller.profile_name(),
            client_hash: Some(caller.client_hash(&self.recorder)),
            connection,
            work_session,
            now: self.recorder.now(),
        })
    }

    /// Returns the positions of the tools of a list of one upstream that are forbidden to a caller.
    pub(super) fn forbidden_of(
        &self,
        caller: &Caller,
        upstream: &UpstreamName,
        names: &[ToolName],
    ) -> Vec<usize> {
        let rules = self.forbidden_to(caller);
        let all = names.iter().enumerate();
        let forbidden = all.filter(|(_, own)| rules.forbids(upstream, own, None).is_some());
        forbidden.map(|(at, _)| at).collect()
    }
}

/// Returns what a model is told whose call is refused, of a tool by the name that it knows.
pub(super) fn refusal(name: &str, by: ForbiddenBy<'_>) -> String {
    let which = match by {
        ForbiddenBy::Configuration => "(filtering.forbid)".to_owned(),
        ForbiddenBy::Override(None) => "(an override)".to_owned(),
        ForbiddenBy::Override(Some(reason)) => format!("(an override: {reason})"),
    };
    format!(
        "The tool {name} is forbidden by the operator {which}. It was not called, and will not be if \
         it is called again."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_tool_and_the_rule() {
        let text = refusal("files__rm", ForbiddenBy::Configuration);
        assert!(
            text.starts_with("The tool files__rm is forbidden by the operator (filtering.forbid).")
        );
        let text = refusal("rm", ForbiddenBy::Override(Some("audit")));
        assert!(text.contains("(an override: audit)"), "{text}");
        assert!(refusal("rm", ForbiddenBy::Override(None)).contains("(an override)."));
    }
}
