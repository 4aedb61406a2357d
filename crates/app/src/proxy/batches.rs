//! The parts of JSON-RPC batches.

use std::collections::HashSet;

use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use serde_json::value::RawValue;

pub(super) fn request_alone(message: &Message, envelope: &Envelope) -> Option<Message> {
    if !message.is_batch() {
        return Some(message.clone());
    }
    let (method, id) = envelope.as_request()?;
    let params = message.params(envelope).unwrap_or("{}");
    let alone = Message::request(id, method, Some(params));
    let alone = alone.with_hints(message.hints().clone());
    Some(alone.with_trace(message.trace().cloned()))
}

/// Returns a message without the requests with these ids; the other parts of a batch keep their text.
/// Returns `None` if nothing is left.
pub(super) fn without_requests(message: &Message, ids: &[RequestId]) -> Option<Message> {
    if ids.is_empty() {
        return Some(message.clone());
    }
    let parts: Vec<&RawValue> = serde_json::from_slice(message.raw()).ok()?;
    let ids: HashSet<&RequestId> = ids.iter().collect();
    let is_left = |part: &Envelope| {
        let request = part.as_request();
        request.is_none_or(|(_, id)| !ids.contains(id))
    };
    let all = parts.iter().zip(message.envelopes());
    let left: Vec<&str> = all
        .filter(|(_, part)| is_left(part))
        .map(|(text, _)| text.get())
        .collect();
    if left.is_empty() {
        return None;
    }
    let rest = Message::from_text(format!("[{}]", left.join(","))).ok()?;
    let rest = rest.with_hints(message.hints().clone());
    Some(rest.with_trace(message.trace().cloned()))
}

#[cfg(test)]
mod tests {
    use riglm_domain::mcp::request_hints::extract_hints;

    use super::*;

    fn batch() -> Message {
        let text = r#"[ {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n":1.0}},
            {"method":"x", "jsonrpc":"2.0"},{"jsonrpc":"2.0","id":"1","method":"ping"}]"#;
        Message::from_text(text.into()).unwrap()
    }

    #[test]
    fn the_rest_of_a_batch_keeps_its_text() {
        let id = |json| RequestId::from_json(json).unwrap();
        let left = without_requests(&batch(), &[id("1")]).unwrap();
        assert!(left.is_batch());
        let expected =
            r#"[{"method":"x", "jsonrpc":"2.0"},{"jsonrpc":"2.0","id":"1","method":"ping"}]"#;
        assert_eq!(&**left.raw(), expected.as_bytes());
        let single = Message::from_text(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.into());
        assert!(without_requests(&single.unwrap(), &[id("1")]).is_none());
    }

    #[test]
    fn requests_are_extracted_from_batches_with_their_params() {
        let batch = batch();
        let message = request_alone(&batch, &batch.envelopes()[0]).unwrap();
        let part = message.single().unwrap();
        assert_eq!(message.params(part), Some(r#"{"n":1.0}"#));
        assert_eq!(part.id(), batch.envelopes()[0].id());
    }

    #[test]
    fn batch_remainders_keep_extracted_hints() {
        let text = r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.github.riglm/context":"write a file"}}},
            {"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
        let batch = extract_hints(Message::from_text(text.into()).unwrap());
        assert_eq!(batch.hints().context.as_deref(), Some("write a file"));
        let rest = without_requests(&batch, &[RequestId::from_json("2").unwrap()]).unwrap();
        assert_eq!(rest.hints().context, batch.hints().context);
    }
}
