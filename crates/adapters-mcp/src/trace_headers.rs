//! The headers of W3C Trace Context, read from requests of clients and written to requests to
//! upstreams. No other header of a client is forwarded.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::trace_context::{self, TraceContext};

const TRACEPARENT: HeaderName = HeaderName::from_static(trace_context::TRACEPARENT);
const TRACESTATE: HeaderName = HeaderName::from_static(trace_context::TRACESTATE);

/// Returns the trace context of the headers; `None` if there is no `traceparent`, or more than one.
pub(crate) fn of_headers(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    // Several `tracestate` headers form one list.
    let states = headers.get_all(TRACESTATE).iter();
    let states: Option<Vec<&str>> = states.map(|state| state.to_str().ok()).collect();
    let state = states.map(|states| states.join(","));
    TraceContext::parse(parent, state.as_deref())
}

/// Returns `headers` with the trace context of the message, if it has one.
pub(crate) fn with_trace(headers: Arc<HeaderMap>, message: &Message) -> Arc<HeaderMap> {
    let Some(trace) = message.trace() else {
        return headers;
    };
    let mut headers = Arc::unwrap_or_clone(headers);
    if let Ok(parent) = HeaderValue::from_str(&trace.traceparent()) {
        headers.insert(TRACEPARENT, parent);
        // A configured `tracestate` would belong to another trace.
        headers.remove(TRACESTATE);
    }
    if let Some(Ok(state)) = trace.tracestate().map(HeaderValue::from_str) {
        headers.insert(TRACESTATE, state);
    }
    Arc::new(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(all: &[(&HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn repeated_tracestate_headers_are_joined_and_traceparents_ignored() {
        let read = of_headers(&headers(&[
            (&TRACEPARENT, PARENT),
            (&TRACESTATE, "a=1"),
            (&TRACESTATE, "b=2"),
        ]));
        assert_eq!(read.unwrap().tracestate(), Some("a=1,b=2"));
        let twice = headers(&[(&TRACEPARENT, PARENT), (&TRACEPARENT, PARENT)]);
        assert_eq!(of_headers(&twice), None);
        let odd_state = headers(&[(&TRACEPARENT, PARENT), (&TRACESTATE, "\u{e9}=1")]);
        assert_eq!(of_headers(&odd_state).unwrap().tracestate(), None);
        assert_eq!(of_headers(&headers(&[(&TRACESTATE, "a=1")])), None);
    }

    #[test]
    fn messages_without_trace_context_change_no_headers() {
        let message = Message::from_text(r#"{"id":1,"method":"m"}"#.into()).unwrap();
        let before = Arc::new(headers(&[(&TRACESTATE, "a=1")]));
        let after = with_trace(Arc::clone(&before), &message);
        assert!(Arc::ptr_eq(&before, &after));
        let trace = TraceContext::parse(PARENT, None).map(Arc::new);
        let after = with_trace(before, &message.with_trace(trace));
        assert_eq!(*after, headers(&[(&TRACEPARENT, PARENT)]));
    }
}
