//! SIGHUP, which says two things: that the terminal of the process is gone, and, sent by a person or
//! a service manager, that the configuration is to be loaded again.

use std::fs::File;
use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// The bit of SIGHUP, which is signal 1, in a mask of signals.
const MASK: u64 = 1;

/// The signal, and what it means to this process.
#[derive(Debug)]
pub(super) struct Hangup {
    signal: Signal,
    /// Whether the process ends with its terminal, as it would without this.
    ends_with_terminal: bool,
}

impl Hangup {
    /// Listens to the signal.
    ///
    /// # Errors
    ///
    /// Returns what keeps the signal from being listened to.
    pub(super) fn new() -> io::Result<Self> {
        // Who started the process may have asked, as nohup does, that it outlives the terminal;
        // listening makes that unseen.
        let ends_with_terminal = has_terminal() && !is_ignored();
        Ok(Self {
            signal: signal(SignalKind::hangup())?,
            ends_with_terminal,
        })
    }

    /// Notifies `asked` of each signal, and returns when one says that the terminal is gone with
    /// which the process is to end.
    pub(super) async fn follow(mut self, asked: Arc<Notify>) {
        while self.signal.recv().await.is_some() {
            if has_terminal() || !self.ends_with_terminal {
                asked.notify_one();
            } else {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Returns whether a terminal controls the process.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Returns whether the signal was ignored from the start; where that cannot be told, it was not.
fn is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_mask(&status).is_some_and(|mask| mask & MASK != 0)
}

fn ignored_mask(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_found() {
        let status = "Name:\triglm\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored_mask(status), Some(0x1001));
        assert_eq!(ignored_mask("Name:\triglm\n"), None);
    }
}
