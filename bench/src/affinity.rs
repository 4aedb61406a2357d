//! The processor cores on which the client and the measured programs run.

use std::str::FromStr;

use anyhow::{Context as _, bail};
use rustix::thread::{CpuSet, sched_setaffinity};

/// A range of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    first: usize,
    last: usize,
}

/// The cores of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The cores of the client and the upstream.
    pub(crate) client: Cores,
    /// The cores of the relay and the proxies.
    pub(crate) hop: Cores,
}

impl Cores {
    /// Restricts the calling thread, and the threads and processes that it starts, to these cores.
    pub(crate) fn pin_thread(self) -> anyhow::Result<()> {
        let mut set = CpuSet::new();
        for core in self.first..=self.last {
            set.set(core);
        }
        sched_setaffinity(None, &set).with_context(|| format!("cores {self} cannot be used"))
    }
}

impl std::fmt::Display for Cores {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last {
            write!(formatter, "{}", self.first)
        } else {
            write!(formatter, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for Cores {
    type Err = anyhow::Error;

    /// Parses a number, or two with a hyphen between.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| -> anyhow::Result<usize> {
            let number = text.trim().parse();
            number.with_context(|| format!("`{text}` is no number of a core"))
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last >= CpuSet::MAX_CPU {
            bail!("`{text}` is no range of cores");
        }
        Ok(Self { first, last })
    }
}

impl FromStr for Placement {
    type Err = anyhow::Error;

    /// Parses `client=0,hop=1`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (mut client, mut hop) = (None, None);
        for part in text.split(',') {
            let (side, cores) = part
                .split_once('=')
                .with_context(|| format!("`{part}` is not client=CORE or hop=CORE"))?;
            let cores = Some(cores.parse()?);
            match side.trim() {
                "client" => client = cores,
                "hop" => hop = cores,
                other => bail!("`{other}` is neither client nor hop"),
            }
        }
        Ok(Self {
            client: client.context("the cores of the client are missing")?,
            hop: hop.context("the cores of the hop are missing")?,
        })
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { client, hop } = self;
        write!(
            formatter,
            "client and upstream on core {client}, hops on core {hop}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_name_both_sides() {
        let of = |text: &str| text.parse::<Placement>();
        let both = of("client=0,hop=1-3").unwrap();
        assert_eq!(both.client, Cores { first: 0, last: 0 });
        assert_eq!(both.hop, Cores { first: 1, last: 3 });
        for wrong in [
            "",
            "0,1",
            "hop=1",
            "client=x,hop=1",
            "client=3-1,hop=0",
            "client=0,hop=1,server=1",
            "client=0,hop=100000",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
