//! Opening a page in the browser of the user.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that opens an address with the default browser.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// The name of a file that leads to an address begins and ends with these.
const REDIRECT: [&str; 2] = ["open-", ".html"];

/// Opens an address that only this user may know in the browser: every user of the machine can read
/// the arguments of programs, so the browser gets a file in `folder`, which leads to the address.
/// The files of earlier calls are removed. The address must not have characters that HTML escapes.
///
/// # Errors
///
/// Returns the error of the file, or of starting the program.
pub(super) fn open_private(address: &str, folder: &Path) -> io::Result<()> {
    open(&redirect_page(address, folder)?.display().to_string())
}

/// Creates a page that leads to `address`, and returns its path.
fn redirect_page(address: &str, folder: &Path) -> io::Result<PathBuf> {
    let [prefix, suffix] = REDIRECT;
    for entry in folder.read_dir()?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix) && name.ends_with(suffix) {
            // Only its code is secret, and that was valid for a minute.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    // Readable by this user alone.
    let mut builder = tempfile::Builder::new();
    let mut page = builder.prefix(prefix).suffix(suffix).tempfile_in(folder)?;
    write!(
        page,
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={address}\"><title>riglm</title>"
    )?;
    let (_, path) = page.keep().map_err(|error| error.error)?;
    Ok(path)
}

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_private_address_is_in_one_file_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("riglm.db");
        std::fs::write(&kept, "").unwrap();
        let page = |code: &str| {
            redirect_page(&format!("http://127.0.0.1:1/#code={code}"), folder.path()).unwrap()
        };
        let (first, second) = (page("first"), page("second"));
        assert!(kept.exists() && !first.exists());
        let mode = second.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&second).unwrap();
        assert!(
            text.contains("url=http://127.0.0.1:1/#code=second"),
            "{text}"
        );
    }
}
