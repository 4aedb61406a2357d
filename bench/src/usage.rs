//! Processor time and memory of a process and its descendants, from `/proc`.
//!
//! Descendants that run this program are left out: they are upstreams that a proxy has started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Sum;
use std::ops::Add;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// The least time after a round until the processor time is read. Work after a response, such as
/// writing records, belongs to its request.
const SETTLING: Duration = Duration::from_millis(300);
/// The greatest time until then.
const SETTLING_MAX: Duration = Duration::from_secs(3);
/// The interval in which a settled program uses less than `QUIET`.
const QUIET_INTERVAL: Duration = Duration::from_millis(100);
const QUIET: Duration = Duration::from_millis(1);

/// The processor time of a tree of processes up to a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTime {
    /// Nanoseconds of each thread, by process and thread.
    threads: BTreeMap<(u32, u32), u64>,
    /// Nanoseconds of children that have ended, of all processes.
    ended: u64,
}

impl CpuTime {
    /// Reads the time of a process and its descendants.
    pub(crate) fn of_tree(root: u32) -> Self {
        let mut time = Self::default();
        for process in tree(root) {
            time.ended += process.ended_children;
            let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", process.id)) else {
                continue; // It has ended.
            };
            for task in tasks.flatten() {
                // In nanoseconds, from the scheduler. `stat` has a resolution of only 10 ms.
                let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
                let nanos = text.split(' ').next().and_then(|it| it.parse().ok());
                let thread = task.file_name().to_str().and_then(|it| it.parse().ok());
                if let (Some(nanos), Some(thread)) = (nanos, thread) {
                    time.threads.insert((process.id, thread), nanos);
                }
            }
        }
        time
    }

    /// Returns the time since an earlier moment.
    ///
    /// A thread that has ended in between is left out. A child that has ended counts, if its parent
    /// has waited for it.
    pub(crate) fn since(&self, before: &Self) -> Duration {
        let of_threads: u64 = self
            .threads
            .iter()
            .map(|(thread, now)| {
                now.saturating_sub(before.threads.get(thread).copied().unwrap_or(0))
            })
            .sum();
        let living: BTreeSet<u32> = self.threads.keys().map(|(process, _)| *process).collect();
        let counted_before: u64 = before
            .threads
            .iter()
            .filter(|((process, _), _)| !living.contains(process))
            .map(|(_, nanos)| nanos)
            .sum();
        let of_children = self
            .ended
            .saturating_sub(before.ended)
            .saturating_sub(counted_before);
        Duration::from_nanos(of_threads + of_children)
    }
}

/// Waits until a tree of processes is quiet and returns its processor time since `before`.
pub(crate) async fn settled_since(root: u32, before: &CpuTime) -> Duration {
    let mut time = CpuTime::of_tree(root);
    let mut waited = Duration::ZERO;
    loop {
        tokio::time::sleep(QUIET_INTERVAL).await;
        waited += QUIET_INTERVAL;
        let now = CpuTime::of_tree(root);
        let is_quiet = now.since(&time) < QUIET;
        time = now;
        if waited >= SETTLING && is_quiet || waited >= SETTLING_MAX {
            return time.since(before);
        }
    }
}

/// The resident memory of a tree of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// All resident pages, in KiB.
    pub(crate) rss_kib: u64,
    /// Those of them that belong to no file, in KiB.
    pub(crate) anonymous_kib: u64,
}

impl Memory {
    /// Reads the memory of a process and its descendants.
    pub(crate) fn of_tree(root: u32) -> Self {
        tree(root)
            .iter()
            .map(|process| {
                let file = format!("/proc/{}/smaps_rollup", process.id);
                Self::parse(&fs::read_to_string(file).unwrap_or_default())
            })
            .sum()
    }

    /// Returns the resident memory in MB.
    pub(crate) fn megabytes(&self) -> f64 {
        to_megabytes(self.rss_kib)
    }

    /// Returns the anonymous memory in MB.
    pub(crate) fn anonymous_megabytes(&self) -> f64 {
        to_megabytes(self.anonymous_kib)
    }

    fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Self {
            rss_kib: value("Rss:").unwrap_or(0),
            anonymous_kib: value("Anonymous:").unwrap_or(0),
        }
    }
}

impl Add for Memory {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rss_kib: self.rss_kib + other.rss_kib,
            anonymous_kib: self.anonymous_kib + other.anonymous_kib,
        }
    }
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^52")]
fn to_megabytes(kib: u64) -> f64 {
    kib as f64 * 1_024.0 / 1e6
}

/// One process of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    /// The process id.
    pub(crate) id: u32,
    parent: u32,
    group: u32,
    /// Whether it has ended, and its parent has not waited for it.
    is_zombie: bool,
    /// Nanoseconds of children that have ended.
    ended_children: u64,
    /// The time of the start, in ticks since the machine started.
    started: u64,
}

impl ProcessEntry {
    /// Reads the entry of a process that has not ended.
    pub(crate) fn read(id: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Returns whether the process has not ended. Its id may belong to another one by now.
    pub(crate) fn is_alive(&self) -> bool {
        Self::read(self.id).is_some_and(|now| now.started == self.started && !now.is_zombie)
    }

    /// Parses `/proc/PID/stat`. The name of the program may contain anything.
    fn parse(text: &str) -> Option<Self> {
        let id = text.split(' ').next()?.parse().ok()?;
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Some(Self {
            id,
            is_zombie: *fields.first()? == "Z",
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            ended_children: (number(13)? + number(14)?) * (1_000_000_000 / ticks),
            started: number(19)?,
        })
    }
}

/// Returns the process `root`, its descendants and the other members of its process group.
pub(crate) fn tree(root: u32) -> Vec<ProcessEntry> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let all: Vec<ProcessEntry> = processes
        .flatten()
        .filter_map(|entry| ProcessEntry::read(entry.file_name().to_str()?.parse().ok()?))
        .collect();
    let own = program_of(std::process::id());
    let mut found = descendants(root, &all);
    found.retain(|process| process.id == root || own.is_none() || program_of(process.id) != own);
    found
}

fn descendants(root: u32, all: &[ProcessEntry]) -> Vec<ProcessEntry> {
    let mut ids = BTreeSet::from([root]);
    loop {
        let before = ids.len();
        for process in all {
            if ids.contains(&process.parent) || process.group == root {
                ids.insert(process.id);
            }
        }
        if ids.len() == before {
            break;
        }
    }
    let mut found = all.to_vec();
    found.retain(|process| ids.contains(&process.id));
    found
}

fn program_of(process: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/exe")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(threads: &[((u32, u32), u64)], ended: u64) -> CpuTime {
        CpuTime {
            threads: threads.iter().copied().collect(),
            ended,
        }
    }

    #[test]
    fn time_of_new_and_old_threads_counts() {
        let before = time(&[((1, 1), 100), ((1, 2), 50)], 0);
        let now = time(&[((1, 1), 130), ((1, 3), 7)], 0);
        assert_eq!(now.since(&before), Duration::from_nanos(37));
    }

    #[test]
    fn children_that_ended_count_only_since_the_earlier_moment() {
        let before = time(&[((1, 1), 100), ((2, 2), 50)], 10);
        let now = time(&[((1, 1), 100)], 10 + 80);
        assert_eq!(now.since(&before), Duration::from_nanos(30));
    }

    #[test]
    fn entries_are_read_whatever_the_name_of_the_program() {
        let text = "42 (a) b (c) S 7 8 8 0 -1 4194560 1 2 3 4 5 6 100 200 20 0 1 0 999 0 0";
        let entry = ProcessEntry::parse(text).unwrap();
        assert_eq!((entry.id, entry.parent, entry.group), (42, 7, 8));
        assert_eq!(entry.started, 999);
        assert!(entry.ended_children >= 3_000_000);
        assert_eq!(ProcessEntry::parse("42 (x"), None);
    }

    #[test]
    fn trees_contain_descendants_and_members_of_the_group() {
        let process = |id, parent, group| ProcessEntry {
            id,
            parent,
            group,
            is_zombie: false,
            ended_children: 0,
            started: 0,
        };
        let all = [
            process(12, 11, 12),
            process(1, 0, 1),
            process(10, 1, 10),
            process(11, 10, 11),
            process(13, 1, 10),
            process(14, 1, 14),
        ];
        let ids: Vec<u32> = descendants(10, &all).iter().map(|it| it.id).collect();
        assert_eq!(ids, [12, 10, 11, 13]);
    }

    #[test]
    fn memory_is_read_from_the_summary() {
        let text = "5581-7fff ---p 00000000 00:00 0 [rollup]\nRss:    1234 kB\nPss: 1 kB\nAnonymous:  34 kB\n";
        let memory = Memory::parse(text);
        assert_eq!((memory.rss_kib, memory.anonymous_kib), (1_234, 34));
    }
}
