//! Records: the events of the recorder, from which all rows are made.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::catalog::tool::ToolListing;
use crate::id::{RunId, SessionId};
use crate::intent::context::Context;
use crate::mcp::exchange::Exchange;
use crate::recommendation::record::Recommendation;
use crate::retrieval::search::Search;
use crate::selection::shown::ListShown;
use crate::usage::feedback::Feedback;
use crate::usage::invocation::{CallTokens, Invocation, InvocationEnd};
use crate::usage::session::Session;

/// One event.
///
/// Records of one session are written in the order of the events. Applying a record twice has the
/// effect of applying it once: each carries the identity of its row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A session started.
    SessionOpened(Session),
    /// A session ended.
    SessionClosed {
        /// The session.
        session: SessionId,
        /// The time of its end.
        ended_at: Timestamp,
    },
    /// A page of tools was seen for the first time in this run.
    ToolsSeen {
        /// The page.
        listing: ToolListing,
        /// The time of receipt.
        seen_at: Timestamp,
    },
    /// A page of tools was listed to a session.
    ToolsListed {
        /// The session.
        session: SessionId,
        /// The identity of the page, seen before in this run.
        listing: String,
        /// The time of the list.
        listed_at: Timestamp,
    },
    /// A tool call is about to be forwarded.
    CallOpened(Invocation),
    /// A tool call ended; its reply has not left yet.
    CallClosed(InvocationEnd),
    /// The texts of a tool call were counted, after its reply had left.
    CallMeasured(CallTokens),
    /// A request other than a tool call ended.
    Exchanged(Exchange),
    /// A session was shown a list under a policy.
    ListShown(ListShown),
    /// A client searched for tools.
    Searched(Search),
    /// The context of a client became known.
    ContextGiven(Context),
    /// Tools were recommended.
    Recommended(Recommendation),
    /// A client gave feedback on a tool.
    FeedbackGiven(Feedback),
    /// A run of the proxy ended without closing its open records.
    RunLost {
        /// The run.
        run: RunId,
        /// The time at which that was noticed.
        noticed_at: Timestamp,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_end_records_of_older_versions_are_readable() {
        let line = concat!(
            r#"{"record":"call_closed","id":"019b7ca9-8f2e-7101-8101-010101010101","#,
            r#""outcome":"ok","duration_us":2003000,"response_bytes":7}"#
        );
        let Record::CallClosed(end) = serde_json::from_str(line).unwrap() else {
            panic!("it is another record");
        };
        assert_eq!((end.duration_us, end.wait_us), (2_003_000, 0));
    }
}
