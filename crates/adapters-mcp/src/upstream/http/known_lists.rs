//! Recent tool lists of one server. Servers send the same list again and again, and comparing it
//! with an earlier one takes a fraction of the time of parsing it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use riglm_domain::mcp::message::Message;
use riglm_ports::upstream::UpstreamError;

use super::reply;

/// The most lists that are kept; the oldest is dropped.
const MAX_LISTS: usize = 4;
/// The most bytes of all kept lists; the oldest is dropped.
const MAX_BYTES: usize = 8 << 20;
/// The sizes in bytes of the lists that are kept. Smaller ones are parsed as fast.
const KEPT_BYTES: std::ops::RangeInclusive<usize> = (4 << 10)..=MAX_BYTES;

/// Recent answers to `tools/list`.
#[derive(Debug, Default)]
pub(super) struct KnownLists(Mutex<VecDeque<Arc<Message>>>);

impl KnownLists {
    /// Parses the body of an answer to `tools/list`.
    ///
    /// # Errors
    ///
    /// As [`reply::parse`] does.
    pub(super) fn parse(&self, body: &Bytes) -> Result<Message, UpstreamError> {
        let is_kept = KEPT_BYTES.contains(&body.len());
        if is_kept {
            // Compared without the lock, because other sessions compare theirs.
            let known: Vec<Arc<Message>> = self.0.lock().iter().cloned().collect();
            let mut repeated = known.iter();
            let repeated = repeated.find_map(|known| Message::parse_repeated(body, known));
            if let Some(repeated) = repeated {
                return Ok(repeated);
            }
        }
        let message = reply::parse(body)?;
        let has_result = |part| message.result(part).is_some();
        if is_kept && message.single().is_some_and(has_result) {
            let mut known = self.0.lock();
            known.truncate(MAX_LISTS - 1);
            known.push_front(Arc::new(message.clone()));
            while known.iter().map(|list| list.raw().len()).sum::<usize>() > MAX_BYTES {
                known.pop_back();
            }
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: usize, tool: &str) -> Bytes {
        let tools = format!(
            r#"{{"name":"{tool}","description":"{}"}}"#,
            "x".repeat(5_000)
        );
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tools}]}}}}"#).into()
    }

    #[test]
    fn a_repeated_list_is_parsed_like_the_first() {
        let lists = KnownLists::default();
        for (id, tool) in [(1, "a"), (22, "a"), (3, "b"), (4, "a"), (5, "c"), (6, "b")] {
            let body = answer(id, tool);
            let (found, expected) = (lists.parse(&body).unwrap(), reply::parse(&body).unwrap());
            let part = found.single().unwrap();
            assert_eq!(found.raw(), expected.raw());
            assert_eq!(part.id(), expected.single().unwrap().id());
            assert_eq!(found.result(part), expected.result(part));
            assert_eq!(found.member(part, "tools"), expected.member(part, "tools"));
        }
        assert_eq!(lists.0.lock().len(), 3);
        let long = "x".repeat(MAX_BYTES - 10_000);
        lists.parse(&answer(1, &long)).unwrap();
        assert_eq!(lists.0.lock().len(), 1, "older lists make room");
        assert!(lists.parse(&Bytes::from("x".repeat(5_000))).is_err());
    }
}
