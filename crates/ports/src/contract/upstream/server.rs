//! The server of the suite: its reaction to each message, without a transport.

use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Era;

use crate::fake::ScriptedReaction;

/// The members of the result of each call, which must arrive as these bytes.
pub const RESULT: &str =
    r#""content":[],"structuredContent":{"n":1.0e3,"x":18446744073709551616,"s":"\u00e9"}"#;

/// The number of progress notifications of [`Tool::Count`].
pub const N_COUNTED: usize = 10;

const WELCOME: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"contract","version":"1"}}"#;
const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"contract","version":"1"}}}"#;
const NO_METHOD: &str = r#""error":{"code":-32601,"message":"Method not found"}"#;

/// A tool of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Answers at once.
    Echo,
    /// Never answers.
    Silent,
    /// Sends [`N_COUNTED`] progress notifications, and then the answer.
    Count,
    /// Ends the connection without an answer: the process, the event stream, or the response to the
    /// request.
    End,
}

impl Tool {
    /// Returns the name of the tool.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Silent => "silent",
            Self::Count => "count",
            Self::End => "end",
        }
    }
}

/// The reaction of a server of the suite to one message.
pub type Reaction = ScriptedReaction;

/// Returns the reaction of a server of this era to the text of a message. The answer, to a request
/// that gets one, is the last of its messages.
#[must_use]
pub fn reaction(era: Era, text: &str) -> Reaction {
    let Ok(message) = Message::from_text(text.to_owned()) else {
        return Reaction::default();
    };
    let Some((method, id)) = message.single().and_then(|part| part.as_request()) else {
        return Reaction::default();
    };
    let params = message.single().and_then(|part| message.params(part));
    let params = params.unwrap_or("{}");
    let answer = |member: &str| format!(r#"{{"jsonrpc":"2.0","id":{},{member}}}"#, id.to_json());
    let member_of = |result: &str| answer(&format!(r#""result":{result}"#));
    let only = |text: String| Reaction {
        messages: vec![text],
        is_end: false,
    };
    match (method, era) {
        (method::INITIALIZE, Era::Legacy) => return only(member_of(WELCOME)),
        (method::SERVER_DISCOVER, Era::Modern) => return only(member_of(DISCOVERED)),
        (method::INITIALIZE, Era::Modern) | (method::SERVER_DISCOVER, Era::Legacy) => {
            return only(answer(NO_METHOD));
        }
        (method::SUBSCRIPTIONS_LISTEN, _) => return Reaction::default(),
        (method::TOOLS_CALL, _) => {}
        _ => return only(member_of("{}")),
    }
    let kind = match era {
        Era::Legacy => "",
        Era::Modern => r#""resultType":"complete","#,
    };
    let result = member_of(&format!("{{{kind}{RESULT}}}"));
    let name = member(params, "name").unwrap_or_default().trim_matches('"');
    if name == Tool::Silent.as_str() {
        return Reaction::default();
    }
    if name == Tool::End.as_str() {
        return Reaction {
            messages: Vec::new(),
            is_end: true,
        };
    }
    let mut messages = Vec::new();
    if name == Tool::Count.as_str() {
        let token = member(params, "_meta").and_then(|meta| member(meta, "progressToken"));
        let token = token.unwrap_or("null");
        messages.extend((1..=N_COUNTED).map(|n| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{n}}}}}"#
            )
        }));
    }
    messages.push(result);
    Reaction {
        messages,
        is_end: false,
    }
}
