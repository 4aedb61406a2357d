//! Transparent huge pages, which this process does without and its children keep (Linux).
//!
//! With huge pages the kernel gives 2 MiB of memory for the first small object in them. A proxy has
//! many small objects, spread widely by its allocator: an idle one took four times the memory. The
//! setting belongs to the process and is inherited by the programs that it starts, so it is taken
//! back while one starts.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Whether this process turned huge pages off. Then its environment had not.
static IS_OFF_HERE: AtomicBool = AtomicBool::new(false);
/// Held while a child starts.
static STARTING: Mutex<()> = Mutex::new(());

/// Turns huge pages off for this process. Call it before memory is used, since pages stay as they
/// are. Without effect where the system has no such setting, or where they are off already.
pub fn turn_off() {
    #[cfg(target_os = "linux")]
    if let Ok(false) = rustix::thread::transparent_huge_pages_are_disabled() {
        let is_off = rustix::thread::disable_transparent_huge_pages(true).is_ok();
        IS_OFF_HERE.store(is_off, Ordering::Release);
    }
}

/// Starts a child with `start`, which inherits the setting of the environment.
pub(super) fn with_inherited_setting<T>(start: impl FnOnce() -> T) -> T {
    if !IS_OFF_HERE.load(Ordering::Acquire) {
        return start();
    }
    let _one_at_a_time = STARTING.lock();
    set(HugePages::Allowed);
    let started = start();
    set(HugePages::Off);
    started
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HugePages {
    Allowed,
    Off,
}

fn set(pages: HugePages) {
    let is_off = pages == HugePages::Off;
    // A failure leaves the setting as it is, which costs some memory or speed.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(is_off);
    #[cfg(not(target_os = "linux"))]
    let _ = is_off;
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Returns the line of the kernel about the setting of a process.
    fn setting(status: &str) -> String {
        let line = status.lines().find(|line| line.starts_with("THP_enabled"));
        line.unwrap_or_default().to_owned()
    }

    #[test]
    fn children_keep_the_setting_of_the_environment() {
        let own = || setting(&std::fs::read_to_string("/proc/self/status").unwrap());
        let child = || {
            let mut cat = Command::new("cat");
            let output = with_inherited_setting(|| cat.arg("/proc/self/status").output());
            setting(&String::from_utf8(output.unwrap().stdout).unwrap())
        };
        let before = own();
        turn_off();
        assert_eq!(own(), "THP_enabled:\t0");
        assert_eq!(child(), before);
        assert_eq!(own(), "THP_enabled:\t0");
    }
}
