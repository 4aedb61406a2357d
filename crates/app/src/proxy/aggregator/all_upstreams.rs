//! Requests for all upstreams. They end when all upstreams that are in time have answered.

use std::sync::Arc;

use futures_util::future::join_all;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};

use super::fan_out::RequestOrigin;
use super::initialize::declares;
use crate::proxy::aggregator::fan_out::ask;
use crate::proxy::session::ClientSession;
use crate::proxy::session_jobs::Reply;
use crate::proxy::upstream_session::UpstreamSession;

/// Sets the log level of every upstream that supports it.
pub(in crate::proxy) async fn set_level(
    session: &Arc<ClientSession>,
    message: &Message,
    id: RequestId,
) -> Reply {
    let level = Some(message.clone());
    (session.client_context).set_handshake(|handshake| handshake.log_level = level);
    let members = session.members();
    let asked = members
        .iter()
        .filter(|member| {
            let hello = member.tools.initialize_result();
            hello.is_some_and(|hello| declares(&hello, "logging"))
        })
        .map(|member| {
            let behalf = RequestOrigin {
                request: Some(id.clone()),
                listen: None,
            };
            ask_in_time(session, member, message, behalf)
        });
    let answers = join_all(asked).await;
    let is_success = |answer: &Message| {
        answer
            .single()
            .is_some_and(|part| part.kind() == MessageKind::Success)
    };
    let (good, bad): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .flatten()
        .partition(|answer| is_success(answer));
    match bad.into_iter().next() {
        // The level counts as set if at least one upstream accepted it.
        Some(error) if good.is_empty() => Reply::Upstream(error),
        _ => Reply::Result("{}".into()),
    }
}

/// Sends a request to one of several upstreams. Gives up when it exceeds the timeout of the
/// fan-out.
async fn ask_in_time(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    message: &Message,
    behalf: RequestOrigin,
) -> Option<Message> {
    let limit = session.shared.limits().unite_timeout;
    let asked = ask(session, member, message, behalf);
    tokio::time::timeout(limit, asked).await.ok()?.ok()
}

/// Merges the task lists of all upstreams.
pub(in crate::proxy) async fn list_tasks(
    session: &Arc<ClientSession>,
    message: &Message,
    id: RequestId,
) -> Reply {
    let members = session.members();
    let asked = members.iter().map(|member| async {
        let behalf = RequestOrigin {
            request: Some(id.clone()),
            listen: None,
        };
        let answer = ask_in_time(session, member, message, behalf).await?;
        let result = answer.single().and_then(|part| answer.result(part))?;
        let tasks = edit::member(result, "tasks")?;
        let inner = tasks
            .strip_prefix('[')?
            .strip_suffix(']')?
            .trim()
            .to_owned();
        (!inner.is_empty()).then_some(inner)
    });
    let tasks: Vec<String> = join_all(asked).await.into_iter().flatten().collect();
    Reply::Result(edit::with_member(
        "{}",
        "tasks",
        &format!("[{}]", tasks.join(",")),
    ))
}
