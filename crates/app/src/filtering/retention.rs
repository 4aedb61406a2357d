//! Recall of the tools that a work session used earlier, in another process or before a restart.
//! Such tools stay in the list.

use std::time::Duration;

use riglm_domain::usage::invocation::SessionKey;

use super::list_request::ListRequest;
use super::lists::Lists;
use super::scope::{MAX_USED, Scope};

/// Timeout for reading earlier calls. After a timeout the list is selected without them; the next
/// list asks the store again.
const STORE_DEADLINE: Duration = Duration::from_millis(500);

impl Lists {
    /// Loads the earlier calls of the work session into its scope. Shared lists are skipped,
    /// because they belong to no single work session.
    pub(super) async fn recall(&self, scope: &Scope, ask: &ListRequest<'_>) {
        let (Some(stores), SessionKey::Work(work_session)) = (&self.stores, ask.session) else {
            return;
        };
        if scope.key.is_shared() || scope.state.lock().is_recalled {
            return;
        }
        let limit = u32::try_from(MAX_USED).unwrap_or(u32::MAX);
        let asked = stores.activities.list_activity_of(work_session, limit);
        match tokio::time::timeout(STORE_DEADLINE, asked).await {
            Ok(Ok(activity)) => {
                let mut state = scope.state.lock();
                state.is_recalled = true;
                let before = activity
                    .calls
                    .iter()
                    .map(|call| (call.tool.clone(), call.at));
                state.recall(before);
            }
            Ok(Err(error)) => tracing::debug!("failed to read calls of a work session: {error}"),
            Err(_) => tracing::debug!("timeout while reading calls of a work session"),
        }
    }
}
