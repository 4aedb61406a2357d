use std::time::{Duration, Instant};

use super::*;
use crate::transcripts::event::CallOutcome;

/// A transcript of any length that exists only as far as it is read.
struct Generator {
    n_left: u64,
    number: u64,
    pending: Vec<u8>,
}

impl Generator {
    fn of_bytes(n_bytes: u64) -> Self {
        Self {
            n_left: n_bytes,
            number: 0,
            pending: Vec::new(),
        }
    }

    /// A call, its result of about 4 KiB, and sometimes a message of the user or a broken line.
    fn next_lines(&self) -> String {
        let number = self.number;
        let time = Timestamp::from_second(1_780_000_000 + i64::try_from(number).unwrap()).unwrap();
        let output = "x\\n".repeat(1365);
        let extra = match number % 10 {
            0 => format!(
                r#"{{"type":"user","uuid":"m{number}","sessionId":"s","timestamp":"{time}","message":{{"content":"Text {number}"}}}}"#
            ),
            5 => "{broken".to_owned(),
            _ => String::new(),
        };
        format!(
            r#"{{"type":"assistant","uuid":"a{number}","sessionId":"s","timestamp":"{time}","message":{{"content":[{{"type":"tool_use","id":"t{number}","name":"mcp__docs__find","input":{{}}}}]}}}}
{{"type":"user","uuid":"r{number}","sessionId":"s","timestamp":"{time}","message":{{"content":[{{"type":"tool_result","tool_use_id":"t{number}","content":"{output}"}}]}}}}
{extra}
"#
        )
    }
}

impl Read for Generator {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.pending.is_empty() {
            let lines = self.next_lines().into_bytes();
            if lines.len() as u64 > self.n_left {
                return Ok(0);
            }
            self.n_left -= lines.len() as u64;
            self.number += 1;
            self.pending = lines;
        }
        let n = buffer.len().min(self.pending.len());
        buffer[..n].copy_from_slice(&self.pending[..n]);
        self.pending.drain(..n);
        Ok(n)
    }
}

struct Run {
    counts: ClientSummary,
    n_success: u64,
    n_reports: u64,
    elapsed: Duration,
}

fn run(stream: impl Read) -> Run {
    let options = ReadOptions::default();
    let mut n_success = 0;
    let mut on_event = |event| {
        if let TranscriptEvent::Call(call) = event {
            n_success += u64::from(call.outcome == CallOutcome::Success);
        }
    };
    let mut state = RunState {
        options: &options,
        on_event: &mut on_event,
        known: HashSet::new(),
        sessions: HashSet::new(),
    };
    let log = SessionLog::new(
        &mut state,
        TranscriptClient::ClaudeCode,
        "s",
        Timestamp::UNIX_EPOCH,
    );
    let mut counts = ClientSummary::default();
    let mut n_reports = 0;
    let started = Instant::now();
    let mut report = |_| n_reports += 1;
    read_stream(stream, ClaudeCodeFormat, log, &mut counts, &mut report).unwrap();
    Run {
        counts,
        n_success,
        n_reports,
        elapsed: started.elapsed(),
    }
}

/// Memory is bounded by construction: the stream is made while it is read, a line is dropped before
/// the next one is read, and an event is passed on when its call has a result. Only two hashes stay
/// for each line. The time grows with the bytes alone; the bound leaves room for a busy machine.
#[test]
fn large_transcripts_are_read_as_a_stream_in_linear_time() {
    let small = run(Generator::of_bytes(6 << 20));
    let large = run(Generator::of_bytes(48 << 20));
    let n_calls = large.counts.n_mcp_calls;
    assert!(n_calls > 10_000, "{n_calls}");
    assert_eq!(large.n_success, n_calls);
    assert_eq!(large.counts.n_messages, n_calls.div_ceil(10));
    assert_eq!(large.counts.skipped.malformed, (n_calls + 4) / 10);
    assert_eq!(large.counts.n_sessions, 1);
    assert!((40..=48).contains(&large.n_reports), "{}", large.n_reports);
    let limit = small.elapsed * 8 * 4 + Duration::from_secs(1);
    assert!(
        large.elapsed < limit,
        "{:?} {:?}",
        small.elapsed,
        large.elapsed
    );
}

#[test]
fn lines_beyond_the_limit_are_skipped_in_pieces() {
    let huge = io::repeat(b'x').take(200 << 20);
    let stream = huge.chain(&b"\n"[..]).chain(Generator::of_bytes(1 << 16));
    let run = run(stream);
    assert_eq!(run.counts.skipped.too_long, 1);
    assert!(run.counts.n_mcp_calls > 0);
}

#[test]
fn events_before_a_failure_are_passed_on() {
    struct Failure;
    impl Read for Failure {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let options = ReadOptions::default();
    let mut n_events = 0;
    let mut on_event = |_| n_events += 1;
    let mut state = RunState {
        options: &options,
        on_event: &mut on_event,
        known: HashSet::new(),
        sessions: HashSet::new(),
    };
    let log = SessionLog::new(
        &mut state,
        TranscriptClient::ClaudeCode,
        "s",
        Timestamp::UNIX_EPOCH,
    );
    let mut counts = ClientSummary::default();
    let stream = Generator::of_bytes(1 << 16).chain(Failure);
    let failed = read_stream(stream, ClaudeCodeFormat, log, &mut counts, &mut |_| {});
    assert!(failed.is_err());
    assert!(counts.n_mcp_calls > 0);
    assert_eq!(n_events, counts.n_mcp_calls + counts.n_messages);
}
