//! Learning whether clients search for hidden tools.

use jiff::{SignedDuration, Timestamp};
use riglm_domain::selection::account::ListActivity;
use riglm_domain::selection::shown::SelectionMode;
use riglm_domain::usage::invocation::{SessionKey, ToolSource};
use riglm_ports::analytics::{ListRepository, StoreError};
use tracing::debug;

use crate::learning::shared_learner::SharedLearner;

/// Limit of the rows of each kind that are read for a session.
const MOST_ROWS: u32 = 200;
// Sessions that ended earlier are not looked up, because clients change.
const MAX_SESSION_AGE: SignedDuration = SignedDuration::from_hours(24 * 30);

/// Trains a learner with the searches of ended sessions for hidden tools.
pub(super) async fn learn_hidden_tool_use(
    learner: &SharedLearner,
    store: &dyn ListRepository,
    now: Timestamp,
) {
    let ended = learner.write().take_ended();
    for ended in ended {
        let mut has_context = ended.has_context;
        if now.duration_since(ended.last_call) <= MAX_SESSION_AGE {
            match activity_of(store, ended.session).await {
                Ok(activity) => {
                    has_context |= is_of_context(&activity);
                    if let Some((n_listed, sought)) = hidden_need_of(&activity) {
                        learner.write().learn_hidden_need(&ended, n_listed, sought);
                    }
                }
                Err(error) => {
                    let error = &error as &(dyn std::error::Error + 'static);
                    debug!(error, "failed to read the list activity of a session");
                }
            }
        }
        learner.write().learn_context(has_context);
    }
}

/// Returns whether a list of a session was selected by its declared context.
fn is_of_context(activity: &ListActivity) -> bool {
    let mut lists = activity.lists.iter();
    lists.any(|list| list.mode == Some(SelectionMode::Context))
}

async fn activity_of(
    store: &dyn ListRepository,
    session: SessionKey,
) -> Result<ListActivity, StoreError> {
    match session {
        SessionKey::Work(id) => store.list_activity_of(id, MOST_ROWS).await,
        SessionKey::Connection(id) => {
            let mut all = store.list_activities(&[id], MOST_ROWS).await?;
            Ok(all.remove(&id).unwrap_or_default())
        }
    }
}

/// Returns the number of tools in the list of a session, and whether its client searched for
/// others; `None` if nothing was hidden.
fn hidden_need_of(activity: &ListActivity) -> Option<(usize, bool)> {
    let list = activity.newest_list()?;
    let n_listed = list.tools.tools().len();
    let hides_some = (n_listed as u64) < list.n_available;
    let called_hidden = (activity.calls.iter()).any(|call| call.source != ToolSource::Shown);
    let sought = called_hidden || !activity.searches.is_empty();
    hides_some.then_some((n_listed, sought))
}
