//! The browser of whoever sits in front of the machine.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What opens an address on this system.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// Has the browser show `address`, which no shell reads. Whether it does is not waited for.
///
/// # Errors
///
/// Returns why the program that would do it cannot be started.
pub(super) fn open(address: &str) -> io::Result<()> {
    Command::new(OPENER)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // The browser outlives this program, even one that is interrupted.
        .process_group(0)
        .spawn()
        .map(drop)
}
