//! Detection of the era of a message: revision 2026-07-28, or the revisions before it.
//!
//! A client that supports both tries the newer one first and may fall back to a handshake, over one
//! connection. Once a handshake was answered, all messages belong to its session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use http::header::HeaderMap;
use riglm_domain::mcp::message::{Message, MessageKind};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Revision;

/// The rules of an exchange.
#[derive(Debug)]
pub(super) enum Era {
    /// The rules of a session: id and revision belong to the link, streams can be resumed, and a
    /// cancellation is a message.
    Legacy,
    /// The rules of revision 2026-07-28: the request is self-contained, and dropping it cancels it.
    Modern(HeaderMap),
}

/// The observed era of the messages of one connection.
#[derive(Debug, Default)]
pub(super) struct EraDetector {
    has_session: AtomicBool,
    /// The revision of the last request, if it named one.
    last: ArcSwapOption<Revision>,
}

impl EraDetector {
    /// Records that a handshake has set up a session.
    pub(super) fn begin_session(&self) {
        self.has_session.store(true, Ordering::Relaxed);
    }

    pub(super) fn end_session(&self) {
        self.has_session.store(false, Ordering::Relaxed);
    }

    /// Returns the modern revision of `message`; `None` if it belongs to a session.
    ///
    /// Requests name it. A notification without a revision uses the one of the request before it.
    pub(super) fn modern_revision(&self, message: &Message) -> Option<Arc<Revision>> {
        if self.has_session.load(Ordering::Relaxed) {
            return None;
        }
        let envelope = message.single()?;
        if envelope.is_response() {
            return None;
        }
        let named = match envelope.method() {
            Some(method::INITIALIZE) => None,
            _ => RequestMeta::read(message.params(envelope)).revision(),
        };
        let last = self.last.load_full();
        let revision = match (named, last) {
            (Some(named), Some(last)) if named == *last => return Some(last),
            (Some(named), _) => Some(Arc::new(named)),
            (None, last) if envelope.kind() == MessageKind::Notification => return last,
            (None, _) => None,
        };
        if envelope.kind() == MessageKind::Request {
            self.last.store(revision.clone());
        }
        revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(eras: &EraDetector, text: &str) -> Option<String> {
        let message = Message::from_text(text.into()).unwrap();
        let revision = eras.modern_revision(&message)?;
        Some(revision.as_str().to_owned())
    }

    const DISCOVER: &str = r#"{"id":1,"method":"server/discover","params":{"_meta":{
        "io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    const NOTIFICATION: &str = r#"{"method":"notifications/x"}"#;
    const INITIALIZE: &str = r#"{"id":2,"method":"initialize","params":{}}"#;

    #[test]
    fn notifications_use_the_revision_of_the_preceding_request() {
        let eras = EraDetector::default();
        let modern = Some("2026-07-28".to_owned());
        assert_eq!(revision(&eras, NOTIFICATION), None);
        assert_eq!(revision(&eras, DISCOVER), modern);
        assert_eq!(revision(&eras, NOTIFICATION), modern);
        assert_eq!(revision(&eras, r#"{"id":"s","result":{}}"#), None);
        assert_eq!(revision(&eras, INITIALIZE), None);
        assert_eq!(revision(&eras, NOTIFICATION), None);
    }

    #[test]
    fn messages_in_legacy_sessions_have_no_modern_revision() {
        let eras = EraDetector::default();
        eras.begin_session();
        assert_eq!(revision(&eras, DISCOVER), None);
        eras.end_session();
        assert!(revision(&eras, DISCOVER).is_some());
    }
}
