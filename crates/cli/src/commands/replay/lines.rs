//! A reader of files with one JSON object per line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The longest accepted line, in bytes.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// A file that is read line by line, so that large files need little memory.
#[derive(Debug)]
pub(super) struct LineReader {
    path: PathBuf,
    reader: BufReader<File>,
    number: u64,
    line: Vec<u8>,
}

/// A line that is not empty.
#[derive(Debug)]
pub(super) struct NumberedLine<'a> {
    /// The line number, from 1.
    pub(super) number: u64,
    /// The text of the line; `None` if it is too long.
    pub(super) text: Option<&'a [u8]>,
}

impl LineReader {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            reader: BufReader::new(file),
            number: 0,
            line: Vec::new(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns to the first line.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        self.number = 0;
        let rewound = self.reader.rewind();
        rewound.with_context(|| format!("failed to read {} again", self.path.display()))
    }

    /// Returns the next line that is not empty, or `None` at the end.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<NumberedLine<'_>>> {
        loop {
            self.line.clear();
            let failed = |number: u64, path: &Path| {
                format!("failed to read line {number} of {}", path.display())
            };
            let mut bounded = self.reader.by_ref().take(MAX_LINE_BYTES);
            let n_read = bounded
                .read_until(b'\n', &mut self.line)
                .with_context(|| failed(self.number + 1, &self.path))?;
            if n_read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if n_read as u64 == MAX_LINE_BYTES && !self.line.ends_with(b"\n") {
                self.reader
                    .skip_until(b'\n')
                    .with_context(|| failed(self.number, &self.path))?;
                return Ok(Some(NumberedLine {
                    number: self.number,
                    text: None,
                }));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(Some(NumberedLine {
            number: self.number,
            text: Some(self.line.trim_ascii()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_empty_ones_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(usize::try_from(MAX_LINE_BYTES).unwrap() + 1);
        std::fs::write(file.path(), format!("a\n\n \nb\r\n{long}\nc")).unwrap();
        let mut lines = LineReader::open(file.path()).unwrap();
        for _ in 0..2 {
            let mut seen = Vec::new();
            while let Some(line) = lines.next().unwrap() {
                seen.push((line.number, line.text.map(<[u8]>::to_vec)));
            }
            let text = |text: &str| Some(text.as_bytes().to_vec());
            assert_eq!(
                seen,
                [(1, text("a")), (4, text("b")), (5, None), (6, text("c"))]
            );
            lines.restart().unwrap();
        }
    }
}
