//! Opening a page in the browser of the user.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The program that opens an address with the default browser.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// Opens `address` in the browser, without a shell. It does not wait for the browser.
///
/// # Errors
///
/// Returns the error of starting the program.
pub(super) fn open(address: &str) -> io::Result<()> {
    Command::new(OPENER)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // The browser outlives this program, even if the user interrupts it.
        .process_group(0)
        .spawn()
        .map(drop)
}
