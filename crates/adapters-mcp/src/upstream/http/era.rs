//! Telling messages of revision 2026-07-28 from those of the revisions before it.
//!
//! A client that speaks both tries the newer one first and may fall back to a handshake, over one
//! connection. Once a handshake was answered everything belongs to its session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use http::header::HeaderMap;
use riglm_domain::message::{Kind, Message};
use riglm_domain::meta::RequestMeta;
use riglm_domain::protocol::Revision;

/// By which rules an exchange goes.
#[derive(Debug)]
pub(super) enum Era {
    /// Those of a session: ids and revision are the link's, streams can be resumed, and a
    /// cancellation is a message.
    Legacy,
    /// Those of revision 2026-07-28: the request says everything, and dropping it cancels it.
    Modern(HeaderMap),
}

/// What the messages of one connection have shown so far.
#[derive(Debug, Default)]
pub(super) struct Eras {
    has_session: AtomicBool,
    /// The revision of the last request, where it named one.
    last: ArcSwapOption<Revision>,
}

impl Eras {
    /// Takes note of whether a handshake has set up a session.
    pub(super) fn note_session(&self, has_session: bool) {
        self.has_session.store(has_session, Ordering::Relaxed);
    }

    /// Returns the revision by whose rules `message` goes, if it needs no session.
    ///
    /// Requests name it. A notification that names none goes with the request before it.
    pub(super) fn modern_revision(&self, message: &Message) -> Option<Arc<Revision>> {
        if self.has_session.load(Ordering::Relaxed) {
            return None;
        }
        let envelope = message.single()?;
        if envelope.is_response() {
            return None;
        }
        let named = match envelope.method() {
            Some("initialize") => None,
            _ => RequestMeta::read(message.params(envelope)).revision(),
        };
        let last = self.last.load_full();
        let revision = match (named, last) {
            (Some(named), Some(last)) if named == *last => return Some(last),
            (Some(named), _) => Some(Arc::new(named)),
            (None, last) if envelope.kind() == Kind::Notification => return last,
            (None, _) => None,
        };
        if envelope.kind() == Kind::Request {
            self.last.store(revision.clone());
        }
        revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(eras: &Eras, text: &str) -> Option<String> {
        let message = Message::from_text(text.into()).unwrap();
        let revision = eras.modern_revision(&message)?;
        Some(revision.as_str().to_owned())
    }

    const DISCOVER: &str = r#"{"id":1,"method":"server/discover","params":{"_meta":{
        "io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    const NOTIFICATION: &str = r#"{"method":"notifications/x"}"#;
    const INITIALIZE: &str = r#"{"id":2,"method":"initialize","params":{}}"#;

    #[test]
    fn a_notification_goes_with_the_request_before_it() {
        let eras = Eras::default();
        let modern = Some("2026-07-28".to_owned());
        assert_eq!(revision(&eras, NOTIFICATION), None);
        assert_eq!(revision(&eras, DISCOVER), modern);
        assert_eq!(revision(&eras, NOTIFICATION), modern);
        assert_eq!(revision(&eras, r#"{"id":"s","result":{}}"#), None);
        assert_eq!(revision(&eras, INITIALIZE), None);
        assert_eq!(revision(&eras, NOTIFICATION), None);
    }

    #[test]
    fn a_session_takes_everything() {
        let eras = Eras::default();
        eras.note_session(true);
        assert_eq!(revision(&eras, DISCOVER), None);
        eras.note_session(false);
        assert!(revision(&eras, DISCOVER).is_some());
    }
}
