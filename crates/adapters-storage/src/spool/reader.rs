//! A reader for the segments of one run in their order, which may still grow.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use riglm_domain::usage::record::Record;

use super::{line, segment};

/// The maximum number of records in one transaction. Counts and pages of indexes that many records
/// share are written once in each, so that larger transactions cost less.
const MAX_BATCH_RECORDS: usize = 8_000;
/// The number of bytes after which a batch takes no further record.
const MAX_BATCH_BYTES: u64 = 4 * 1024 * 1024;
// The number of bytes per read.
const CHUNK_BYTES: u64 = 256 * 1024;

/// The meaning of the end of the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentEnd {
    /// The writer lives: a line without its line break may still be completed.
    Growing,
    /// The writer is dead: the last line is complete or torn.
    Final,
}

#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    pub(super) records: Vec<Record>,
    /// The number of bytes of the records, the skipped lines and the line breaks.
    pub(super) bytes: u64,
    /// The number of lines that were skipped because they are not records.
    pub(super) n_torn: u64,
}

impl RecordBatch {
    /// Returns whether the batch ended because of its size limit, and not at the end of the data.
    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= MAX_BATCH_RECORDS || self.bytes >= MAX_BATCH_BYTES
    }

    fn take(&mut self, line: &[u8], n_bytes: usize) {
        self.bytes += n_bytes as u64;
        if line.trim_ascii().is_empty() {
            return;
        }
        match line::parse(line) {
            Ok(record) => self.records.push(record),
            Err(_) => self.n_torn += 1,
        }
    }
}

/// A position in the spool of one run, at the first record that was not read yet.
#[derive(Debug)]
pub(super) struct SpoolReader {
    run_dir: PathBuf,
    segment: u64,
    file: Option<File>,
    /// Bytes that were read from the segment and belong to no batch yet.
    pending: Vec<u8>,
}

impl SpoolReader {
    /// Starts at the oldest segment of the run.
    pub(super) fn new(run_dir: &Path) -> Self {
        Self {
            run_dir: run_dir.into(),
            segment: segment::FIRST,
            file: None,
            pending: Vec::new(),
        }
    }

    /// Returns the number of the current segment. Earlier segments are not needed any more.
    pub(super) fn segment(&self) -> u64 {
        self.segment
    }

    /// Reads the next batch, up to its limits. An empty batch means that there is no more for now.
    ///
    /// # Errors
    ///
    /// Returns an error when the files cannot be read. No record is lost by it: records that were
    /// already read stay pending.
    pub(super) fn next_batch(&mut self, end: SegmentEnd) -> io::Result<RecordBatch> {
        let mut batch = RecordBatch::default();
        loop {
            self.take_lines(&mut batch);
            if batch.is_full() {
                return Ok(batch);
            }
            match self.read_on(end, &mut batch) {
                Ok(true) => {}
                Ok(false) => return Ok(batch),
                // Return the complete lines first; the next call reports the error.
                Err(_) if batch.bytes > 0 => return Ok(batch),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a part of the segment or continues with the next one; returns whether there is more.
    fn read_on(&mut self, end: SegmentEnd, batch: &mut RecordBatch) -> io::Result<bool> {
        // The order matters: a segment gets no more lines once it has a successor. So data that
        // this read does not find, after the successor was seen, will never come.
        let successor = self.successor()?;
        if self.read_chunk()? > 0 {
            return Ok(true);
        }
        if successor.is_some() || end == SegmentEnd::Final {
            let line = std::mem::take(&mut self.pending);
            batch.take(&line, line.len());
        }
        let Some(successor) = successor else {
            return Ok(false);
        };
        self.segment = successor;
        self.file = None;
        Ok(true)
    }

    /// Returns the segment after the current one. Segments that the writer has applied and deleted
    /// are skipped.
    fn successor(&self) -> io::Result<Option<u64>> {
        let next = self.segment + 1;
        if segment::path(&self.run_dir, next).exists() {
            return Ok(Some(next));
        }
        if segment::path(&self.run_dir, self.segment).exists() {
            return Ok(None);
        }
        let numbers = segment::numbers(&self.run_dir)?;
        Ok(numbers.into_iter().find(|number| *number > self.segment))
    }

    fn take_lines(&mut self, batch: &mut RecordBatch) {
        let mut taken = 0;
        while !batch.is_full() {
            let mut rest = &self.pending[taken..];
            // Reading from memory does not fail.
            let length = rest.skip_until(b'\n').unwrap_or(0);
            let Some(line) = self.pending[taken..][..length].strip_suffix(b"\n") else {
                break;
            };
            batch.take(line, length);
            taken += length;
        }
        self.pending.drain(..taken);
    }

    /// Returns the number of bytes read: 0 at the end of the segment, or if it does not exist.
    fn read_chunk(&mut self) -> io::Result<usize> {
        if self.file.is_none() {
            match File::open(segment::path(&self.run_dir, self.segment)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                file => self.file = Some(file?),
            }
        }
        let Some(file) = &mut self.file else {
            return Ok(0);
        };
        file.take(CHUNK_BYTES).read_to_end(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use riglm_ports::contract::scene::{call, run, session};

    use super::*;

    fn record(n: u8) -> Record {
        Record::CallOpened(call(session(run(1), 1).id, n))
    }

    fn line(n: u8) -> String {
        serde_json::to_string(&record(n)).unwrap() + "\n"
    }

    fn write(dir: &tempfile::TempDir, number: u64, text: &str) {
        std::fs::write(segment::path(dir.path(), number), text).unwrap();
    }

    #[test]
    fn only_complete_lines_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut reader = SpoolReader::new(dir.path());
        assert_eq!(reader.next_batch(SegmentEnd::Growing).unwrap().bytes, 0);
        let (one, two) = (line(1), line(2));
        let (start, rest) = two.split_at(9);
        write(&dir, 1, &(one.clone() + start));
        let batch = reader.next_batch(SegmentEnd::Growing).unwrap();
        assert_eq!(
            (batch.records, batch.bytes),
            (vec![record(1)], one.len() as u64)
        );
        write(&dir, 1, &(one + start + rest));
        let batch = reader.next_batch(SegmentEnd::Growing).unwrap();
        assert_eq!(
            (batch.records, batch.bytes),
            (vec![record(2)], two.len() as u64)
        );
        assert_eq!(batch.n_torn, 0);
    }

    #[test]
    fn segments_deleted_under_the_reader_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut reader = SpoolReader::new(dir.path());
        write(&dir, 3, &line(3));
        assert_eq!(
            reader.next_batch(SegmentEnd::Growing).unwrap().records,
            [record(3)]
        );
        // The writer continued with the fifth segment and has applied the third and the fourth.
        segment::delete(dir.path(), 3).unwrap();
        write(&dir, 5, &line(5));
        assert_eq!(
            reader.next_batch(SegmentEnd::Growing).unwrap().records,
            [record(5)]
        );
        assert_eq!(reader.segment(), 5);
    }

    #[test]
    fn batches_are_limited_and_continue_in_order() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, 1, &line(1).repeat(MAX_BATCH_RECORDS + 1));
        write(&dir, 2, &line(2));
        let mut reader = SpoolReader::new(dir.path());
        let batch = reader.next_batch(SegmentEnd::Final).unwrap();
        assert!(batch.is_full());
        assert_eq!(
            (batch.records.len(), reader.segment()),
            (MAX_BATCH_RECORDS, 1)
        );
        let batch = reader.next_batch(SegmentEnd::Final).unwrap();
        assert_eq!(batch.records, [record(1), record(2)]);
        assert_eq!(reader.next_batch(SegmentEnd::Final).unwrap().bytes, 0);
    }

    #[test]
    fn torn_final_lines_are_skipped_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, 1, &(line(1) + "{\"record\""));
        write(&dir, 2, &(line(2) + "{\"rec"));
        let batch = SpoolReader::new(dir.path())
            .next_batch(SegmentEnd::Final)
            .unwrap();
        assert_eq!(
            (batch.records, batch.n_torn),
            (vec![record(1), record(2)], 2)
        );
    }
}
