//! A process of this test binary that shares the database.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{DatabasePlace, ReplicaOrder, ReplicaReport};

/// The file with the instructions, in the working directory of a process.
pub(crate) const ORDER: &str = "order.json";
/// The prefix of lines with results on standard output.
pub(crate) const MARK: &str = "replica: ";

/// A process that shares the database.
pub(crate) struct Replica {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Replica {
    /// Starts the process with this number.
    pub(crate) fn start(dir: &Path, place: DatabasePlace, n: u8) -> Self {
        let dir = dir.join(n.to_string());
        std::fs::create_dir(&dir).unwrap();
        let order = serde_json::to_string(&ReplicaOrder { place, n }).unwrap();
        std::fs::write(dir.join(ORDER), order).unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["rounds::replica_process_runs_its_rounds", "--exact"])
            .args(["--include-ignored", "--nocapture"])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    /// Returns the next line with this prefix from the process.
    pub(crate) fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let n_bytes = self.output.read_line(&mut line).unwrap();
            assert!(n_bytes > 0, "the process ended early");
            if let Some((_, told)) = line.trim_end().split_once(MARK) {
                return told.into();
            }
        }
    }

    /// Lets the process continue with the next round.
    pub(crate) fn go(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    /// Waits for the end of the process and returns its results.
    pub(crate) fn report(mut self) -> ReplicaReport {
        let report = serde_json::from_str(&self.line()).unwrap();
        assert!(self.process.wait().unwrap().success());
        report
    }
}
