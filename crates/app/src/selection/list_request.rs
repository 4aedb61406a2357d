//! The request of a client for a list: the client and its session.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::selection::ListPolicyName;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::usage::invocation::SessionKey;

use super::list_scope::ScopeKey;

/// The known intent of a session, with the scores of the tools for it.
#[derive(Clone, Debug, Default)]
pub struct ListIntent {
    /// The text of the intent.
    pub text: String,
    /// The scores of tools, by their positions in the catalog.
    pub fits: Vec<(usize, f64)>,
    /// The vector of the text, if an encoder is available.
    pub vector: Option<Embedding>,
}

/// A request for a list, or a call of a tool from one.
#[derive(Clone, Copy, Debug)]
pub struct ListRequest<'a> {
    /// The owner of the list.
    pub principal: &'a Principal,
    /// The name that the client declares; empty if there is none.
    pub client: &'a str,
    /// Keyed hash of the client, as in its session.
    pub client_hash: Option<KeyedHash>,
    /// The profile under which the client is connected.
    pub profile: Option<&'a str>,
    /// Whether the client speaks revision 2026-07-28 or later.
    pub era: Era,
    /// Whether the client is known to request its list again after a `list_changed` notification.
    pub refetches_lists: bool,
    /// Whether the client loads tools on demand by itself, so that its list must have all of them.
    pub loads_on_demand: bool,
    /// The work session.
    pub session: SessionKey,
    /// The connection of the request, if it is recorded.
    pub connection: Option<SessionId>,
    /// The intent, if known.
    pub intent: Option<&'a ListIntent>,
    /// The declarations and queries of the client about its task.
    pub stated: Option<&'a StatedIntent>,
    /// The time of the request.
    pub now: Timestamp,
}

impl ListRequest<'_> {
    /// Returns the request of the same session as one whose prediction uses its calls, its client and
    /// its intent, in every revision. It must not select a list, because a modern list is shared.
    pub(super) fn with_own_session(&self) -> Self {
        Self {
            era: Era::Legacy,
            ..*self
        }
    }

    /// Returns the declared context for the selection of a list; `None` for modern clients, whose
    /// lists must not depend on sessions.
    pub(super) fn context(&self) -> Option<&Arc<str>> {
        let stated = self.stated.filter(|_| self.era == Era::Legacy);
        stated.and_then(|stated| stated.context.as_ref())
    }

    /// Returns the intent of the session; `None` for modern clients: the intent of one session must
    /// not change a list that several sessions share.
    pub(super) fn own_intent(&self) -> Option<&ListIntent> {
        self.intent.filter(|_| self.era == Era::Legacy)
    }

    /// Returns the scope of the list under a policy. Modern clients share it with all of the same
    /// principal, profile and policy; other clients have one for each work session.
    pub(super) fn scope(&self, policy: ListPolicyName) -> ScopeKey {
        if self.era == Era::Modern {
            let profile = self.profile.unwrap_or_default();
            let principal = self.principal;
            // The separator is a character that cannot occur in the parts.
            return ScopeKey::Shared(format!("shared:{policy}\u{1f}{profile}\u{1f}{principal}"));
        }
        let work = ListEpoch::WORK_SCOPE;
        ScopeKey::Work(match self.session {
            SessionKey::Work(id) => format!("{work}{id}"),
            SessionKey::Connection(id) => format!("{work}connection/{id}"),
        })
    }
}
