//! The pause of the proxy: while it lasts, lists are shown whole and safeguards do nothing.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whether the proxy is paused. In the configuration, it is `true`, `false`, or the time at which
/// the pause ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pause {
    /// Not paused.
    #[default]
    Off,
    /// Paused until the operator resumes.
    On,
    /// Paused until this time.
    Until(Timestamp),
}

impl Pause {
    /// Returns whether the proxy is paused at `now`.
    #[must_use]
    pub fn holds_at(self, now: Timestamp) -> bool {
        match self {
            Self::Off => false,
            Self::On => true,
            Self::Until(end) => now < end,
        }
    }

    /// Returns the time at which the pause ends by itself.
    #[must_use]
    pub fn end(self) -> Option<Timestamp> {
        match self {
            Self::Until(end) => Some(end),
            Self::Off | Self::On => None,
        }
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("false"),
            Self::On => f.write_str("true"),
            Self::Until(end) => write!(f, "{end}"),
        }
    }
}

impl FromStr for Pause {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "true" => Ok(Self::On),
            "false" => Ok(Self::Off),
            end => end.parse().map(Self::Until),
        }
    }
}

impl Serialize for Pause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::On => serializer.serialize_bool(true),
            Self::Until(end) => serializer.collect_str(end),
        }
    }
}

impl<'de> Deserialize<'de> for Pause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PauseVisitor)
    }
}

struct PauseVisitor;

impl Visitor<'_> for PauseVisitor {
    type Value = Pause;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or the end of the pause, such as 2030-01-31T12:00:00Z")
    }

    fn visit_bool<E: de::Error>(self, is_paused: bool) -> Result<Pause, E> {
        Ok(if is_paused { Pause::On } else { Pause::Off })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Pause, E> {
        let pause = text.parse();
        pause.map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Timestamp = Timestamp::constant(1_800_000_000, 0);

    #[test]
    fn a_pause_is_written_as_it_is_read() {
        for (pause, text) in [
            (Pause::Off, "false"),
            (Pause::On, "true"),
            (Pause::Until(END), r#""2027-01-15T08:00:00Z""#),
        ] {
            assert_eq!(serde_json::to_string(&pause).unwrap(), text);
            assert_eq!(serde_json::from_str::<Pause>(text).unwrap(), pause);
            assert_eq!(pause.to_string().parse::<Pause>().unwrap(), pause);
        }
    }

    #[test]
    fn a_wrong_pause_is_refused_with_what_is_expected() {
        for text in [r#""soon""#, "7", "{}"] {
            let error = serde_json::from_str::<Pause>(text).unwrap_err().to_string();
            assert!(
                error.contains("expected true, false, or the end"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_pause_ends_at_its_time() {
        let before = END - jiff::SignedDuration::from_nanos(1);
        let held = |pause: Pause| [before, END].map(|now| pause.holds_at(now));
        assert_eq!(held(Pause::Off), [false, false]);
        assert_eq!(held(Pause::On), [true, true]);
        assert_eq!(held(Pause::Until(END)), [true, false]);
    }
}
