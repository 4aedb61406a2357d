//! The messages of a JSON body: usually one. Some servers stream several, each on its own line,
//! after a record separator, or with nothing between them.

use bytes::{Buf, Bytes, BytesMut};
use reqwest::Response;
use riglm_ports::upstream::UpstreamError;

use super::endpoint::failure;
use riglm_adapters_programs::compact::compact;

/// The separator before each text of `application/json-seq` (RFC 7464).
pub(super) const RECORD_SEPARATOR: u8 = 0x1e;

/// The JSON texts of one response, each as soon as it is complete.
#[derive(Debug)]
pub(super) struct JsonStream {
    /// The source of more chunks, until it has ended.
    response: Option<Response>,
    /// Bytes that were received and not scanned yet.
    unread: Bytes,
    /// The size of the chunk that `unread` is the rest of.
    n_chunk: usize,
    /// The beginning of a text that came in earlier chunks.
    begun: BytesMut,
    boundary: TextScanner,
    limit: usize,
}

impl JsonStream {
    /// Reads the body of `response`, whose beginning `head` was already read, as texts of at most
    /// `limit` bytes.
    pub(super) fn new(head: Bytes, response: Response, limit: usize) -> Self {
        Self {
            response: Some(response),
            ..Self::of_body(head, limit)
        }
    }

    pub(super) fn of_body(body: Bytes, limit: usize) -> Self {
        Self {
            response: None,
            n_chunk: body.len(),
            unread: body,
            begun: BytesMut::new(),
            boundary: TextScanner::default(),
            limit,
        }
    }

    /// Returns the bytes of the next text; `None` at the end of the body. A text that is truncated
    /// by the end of the body is returned as it is.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::TooLarge`], [`UpstreamError::Garbled`] for data that begins neither
    /// an object nor an array, or [`UpstreamError::Lost`]; the stream is over then.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        loop {
            if let Some(text) = self.read_on()? {
                return Ok(Some(text));
            }
            let Some(response) = &mut self.response else {
                return Ok(self.rest());
            };
            match response.chunk().await.map_err(|error| failure(&error))? {
                Some(chunk) => self.take(chunk),
                None => self.response = None,
            }
        }
    }

    fn take(&mut self, chunk: Bytes) {
        self.n_chunk = chunk.len();
        self.unread = chunk;
    }

    /// Scans the received bytes; returns a text if it is complete.
    fn read_on(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        if self.begun.is_empty() && !self.boundary.is_within() {
            let n_between = self.unread.iter().take_while(|byte| is_between(**byte));
            let n_between = n_between.count();
            self.unread.advance(n_between);
        }
        let end = self.boundary.find(&self.unread)?;
        let n_bytes = self.begun.len() + end.unwrap_or(self.unread.len());
        if n_bytes > self.limit {
            return Err(UpstreamError::TooLarge { limit: self.limit });
        }
        let Some(end) = end else {
            self.begun.extend_from_slice(&self.unread);
            self.unread = Bytes::new();
            return Ok(None);
        };
        let last = self.unread.split_to(end);
        if self.begun.is_empty() {
            // The whole text is in one chunk. It need not be copied if it is most of the chunk.
            return Ok(Some(compact(last, self.n_chunk)));
        }
        self.begun.extend_from_slice(&last);
        // The next text begins in a new buffer.
        Ok(Some(std::mem::take(&mut self.begun).freeze()))
    }

    /// Returns the text that is truncated by the end of the body.
    fn rest(&mut self) -> Option<Bytes> {
        self.boundary = TextScanner::default();
        let rest = std::mem::take(&mut self.begun).freeze();
        (!rest.is_empty()).then_some(rest)
    }
}

/// Returns whether a byte can be between two texts.
pub(super) fn is_between(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | RECORD_SEPARATOR)
}

/// The scan state of an object or an array. It only finds the end of a text and does not validate
/// it.
#[derive(Debug, Default)]
struct TextScanner {
    depth: usize,
    place: ScanState,
}

/// The syntactic context of the next byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    #[default]
    Structure,
    Text,
    Escaped,
}

impl TextScanner {
    /// Returns whether a text has begun and not ended.
    fn is_within(&self) -> bool {
        self.depth > 0
    }

    /// Returns the position in `bytes` after the end of the text; `None` if the text does not end
    /// there.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Garbled`] when no object or array begins.
    fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, UpstreamError> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            match self.place {
                ScanState::Escaped => self.place = ScanState::Text,
                ScanState::Text => {
                    // Most bytes of a string are not special, so search for the next one that is.
                    let rest = &bytes[at - 1..];
                    let Some(n_skipped) = memchr::memchr2(b'"', b'\\', rest) else {
                        return Ok(None);
                    };
                    at += n_skipped;
                    self.place = match rest[n_skipped] {
                        b'"' => ScanState::Structure,
                        _ => ScanState::Escaped,
                    };
                }
                ScanState::Structure => match byte {
                    b'{' | b'[' => self.depth += 1,
                    _ if self.depth == 0 => {
                        return Err(UpstreamError::Garbled { reason: "not JSON" });
                    }
                    b'"' => self.place = ScanState::Text,
                    b'}' | b']' => {
                        self.depth -= 1;
                        if self.depth == 0 {
                            return Ok(Some(at));
                        }
                    }
                    _ => {}
                },
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `body` in chunks of `size` bytes; returns the texts, and whether the whole body was
    /// read.
    fn texts(body: &str, size: usize, limit: usize) -> (Vec<String>, Result<(), UpstreamError>) {
        let mut stream = JsonStream::of_body(Bytes::new(), limit);
        let mut texts = Vec::new();
        let mut keep = |text: Bytes| texts.push(String::from_utf8(text.to_vec()).unwrap());
        for chunk in body.as_bytes().chunks(size) {
            stream.take(Bytes::copy_from_slice(chunk));
            loop {
                match stream.read_on() {
                    Ok(Some(text)) => keep(text),
                    Ok(None) => break,
                    Err(error) => return (texts, Err(error)),
                }
            }
        }
        stream.rest().into_iter().for_each(keep);
        (texts, Ok(()))
    }

    #[test]
    fn texts_are_found_across_chunk_boundaries() {
        let first = "{\"a\" : \"}\\\"{\\\\\",\n \"b\":[{}, \"\u{e9}\"]}";
        let second = r#"[{"c":1.0e3},[]]"#;
        for between in ["\n", "", "\r\n \t", "\n\u{1e}"] {
            let body = format!("\u{1e}\n{first}{between}{second}{between}{first}\n");
            for size in [1, 2, 3, 7, body.len()] {
                let (found, end) = texts(&body, size, 100);
                assert_eq!(found, [first, second, first], "{between:?} by {size}");
                assert!(end.is_ok());
            }
        }
    }

    #[test]
    fn a_short_text_keeps_no_large_body_in_memory() {
        let large = format!("[\"{}\"]", "x".repeat(1 << 20));
        let body = Bytes::from(format!("{{}}{large}{{}}"));
        let mut stream = JsonStream::of_body(body.clone(), 2 << 20);
        let mut is_kept = || {
            let text = stream.read_on().unwrap().unwrap();
            body.as_ptr_range().contains(&text.as_ptr())
        };
        assert_eq!([is_kept(), is_kept(), is_kept()], [false, true, false]);
        // Nor does a text in pieces after a large one.
        let mut stream = JsonStream::of_body(Bytes::new(), 2 << 20);
        let mut read = |chunk: &str| {
            stream.take(Bytes::copy_from_slice(chunk.as_bytes()));
            stream.read_on().unwrap()
        };
        assert_eq!(read("[\""), None);
        assert!(read(&large[2..]).is_some());
        assert_eq!(read("{"), None);
        let short = read("}").unwrap().try_into_mut().unwrap();
        assert!(short.capacity() < 1_000, "{} bytes", short.capacity());
    }

    #[test]
    fn truncated_texts_are_passed_unchanged() {
        let (found, end) = texts("{}\n{\"a\":", 3, 100);
        assert_eq!(found, ["{}", "{\"a\":"]);
        assert!(end.is_ok());
        assert!(texts(" \n", 1, 100).0.is_empty());
    }

    #[test]
    fn size_limits_apply_to_each_text_separately() {
        let body = format!("{{\"a\":\"{}\"}}\n", "x".repeat(92));
        assert_eq!(texts(&body.repeat(3), 16, 100).0.len(), 3);
        let too_large = Err(UpstreamError::TooLarge { limit: 99 });
        assert_eq!(texts(&body, 16, 99), (Vec::new(), too_large.clone()));
        assert_eq!(texts(&body, 1_000, 99), (Vec::new(), too_large));
    }

    #[test]
    fn values_other_than_objects_and_arrays_end_the_stream() {
        for body in ["{} true", "{}\nnull", "{}}", "{}<html>"] {
            let (found, end) = texts(body, 1, 100);
            assert_eq!(found, ["{}"], "{body}");
            let garbled = UpstreamError::Garbled { reason: "not JSON" };
            assert_eq!(end, Err(garbled), "{body}");
        }
    }
}
