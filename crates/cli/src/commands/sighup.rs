//! SIGHUP, which has two meanings: the terminal of the process is gone or, if sent by a person or a
//! service manager, the configuration is to be reloaded.

use std::fs::File;
use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// The bit of SIGHUP (signal 1) in a signal mask.
const MASK: u64 = 1;

#[derive(Debug)]
pub(super) struct Hangup {
    signal: Signal,
    /// Whether the process ends with its terminal, as it would without this receiver.
    ends_with_terminal: bool,
}

impl Hangup {
    /// Listens to the signal.
    ///
    /// # Errors
    ///
    /// Returns the error of registering the handler.
    pub(super) fn new() -> io::Result<Self> {
        // Read before listening, which overrides the ignored state: nohup has the process outlive
        // the terminal by ignoring the signal.
        let ends_with_terminal = has_terminal() && !is_ignored();
        Ok(Self {
            signal: signal(SignalKind::hangup())?,
            ends_with_terminal,
        })
    }

    /// Notifies `asked` of each reload request. Returns when the terminal is gone and the process
    /// ends with it.
    pub(super) async fn follow(mut self, asked: Arc<Notify>) {
        while self.signal.recv().await.is_some() {
            if has_terminal() || !self.ends_with_terminal {
                asked.notify_one();
            } else {
                return;
            }
        }
        // Without further signals the process must go on, so this never returns.
        std::future::pending::<()>().await;
    }
}

/// Returns whether the process has a controlling terminal.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Returns whether SIGHUP was ignored at the start; `false` if unknown.
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
