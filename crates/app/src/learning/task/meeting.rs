//! Learning whether clients look for tools that their lists leave out.

use jiff::{SignedDuration, Timestamp};
use riglm_domain::invocation::{CallSession, ToolSource};
use riglm_domain::list_account::ListActivity;
use riglm_domain::list_shown::SelectionMode;
use riglm_ports::analytics::{ListActivityRepository, StoreError};
use tracing::debug;

use crate::learning::shared_learner::SharedLearner;

/// Most rows of each kind that are read of a session.
const MOST_ROWS: u32 = 200;
/// Sessions that were over before that are not looked up: clients change.
const NEWEST: SignedDuration = SignedDuration::from_hours(24 * 30);

/// Has a learner learn how the sessions that are over met their lists.
pub(super) async fn learn_meetings(
    learner: &SharedLearner,
    store: &dyn ListActivityRepository,
    now: Timestamp,
) {
    let ended = learner.write().take_ended();
    for ended in ended {
        let mut has_context = ended.has_context;
        if now.duration_since(ended.last_call) <= NEWEST {
            match activity_of(store, ended.session).await {
                Ok(activity) => {
                    has_context |= is_of_context(&activity);
                    if let Some((n_listed, sought)) = met(&activity) {
                        learner.write().met(&ended, n_listed, sought);
                    }
                }
                Err(error) => {
                    let error = &error as &(dyn std::error::Error + 'static);
                    debug!(error, "it is not known how a session met its lists");
                }
            }
        }
        learner.write().said(has_context);
    }
}

/// Returns whether a list of a session was chosen by what its client said that it does.
fn is_of_context(activity: &ListActivity) -> bool {
    let mut lists = activity.lists.iter();
    lists.any(|list| list.mode == Some(SelectionMode::Context))
}

async fn activity_of(
    store: &dyn ListActivityRepository,
    session: CallSession,
) -> Result<ListActivity, StoreError> {
    match session {
        CallSession::Work(id) => store.list_activity_of(id, MOST_ROWS).await,
        CallSession::Connection(id) => {
            let mut all = store.list_activities(&[id], MOST_ROWS).await?;
            Ok(all.remove(&id).unwrap_or_default())
        }
    }
}

/// Returns the number of tools a session was shown, and whether its client looked for others; `None` where
/// nothing was hidden from it.
fn met(activity: &ListActivity) -> Option<(usize, bool)> {
    let list = activity.newest_list()?;
    let n_listed = list.tools.tools().len();
    let hides_some = (n_listed as u64) < list.n_available;
    let called_hidden = (activity.calls.iter()).any(|call| call.source != ToolSource::Shown);
    let sought = called_hidden || !activity.searches.is_empty();
    hides_some.then_some((n_listed, sought))
}
