//! The writer of lines to the newest segment of this run.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment;
use crate::config::Durability;
use crate::private_file;

/// The size in bytes after which a segment is followed by the next one.
const MAX_SEGMENT_BYTES: u64 = 4 * 1024 * 1024;

/// The newest segment, and the older files that may not be on disk yet.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    run_dir: PathBuf,
    durability: Durability,
    file: Arc<File>,
    number: u64,
    len: u64,
    /// The last line is incomplete, because a write failed halfway.
    is_torn: bool,
    is_closed: bool,
    /// Files and directories that must be flushed in addition to the newest segment.
    unflushed: Vec<Arc<File>>,
}

impl SegmentWriter {
    /// Creates the first segment in the directory of a run.
    pub(super) fn create(run_dir: &Path, durability: Durability) -> io::Result<Self> {
        let mut writer = Self {
            run_dir: run_dir.into(),
            durability,
            file: Arc::new(create_segment(run_dir, segment::FIRST)?),
            number: segment::FIRST,
            len: 0,
            is_torn: false,
            is_closed: false,
            unflushed: Vec::new(),
        };
        writer.flush_directory(run_dir);
        if let Some(spool_dir) = run_dir.parent() {
            writer.flush_directory(spool_dir);
        }
        Ok(writer)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the last line is incomplete.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    pub(super) fn newest(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Replaces the file of the newest segment, and returns the former one.
    #[cfg(test)]
    pub(super) fn replace(&mut self, file: Arc<File>) -> Arc<File> {
        std::mem::replace(&mut self.file, file)
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Appends lines, which end in line breaks, and adds the number of written bytes to
    /// `written`.
    ///
    /// After an error a part of them may be in the file. The next line then starts on a new
    /// line.
    pub(super) fn append(&mut self, lines: &[u8], written: &mut u64) -> io::Result<()> {
        if self.is_closed {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the journal is closed",
            ));
        }
        if self.len > MAX_SEGMENT_BYTES {
            // If no new file can be created, the current one continues to grow.
            drop(self.rotate());
        }
        // Ends the torn line, so that it does not corrupt this one.
        if self.is_torn {
            self.write(b"\n", written)?;
            self.is_torn = false;
        }
        self.write(lines, written)
    }

    /// Creates the next segment, to which all further lines go.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        let number = self.number + 1;
        let file = Arc::new(create_segment(&self.run_dir, number)?);
        let older = std::mem::replace(&mut self.file, file);
        self.number = number;
        self.len = 0;
        self.is_torn = false;
        if self.durability == Durability::Power {
            self.unflushed.push(older);
            self.flush_directory(&self.run_dir.clone());
        }
        Ok(())
    }

    /// Returns the files that must be flushed so that every current line survives a loss of power.
    pub(super) fn take_unflushed(&mut self) -> Vec<Arc<File>> {
        let mut files = std::mem::take(&mut self.unflushed);
        files.push(Arc::clone(&self.file));
        files
    }

    /// Returns files whose flush failed to the list of unflushed files.
    pub(super) fn put_unflushed(&mut self, files: Vec<Arc<File>>) {
        self.unflushed.extend(files);
    }

    /// Adds a directory to the next flush, so that its new entries survive.
    fn flush_directory(&mut self, dir: &Path) {
        if self.durability == Durability::Power {
            // Some systems cannot open a directory. Its entries need no flush there.
            self.unflushed.extend(File::open(dir).map(Arc::new));
        }
    }

    fn write(&mut self, mut bytes: &[u8], written: &mut u64) -> io::Result<()> {
        let mut file = self.file.as_ref();
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    self.len += n as u64;
                    *written += n as u64;
                    self.is_torn = !bytes.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn create_segment(run_dir: &Path, number: u64) -> io::Result<File> {
    private_file::options()
        .append(true)
        .create_new(true)
        .open(segment::path(run_dir, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> (SegmentWriter, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let writer = SegmentWriter::create(dir.path(), Durability::Process).unwrap();
        (writer, dir)
    }

    fn text(dir: &tempfile::TempDir, number: u64) -> String {
        std::fs::read_to_string(segment::path(dir.path(), number)).unwrap()
    }

    #[test]
    fn torn_lines_do_not_damage_the_next_line() {
        let (mut writer, dir) = writer();
        let mut written = 0;
        writer.append(b"one\n", &mut written).unwrap();
        // As on a disk that fills up in the middle of a line.
        writer.write(b"tw", &mut written).unwrap();
        writer.is_torn = true;
        writer.append(b"three\n", &mut written).unwrap();
        writer.append(b"four\n", &mut written).unwrap();
        assert_eq!(text(&dir, 1), "one\ntw\nthree\nfour\n");
        assert_eq!(written, text(&dir, 1).len() as u64);
    }

    #[test]
    fn a_refused_write_is_reported_and_writes_nothing() {
        let (mut writer, dir) = writer();
        let mut written = 0;
        let writable = Arc::clone(&writer.file);
        writer.file = Arc::new(File::open(segment::path(dir.path(), 1)).unwrap());
        assert!(writer.append(b"one\n", &mut written).is_err());
        assert_eq!(written, 0);
        writer.file = writable;
        writer.append(b"two\n", &mut written).unwrap();
        assert_eq!(text(&dir, 1), "two\n");
    }

    #[test]
    fn a_large_segment_is_followed_by_the_next() {
        let (mut writer, dir) = writer();
        let mut written = 0;
        writer.len = MAX_SEGMENT_BYTES + 1;
        writer.append(b"one\n", &mut written).unwrap();
        assert_eq!(
            (text(&dir, 1).as_str(), text(&dir, 2).as_str()),
            ("", "one\n")
        );
    }
}
