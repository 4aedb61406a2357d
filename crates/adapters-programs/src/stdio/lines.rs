//! Splitting of a byte stream into lines of bounded length.

use std::fmt::Display;
use std::io;

use bytes::{Bytes, BytesMut};
use riglm_domain::id::UpstreamName;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::compact::compact;

/// The minimum free space for a read, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// The number of bytes that are kept of the end of a line over the limit.
const TAIL_BYTES: usize = 256;
/// A buffer that grew beyond this size for a long line is not reused.
const MAX_KEPT_BYTES: usize = 256 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Bytes),
    /// Both ends of a line over the limit; the middle was dropped.
    Cut {
        /// The first bytes, as many as the limit allows.
        head: Bytes,
        /// The last bytes of the line.
        tail: Bytes,
    },
}

/// Reads lines that end with LF or CRLF. The last line may have no ending. A line does not keep a
/// buffer in memory that is much larger than itself.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: R,
    limit: usize,
    buffer: BytesMut,
    /// The number of bytes of `buffer` that are known to hold no line feed.
    scanned: usize,
    /// The maximum memory of `buffer` and the lines before it together, in bytes.
    allocated: usize,
    /// The head of a line over the limit whose rest is being skipped.
    cut: Option<Bytes>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Returns the lines of `source`, of at most `limit` bytes each.
    pub(super) fn new(source: R, limit: usize) -> Self {
        Self {
            source,
            limit,
            buffer: BytesMut::new(),
            scanned: 0,
            allocated: 0,
            cut: None,
        }
    }

    /// Returns the next line; `None` at the end. Cancellation safe: dropping the future loses
    /// nothing.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.buffered_line() {
                return Ok(Some(line));
            }
            if self.buffer.is_empty() && self.buffer.capacity() > MAX_KEPT_BYTES {
                self.buffer = BytesMut::new();
            }
            let before = self.buffer.capacity();
            self.buffer.reserve(READ_BYTES);
            if self.buffer.capacity() != before {
                self.allocated = self.buffer.capacity();
            }
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                return Ok(self.last_line());
            }
        }
    }

    fn buffered_line(&mut self) -> Option<Line> {
        if let Some(found) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
            let mut line = self.buffer.split_to(self.scanned + found + 1);
            self.scanned = 0;
            line.truncate(line.len() - 1);
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            return Some(self.finish_line(line.freeze()));
        }
        self.scanned = self.buffer.len();
        if self.cut.is_none() && self.buffer.len() > self.limit {
            self.cut = Some(self.buffer.split_to(self.limit).freeze());
        }
        if self.cut.is_some() {
            let skipped = self.buffer.len().saturating_sub(TAIL_BYTES);
            let _ = self.buffer.split_to(skipped);
            self.scanned = self.buffer.len();
        }
        None
    }

    fn last_line(&mut self) -> Option<Line> {
        self.scanned = 0;
        let line = self.buffer.split().freeze();
        if line.is_empty() && self.cut.is_none() {
            return None;
        }
        Some(self.finish_line(line))
    }

    fn finish_line(&mut self, line: Bytes) -> Line {
        let tail = |line: &Bytes| line.slice(line.len().saturating_sub(TAIL_BYTES)..);
        match self.cut.take() {
            Some(head) => Line::Cut {
                head,
                tail: tail(&line),
            },
            None if line.len() > self.limit => Line::Cut {
                head: line.slice(..self.limit),
                tail: tail(&line),
            },
            None => Line::Whole(compact(line, self.allocated)),
        }
    }
}

/// The output of a server that is not a message, over one connection or exchange. It is skipped, and
/// logged once as a warning, because a server can send any amount of it and must not fill the log.
#[derive(Debug, Default)]
pub struct SkippedOutput {
    n: usize,
}

impl SkippedOutput {
    /// Counts a skipped text, and logs the reason: the first time as a warning.
    pub fn note(&mut self, upstream: &UpstreamName, error: &impl Display) {
        self.n = self.n.saturating_add(1);
        if self.n == 1 {
            tracing::warn!(
                %upstream,
                "upstream {upstream}: skipped invalid output: {error} (later cases are logged at \
                 debug)"
            );
        } else {
            tracing::debug!(%upstream, "upstream {upstream}: skipped invalid output: {error}");
        }
    }

    /// Returns the number of skipped texts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(source: &[u8], limit: usize) -> Vec<Line> {
        let mut lines = Lines::new(source, limit);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn both_line_endings_and_a_missing_one_are_read() {
        assert_eq!(
            lines(b"a\r\n\nbc\nd", 10).await,
            [whole("a"), whole(""), whole("bc"), whole("d")]
        );
    }

    #[tokio::test]
    async fn oversized_lines_keep_their_head_and_tail() {
        let long = ["head", &"x".repeat(100_000), "tail\nnext\n"].concat();
        let found = lines(long.as_bytes(), 4).await;
        let [Line::Cut { head, tail }, next] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(head.as_ref(), b"head");
        assert!(tail.len() <= TAIL_BYTES && tail.ends_with(b"xtail"));
        assert_eq!(*next, whole("next"));
    }

    #[tokio::test]
    async fn a_short_line_keeps_no_large_buffer_in_memory() {
        let long = "x".repeat(1 << 20);
        let text = format!("{long}\n{}\n", "y".repeat(20_000));
        let found = lines(text.as_bytes(), 4 << 20).await;
        assert_eq!(found.len(), 2);
        for (line, expected) in found.into_iter().zip([1 << 20, 20_000]) {
            let Line::Whole(line) = line else {
                panic!("the lines are whole");
            };
            assert_eq!(line.len(), expected);
            let kept = line.try_into_mut().unwrap().capacity();
            assert!(kept <= 4 * expected, "{kept} bytes for {expected}");
        }
    }

    #[tokio::test]
    async fn memory_stays_bounded_while_a_line_is_skipped() {
        let long = vec![b'x'; 4 * 1024 * 1024];
        let mut lines = Lines::new(long.as_slice(), 1024);
        let Some(Line::Cut { head, .. }) = lines.next().await.unwrap() else {
            panic!("the line is over the limit");
        };
        assert_eq!(head.len(), 1024);
        assert!(lines.buffer.capacity() <= MAX_KEPT_BYTES);
    }
}
