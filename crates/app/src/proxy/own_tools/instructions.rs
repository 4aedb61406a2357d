//! The instructions of the proxy itself, in front of those of the servers.

use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::scan::unescape;
use riglm_domain::usage::invocation::SessionKey;
use serde_json::Value;

use super::OwnTool;
use crate::proxy::client_context::ClientContext;
use crate::proxy::shared_state::SharedState;

/// Returns the instructions for a client, of at most 600 characters; `None` if its lists hide nothing.
/// They come first, because some clients cut the rest.
pub(in crate::proxy) async fn instructions(
    shared: &SharedState,
    client: &ClientContext,
    era: Era,
) -> Option<String> {
    let tools = shared.own_tools()?;
    let search = tools.name(OwnTool::Search)?;
    let lists = shared.selection.lists()?;
    let session = SessionKey::Connection(client.session_id(shared).await);
    let name = client.client_name();
    let request = client.list_request(&name, session, era, shared.recorder.now());
    if !lists.may_hide_from(&request) {
        return None;
    }
    // A small catalog is listed whole, without the tools of the proxy.
    let mut text = format!(
        "If your list of tools has {search}, it shows only some of the tools of this server. \
         {search} finds the others: say in a few words what has to be done."
    );
    if let Some(call) = tools.name(OwnTool::CallTool) {
        text.push_str(" Call a tool that is not in your list with ");
        text.push_str(call);
        text.push_str(", giving its name and arguments.");
    }
    text.push_str(" Search before you conclude that there is no tool for something.");
    Some(text)
}

/// Returns the result of a handshake or discovery with instructions before its own ones.
pub(in crate::proxy) fn with_instructions(result: &str, first: &str) -> String {
    let own = member(result, "instructions").and_then(unescape);
    let text = match own.as_deref().map(str::trim) {
        Some(own) if !own.is_empty() => format!("{first}\n\n{own}"),
        _ => first.to_owned(),
    };
    with_member(result, "instructions", &Value::from(text).to_string())
}
