//! Reads the segments of one run in their order, while they may still grow.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use riglm_domain::record::Record;

use super::segment;

/// The most records that are applied in one transaction.
const MAX_BATCH_RECORDS: usize = 1_000;
/// The number of bytes after which a batch takes no further record.
const MAX_BATCH_BYTES: u64 = 1024 * 1024;
/// How much is read at a time.
const CHUNK_BYTES: u64 = 256 * 1024;

/// What the end of the last segment means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A line without its line break may still be completed.
    Growing,
    /// Nobody writes any more.
    Final,
}

/// Records that follow each other.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    /// How many bytes the records, the skipped lines and the line breaks take.
    pub(super) bytes: u64,
    /// How many lines were skipped because they are no records.
    pub(super) n_torn: u64,
}

impl Batch {
    /// Returns whether the batch ended because it is large enough, not because there is no more.
    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= MAX_BATCH_RECORDS || self.bytes >= MAX_BATCH_BYTES
    }

    fn take(&mut self, line: &[u8], n_bytes: usize) {
        self.bytes += n_bytes as u64;
        if line.is_empty() {
            return;
        }
        match serde_json::from_slice(line) {
            Ok(record) => self.records.push(record),
            Err(_) => self.n_torn += 1,
        }
    }
}

/// A place in the spool of one run, at the first record that was not read yet.
#[derive(Debug)]
pub(super) struct SpoolReader {
    run_dir: PathBuf,
    segment: u64,
    file: Option<File>,
    /// What was read from the segment and belongs to no batch yet.
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

    /// Returns the number of the segment that is read; nothing before it is needed any more.
    pub(super) fn segment(&self) -> u64 {
        self.segment
    }

    /// Reads on, up to the limits of a batch; an empty batch means that there is no more for now.
    ///
    /// # Errors
    ///
    /// Returns an error when the files cannot be read. No record is lost by it: those that were
    /// read stay pending.
    pub(super) fn next_batch(&mut self, end: End) -> io::Result<Batch> {
        let mut batch = Batch::default();
        loop {
            self.take_lines(&mut batch);
            if batch.is_full() {
                return Ok(batch);
            }
            // The order matters: a segment gets no more lines once its successor exists, so what
            // this read does not find after the successor was seen will never come.
            let has_successor = segment::path(&self.run_dir, self.segment + 1).exists();
            match self.read_chunk() {
                Ok(0) => {}
                Ok(_) => continue,
                // The lines that were taken are served before the error is reported.
                Err(_) if batch.bytes > 0 => return Ok(batch),
                Err(error) => return Err(error),
            }
            let successor = if has_successor {
                Some(self.segment + 1)
            } else if self.file.is_none() {
                self.oldest_after()?
            } else {
                None
            };
            if successor.is_some() || end == End::Final {
                let line = std::mem::take(&mut self.pending);
                batch.take(&line, line.len());
            }
            let Some(successor) = successor else {
                return Ok(batch);
            };
            self.segment = successor;
            self.file = None;
        }
    }

    fn take_lines(&mut self, batch: &mut Batch) {
        let mut taken = 0;
        while !batch.is_full() {
            let rest = &self.pending[taken..];
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                break;
            };
            batch.take(&rest[..length], length + 1);
            taken += length + 1;
        }
        self.pending.drain(..taken);
    }

    /// Returns how many bytes were read: 0 at the end of the segment and without it.
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

    /// Returns the oldest segment after the present one, which is not there: its records are
    /// rows already, and its writer deleted it.
    fn oldest_after(&self) -> io::Result<Option<u64>> {
        let numbers = segment::numbers(&self.run_dir)?;
        Ok(numbers.into_iter().find(|number| *number > self.segment))
    }
}
