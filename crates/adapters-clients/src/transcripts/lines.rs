//! A reader of files with one JSON object per line.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

/// The longest line that is parsed, in bytes.
pub(super) const MAX_LINE_BYTES: u64 = 16 << 20;

const BUFFER_BYTES: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads lines with at most [`MAX_LINE_BYTES`] in memory.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    n_bytes: u64,
}

/// A line that is not empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TextLine<'a> {
    /// A line that ends with a line feed. Bytes that are not UTF-8 are replaced.
    Whole(Cow<'a, str>),
    /// The last bytes of the file, without a line feed. The client may still write the rest.
    Last(Cow<'a, str>),
    /// The line is too long and was skipped.
    TooLong,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, reader),
            line: Vec::new(),
            n_bytes: 0,
        }
    }

    /// Returns the number of bytes of the lines so far.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Returns the next line that is not empty, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system.
    pub(super) fn next(&mut self) -> io::Result<Option<TextLine<'_>>> {
        loop {
            let is_first = self.n_bytes == 0;
            self.line.clear();
            let mut bounded = self.reader.by_ref().take(MAX_LINE_BYTES);
            let n_read = bounded.read_until(b'\n', &mut self.line)?;
            if n_read == 0 {
                return Ok(None);
            }
            self.n_bytes += n_read as u64;
            let is_whole = self.line.ends_with(b"\n");
            if !is_whole && n_read as u64 == MAX_LINE_BYTES {
                self.n_bytes += self.reader.skip_until(b'\n')? as u64;
                return Ok(Some(TextLine::TooLong));
            }
            if is_first && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
            if !self.line.trim_ascii().is_empty() {
                let text = String::from_utf8_lossy(self.line.trim_ascii());
                return Ok(Some(if is_whole {
                    TextLine::Whole(text)
                } else {
                    TextLine::Last(text)
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut reader = LineReader::new(bytes);
        let mut seen = Vec::new();
        while let Some(line) = reader.next().unwrap() {
            seen.push(match line {
                TextLine::Whole(text) => text.into_owned(),
                TextLine::Last(text) => format!("last {text}"),
                TextLine::TooLong => "too long".to_owned(),
            });
        }
        assert_eq!(reader.n_bytes(), bytes.len() as u64);
        seen
    }

    #[test]
    fn lines_are_trimmed_and_empty_ones_left_out() {
        assert_eq!(lines(b""), Vec::<String>::new());
        assert_eq!(lines(b"\xef\xbb\xbfa\n\n \r\nb\r\nc"), ["a", "b", "last c"]);
        assert_eq!(lines(b"a\xffb\n"), ["a\u{fffd}b"]);
    }

    #[test]
    fn long_lines_are_skipped_and_the_next_one_is_read() {
        let longest = usize::try_from(MAX_LINE_BYTES).unwrap();
        for (n, expected) in [(longest - 1, 3), (longest, 2), (longest * 2, 2)] {
            let text = [b"a\n".as_slice(), &vec![b'x'; n], b"\nb\n"].concat();
            let seen = lines(&text);
            assert_eq!(seen.len(), 3);
            assert_eq!(
                seen.iter().filter(|line| *line != "too long").count(),
                expected
            );
            assert_eq!(seen[2], "b");
        }
    }
}
