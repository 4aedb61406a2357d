//! Lines of bounded length from a pipe.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// A line from a pipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its ending.
    Whole(Vec<u8>),
    /// A line over the limit; its bytes were dropped.
    TooLong,
}

/// Reads lines that end with LF. The last line may have no ending.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: BufReader<R>,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Returns the lines of `source`, of at most `limit` bytes each.
    pub(super) fn new(source: R, limit: usize) -> Self {
        Self {
            source: BufReader::new(source),
            limit,
        }
    }

    /// Returns the next line; `None` at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let mut is_too_long = false;
        loop {
            let bytes = self.source.fill_buf().await?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let is_end_of_input = bytes.is_empty();
            is_too_long |= line.len() + part.len() > self.limit;
            if is_too_long {
                line = Vec::new();
            } else {
                line.extend_from_slice(part);
            }
            let n_read = end.map_or(bytes.len(), |end| end + 1);
            self.source.consume(n_read);
            if end.is_some() || (is_end_of_input && (is_too_long || !line.is_empty())) {
                return Ok(Some(if is_too_long {
                    Line::TooLong
                } else {
                    Line::Whole(line)
                }));
            }
            if is_end_of_input {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_over_the_limit_are_dropped_and_the_next_ones_are_read() {
        let input = b"one\n\nlonger than the limit\nlast".as_slice();
        let mut lines = Lines::new(input, 10);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(line);
        }
        let whole = |text: &str| Line::Whole(text.into());
        assert_eq!(
            read,
            [whole("one"), whole(""), Line::TooLong, whole("last")]
        );
    }
}
