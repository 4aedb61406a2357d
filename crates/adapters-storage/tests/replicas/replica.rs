//! A process of this test binary that shares the database.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{Order, Place, Report};

/// The file in the working directory of a process that tells it what to do.
pub(crate) const ORDER: &str = "order.json";
/// What stands before what a process tells, on its line.
pub(crate) const MARK: &str = "replica: ";

/// A process that shares the database.
pub(crate) struct Replica {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Replica {
    /// Starts the process with this number.
    pub(crate) fn start(dir: &Path, place: Place, n: u8) -> Self {
        let dir = dir.join(n.to_string());
        std::fs::create_dir(&dir).unwrap();
        let order = serde_json::to_string(&Order { place, n }).unwrap();
        std::fs::write(dir.join(ORDER), order).unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["rounds::takes_part_as_it_is_told", "--exact"])
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

    /// Returns the next thing that the process tells.
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

    /// Lets the process go on.
    pub(crate) fn go(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    /// Returns what the process got, when it has ended.
    pub(crate) fn report(mut self) -> Report {
        let report = serde_json::from_str(&self.line()).unwrap();
        assert!(self.process.wait().unwrap().success());
        report
    }
}
