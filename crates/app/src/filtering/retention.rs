//! What a work session used before this process knew of it: such tools stay listed.

use std::time::Duration;

use riglm_domain::invocation::CallSession;

use super::ask::ListAsk;
use super::lists::Lists;
use super::scope::{MAX_USED, Scope};

/// How long the store may take to say what was used. Without its answer the list is chosen all the
/// same, and it is asked again for the next one.
const STORE_DEADLINE: Duration = Duration::from_millis(500);

impl Lists {
    /// Has a scope remember what its work session called before a restart, or over another process.
    /// Lists that sessions share are none of one work session.
    pub(super) async fn recall(&self, scope: &Scope, ask: &ListAsk<'_>) {
        let (Some(stores), CallSession::Work(work_session)) = (&self.stores, ask.session) else {
            return;
        };
        if scope.key.is_shared() || scope.state().is_recalled {
            return;
        }
        let limit = u32::try_from(MAX_USED).unwrap_or(u32::MAX);
        let asked = stores.activities.list_activity_of(work_session, limit);
        match tokio::time::timeout(STORE_DEADLINE, asked).await {
            Ok(Ok(activity)) => {
                let mut state = scope.state();
                state.is_recalled = true;
                let before = activity
                    .calls
                    .iter()
                    .map(|call| (call.tool.clone(), call.at));
                state.recall(before);
            }
            Ok(Err(error)) => tracing::debug!("what a work session used cannot be read: {error}"),
            Err(_) => tracing::debug!("the store does not say in time what a work session used"),
        }
    }
}
