//! Notifications to the client that its tool list has changed, caused by the proxy: by a selection,
//! an override, a rule, or an approval. Changes that upstreams report are in `aggregator::changes`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::meta::SUBSCRIPTION_ID;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::downstream::Route;
use riglm_ports::observer::Event;

use super::session::ClientSession;
use crate::proxy::aggregator::changes::tools_changed;

/// The time within which several changes of a selection are reported as one.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Checks in the background whether a call or a search changed the list of the client, and
/// notifies the client.
pub(super) fn review_list(session: &Arc<ClientSession>, session_key: SessionKey, era: Era) {
    let Some(lists) = session.shared.selection.lists() else {
        return;
    };
    if era == Era::Modern || !session.client_context.is_initialized() {
        return;
    }
    let client = session.client_context.client_name();
    let now = session.shared.recorder.now();
    let ask = (session.client_context).list_request(&client, session_key, Era::Legacy, now);
    if !lists.may_change(&ask) || session.client_context.begin_review(session_key) {
        return;
    }
    let (session, lists) = (Arc::clone(session), Arc::clone(lists));
    crate::proxy::log_spans::spawn(async move {
        tokio::time::sleep(DEBOUNCE).await;
        let (client_context, shared) = (&session.client_context, &session.shared);
        client_context.end_review(session_key);
        let client = client_context.client_name();
        let now = shared.recorder.now();
        let mut ask = client_context.list_request(&client, session_key, Era::Legacy, now);
        let stated =
            shared.stated_intent(client_context.session_id(shared).await, session_key, now);
        ask.stated = stated.as_ref();
        let is_found = |tool: &_| client_context.search.has_found(session_key, tool);
        if lists.has_changed(&ask, is_found).await && !session.is_closed() {
            notify_tools_changed(&session, &[]);
        }
    });
}

/// Notifies the client of a changed tool list if an override changed since the last list or its
/// epoch is over.
pub(super) fn notify_list_outdated(session: &Arc<ClientSession>, revision: u64, now: Timestamp) {
    if !session.is_closed()
        && session.client_context.is_list_outdated(revision, now)
        && promises_notices(session)
    {
        notify_tools_changed(session, &[]);
    }
}

/// Notifies the client that tools are selected in another way since its last list request: the
/// proxy was paused or resumed, or the strategy or its names changed.
pub(super) fn notify_selection_changed(session: &Arc<ClientSession>, n_changes: u64) {
    if !session.is_closed()
        && session.client_context.has_selection_changed(n_changes)
        && promises_notices(session)
    {
        notify_tools_changed(session, &[]);
    }
}

/// Notifies the client of a changed tool list if the forbid rules changed since the last list.
pub(super) fn notify_forbid_rules_changed(session: &Arc<ClientSession>) {
    let revision = session.shared.selection.forbid_revision();
    let rules = || session.shared.forbidden_to(&session.client_context);
    if !session.is_closed()
        && session.client_context.have_rules_changed(revision, rules)
        && promises_notices(session)
    {
        notify_tools_changed(session, &[]);
    }
}

/// Notifies the client of a changed tool list after changes of an upstream's tools were
/// approved.
pub(super) fn notify_approval(session: &Arc<ClientSession>, upstream: &UpstreamName) {
    let members = session.members();
    let member = members.iter().find(|member| member.name() == upstream);
    let Some(member) = member.filter(|_| !session.is_closed()) else {
        return;
    };
    session.client_context.search.forget_catalog();
    if promises_notices(session) {
        notify_tools_changed(session, &[member.number]);
    }
}

/// Returns whether the client may be notified of changed tool lists: its handshake promised it, or
/// it has none and opens notification streams.
fn promises_notices(session: &ClientSession) -> bool {
    let client = &session.client_context;
    let only = session.only_upstream();
    only.is_none_or(|only| {
        only.tools.tells_of_changes() || client.has_promise() || !client.is_initialized()
    })
}

/// Notifies the client that its tool list may have changed. With several upstreams the list is
/// checked first, and the lists of the upstream sessions in `members` are fetched again.
pub(super) fn notify_tools_changed(session: &Arc<ClientSession>, members: &[u64]) {
    let Some(only) = session.only_upstream() else {
        return tools_changed(session, members);
    };
    let session = Arc::clone(session);
    crate::proxy::log_spans::spawn(async move {
        let routes = if session.client_context.is_initialized() {
            (session.client_context).note_change_notification(Instant::now());
            vec![Route::Standalone]
        } else {
            let streams = only.tool_streams();
            streams.into_iter().map(Route::Related).collect()
        };
        if !routes.is_empty() {
            (session.shared).observe_from(&Event::ListChangeTold, &session.client_context.origin());
        }
        for route in routes {
            let message = list_changed(&route);
            session.client.deliver(message, route).await;
        }
    });
}

/// Returns the notification of a changed tool list for a stream, or for the only stream.
fn list_changed(route: &Route) -> Message {
    let params = match route {
        Route::Standalone => None,
        Route::Related(id) => Some(format!(r#"{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}"#)),
    };
    Message::notification(method::NOTIFICATIONS_TOOLS_LIST_CHANGED, params.as_deref())
}
