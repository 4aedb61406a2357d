//! Who asks for a list.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::canonical::KeyedHash;
use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::invocation::CallSession;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::listing::ListPolicyName;
use riglm_domain::principal::Principal;

use super::scope::ScopeKey;

/// What is being done, where that is known, and how well tools fit it.
#[derive(Clone, Debug, Default)]
pub struct ListIntent {
    /// The text.
    pub text: String,
    /// How well tools fit it, by their positions in the offer.
    pub fits: Vec<(usize, f64)>,
    /// Its vector, where an encoder was there.
    pub vector: Option<Embedding>,
}

/// Who asks for a list, or calls a tool of one.
#[derive(Clone, Copy, Debug)]
pub struct ListAsk<'a> {
    /// Whose list it is.
    pub principal: &'a Principal,
    /// The name that the client gives itself; empty where it gives none.
    pub client: &'a str,
    /// Keyed hash of the client, as in its session.
    pub client_hash: Option<KeyedHash>,
    /// The profile under which the client is connected.
    pub profile: Option<&'a str>,
    /// Whether it speaks revision 2026-07-28 or a later one.
    pub is_modern: bool,
    /// Whether it is known to ask for the list again when it is told of a change.
    pub relists: bool,
    /// The work session.
    pub session: CallSession,
    /// The connection over which it asks, where it is recorded.
    pub connection: Option<SessionId>,
    /// What is being done.
    pub intent: Option<&'a ListIntent>,
    /// What the client itself said of it.
    pub stated: Option<&'a StatedIntent>,
    /// The moment.
    pub now: Timestamp,
}

impl ListAsk<'_> {
    /// Returns what a list may be chosen by of what the client said that it does: nothing where lists
    /// must not depend on sessions.
    pub(super) fn context(&self) -> Option<&Arc<str>> {
        let stated = self.stated.filter(|_| !self.is_modern);
        stated.and_then(|stated| stated.context.as_ref())
    }

    /// Returns who shares the list under a policy: for modern clients all of the principal under the
    /// profile that have it, for others the work session.
    pub(super) fn scope(&self, policy: ListPolicyName) -> ScopeKey {
        if self.is_modern {
            let profile = self.profile.unwrap_or_default();
            let principal = self.principal;
            // A character that none of them has stands between them.
            return ScopeKey::shared(format!("shared:{policy}\u{1f}{profile}\u{1f}{principal}"));
        }
        let work = ListEpoch::WORK_SCOPE;
        ScopeKey::of_work(match self.session {
            CallSession::Work(id) => format!("{work}{id}"),
            CallSession::Connection(id) => format!("{work}connection/{id}"),
        })
    }
}
