//! Points in time on the command line.

use std::str::FromStr;
use std::time::Duration;

use humantime_serde::re::humantime;
use jiff::Timestamp;

use crate::commands::moment::moment;

/// A point in time, absolute or relative to the present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// An absolute time.
    At(Timestamp),
    /// A duration before or after the present.
    Away(Duration),
}

/// The error for a text that is neither a duration nor a time.
#[derive(Debug, thiserror::Error)]
#[error(
    "expected a duration such as 30m, 2h or 7d, or a time such as 2026-01-31 or 2026-01-31T08:00:00Z"
)]
pub struct MomentError;

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(away) = humantime::parse_duration(text) {
            return Ok(Self::Away(away));
        }
        moment(text).map(Self::At).map_err(|_| MomentError)
    }
}

impl Moment {
    /// Returns the time, with a duration counted back from `now`.
    #[must_use]
    pub fn ago(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Away(ago) => now.checked_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }

    /// Returns the time, with a duration counted forward from `now`.
    #[must_use]
    pub fn from_now(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Away(ahead) => now.checked_add(ahead).unwrap_or(Timestamp::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_timestamps_are_parsed_as_moments() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        for (text, expected) in [
            ("90m", "2026-01-02T01:34:05Z"),
            ("1day 2h", "2026-01-01T01:04:05Z"),
            ("2026-01-01", "2026-01-01T00:00:00Z"),
            ("2026-01-01 07:30", "2026-01-01T07:30:00Z"),
            ("2026-01-01T07:30:00+01:00", "2026-01-01T06:30:00Z"),
        ] {
            let moment: Moment = text.parse().unwrap();
            assert_eq!(moment.ago(now).to_string(), expected, "{text}");
        }
        let week: Moment = "7d".parse().unwrap();
        assert_eq!(week.from_now(now).to_string(), "2026-01-09T03:04:05Z");
        let ages: Moment = "30000years".parse().unwrap();
        assert_eq!(ages.ago(now), Timestamp::MIN);
        assert_eq!(ages.from_now(now), Timestamp::MAX);
        for wrong in ["", "yesterday", "5", "-1h", "2026-13-01"] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
    }
}
