//! The machine and the moment of a measurement, for the head of its report.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine and the day of a measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// The model of the processor.
    pub(crate) cpu: String,
    /// The number of cores of the machine.
    pub(crate) n_cores: usize,
    /// The release of the kernel.
    pub(crate) kernel: String,
    /// The date in UTC.
    pub(crate) date: String,
}

impl Machine {
    /// Reads the description of this machine.
    pub(crate) fn this() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(':'));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: model
                .map_or("unknown processor", |(_, name)| name.trim())
                .into(),
            n_cores: cpu
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            kernel: kernel.trim().into(),
            date: today(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            cpu,
            n_cores,
            kernel,
            date,
        } = self;
        write!(formatter, "{cpu}, {n_cores} cores, Linux {kernel}, {date}")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a report names the day, and this program has no ports"
)]
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    date_of_day(since.map_or(0, |since| since.as_secs() / 86_400))
}

/// Returns the date of a day, counted from 1970-01-01.
fn date_of_day(day: u64) -> String {
    // The algorithm of Howard Hinnant's `civil_from_days`: years begin in March, and eras have 400
    // years.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (day, date) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (20_512, "2026-02-28"),
            (20_513, "2026-03-01"),
            (20_818, "2026-12-31"),
        ] {
            assert_eq!(date_of_day(day), date);
        }
    }
}
