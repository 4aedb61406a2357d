//! Statistics of rounds, and the comparison of hops.

use std::time::Duration;

use serde::Serialize;

use crate::load::Load;

/// One round: its requests and the processor time of the hop.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// The requests.
    pub(crate) load: Load,
    /// The processor time of the hop, if there is one.
    pub(crate) cpu: Option<Duration>,
}

impl Sample {
    /// Returns the median latency in microseconds.
    pub(crate) fn p50_us(&self) -> f64 {
        let mut all = self.load.latencies.clone();
        all.sort_unstable();
        percentile(&all, 50)
    }
}

/// Statistics over all rounds. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// The number of requests.
    pub(crate) n_requests: usize,
    /// The median latency.
    pub(crate) p50_us: f64,
    /// The latency that one request in ten exceeds.
    pub(crate) p90_us: f64,
    /// The latency that one request in a hundred exceeds.
    pub(crate) p99_us: f64,
    /// Requests per second, all sessions together.
    pub(crate) per_second: f64,
    /// The processor time of the hop per request, if there is a hop.
    pub(crate) cpu_us: Option<f64>,
}

impl Figures {
    /// Returns the statistics of all rounds together; all zero without requests.
    pub(crate) fn of(samples: &[Sample]) -> Self {
        let mut all: Vec<Duration> = samples
            .iter()
            .flat_map(|sample| sample.load.latencies.iter().copied())
            .collect();
        all.sort_unstable();
        let elapsed: Duration = samples.iter().map(|sample| sample.load.elapsed).sum();
        let cpu: Option<Duration> = samples.iter().map(|sample| sample.cpu).sum();
        let n_requests = count(all.len());
        Self {
            n_requests: all.len(),
            p50_us: percentile(&all, 50),
            p90_us: percentile(&all, 90),
            p99_us: percentile(&all, 99),
            per_second: ratio(n_requests, elapsed.as_secs_f64()),
            cpu_us: cpu.map(|cpu| ratio(micros(cpu), n_requests)),
        }
    }
}

/// The statistics of all rounds together and of each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// All rounds together.
    pub(crate) all: Figures,
    /// Each round.
    pub(crate) rounds: Vec<Figures>,
}

impl Measured {
    /// Returns the statistics of rounds.
    pub(crate) fn of(samples: &[Sample]) -> Self {
        Self {
            all: Figures::of(samples),
            rounds: samples.chunks(1).map(Figures::of).collect(),
        }
    }
}

/// A hop in comparison with the relay and with the direct way of the same run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// The difference to the median latency of the direct way.
    pub(crate) added_p50_us: Option<f64>,
    /// The difference to the 99th percentile of the direct way.
    pub(crate) added_p99_us: Option<f64>,
    /// The processor time, as a multiple of the one of the relay.
    pub(crate) cpu_ratio: Option<f64>,
    /// The smallest and the greatest `cpu_ratio` of a round.
    pub(crate) cpu_ratio_range: Option<(f64, f64)>,
    /// The added median, as a multiple of the one of the relay.
    pub(crate) added_p50_ratio: Option<f64>,
    /// The added 99th percentile, as a multiple of the one of the relay.
    pub(crate) added_p99_ratio: Option<f64>,
    /// Requests per second, as a share of those of the direct way.
    pub(crate) share_of_direct: Option<f64>,
}

impl Comparison {
    /// Compares a hop with the two baselines, as far as they were measured.
    pub(crate) fn of(hop: &Measured, direct: Option<&Measured>, relay: Option<&Measured>) -> Self {
        let direct = direct.map(|direct| &direct.all);
        let added = |hop: &Figures, of: fn(&Figures) -> f64| Some(of(hop) - of(direct?));
        let added_ratio = |of: fn(&Figures) -> f64| {
            let (hop, relay) = (added(&hop.all, of)?, added(&relay?.all, of)?);
            (relay > 0.0).then(|| hop / relay)
        };
        Self {
            added_p50_us: added(&hop.all, |it| it.p50_us),
            added_p99_us: added(&hop.all, |it| it.p99_us),
            cpu_ratio: relay.and_then(|relay| cpu_ratio(&hop.all, &relay.all)),
            cpu_ratio_range: relay.and_then(|relay| {
                let rounds = hop.rounds.iter().zip(&relay.rounds);
                range(rounds.filter_map(|(hop, relay)| cpu_ratio(hop, relay)))
            }),
            added_p50_ratio: added_ratio(|it| it.p50_us),
            added_p99_ratio: added_ratio(|it| it.p99_us),
            share_of_direct: direct.map(|direct| ratio(hop.all.per_second, direct.per_second)),
        }
    }
}

/// Returns the processor time of a hop as a multiple of the one of the relay.
fn cpu_ratio(hop: &Figures, relay: &Figures) -> Option<f64> {
    let relay = relay.cpu_us.filter(|cpu| *cpu > 0.0)?;
    Some(hop.cpu_us? / relay)
}

/// Returns the smallest and the greatest value.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .map(|value| (value, value))
        .reduce(|(least, greatest), (value, _)| (least.min(value), greatest.max(value)))
}

/// Returns a percentile of a sorted list in microseconds, 0 if it is empty.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(at).copied().map_or(0.0, micros)
}

/// Returns a duration in microseconds.
pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Returns a quotient, 0 if the divisor is 0.
pub(crate) fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor == 0.0 {
        0.0
    } else {
        dividend / divisor
    }
}

/// Returns a number as a float.
#[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^52")]
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(p50_us: f64, p99_us: f64, per_second: f64, cpu_us: Option<f64>) -> Figures {
        Figures {
            n_requests: 1,
            p50_us,
            p90_us: p50_us,
            p99_us,
            per_second,
            cpu_us,
        }
    }

    #[test]
    fn rounds_are_counted_together() {
        let sample = |millis: &[u64], cpu: u64| Sample {
            load: Load {
                latencies: millis.iter().copied().map(Duration::from_millis).collect(),
                elapsed: Duration::from_secs(1),
            },
            cpu: Some(Duration::from_millis(cpu)),
        };
        let figures = Figures::of(&[sample(&[1, 9], 2), sample(&[3, 2], 6)]);
        assert_eq!(figures.n_requests, 4);
        assert!((figures.p50_us - 2_000.0).abs() < 1e-6);
        assert!((figures.per_second - 2.0).abs() < 1e-9);
        assert!((figures.cpu_us.unwrap() - 2_000.0).abs() < 1e-6);
        assert!(Figures::of(&[]).p99_us.abs() < 1e-9);
    }

    fn measured(rounds: &[Figures]) -> Measured {
        Measured {
            all: rounds[0].clone(),
            rounds: rounds.to_vec(),
        }
    }

    #[test]
    fn ratios_are_those_of_the_added_times() {
        let direct = figures(20.0, 50.0, 1_000.0, None);
        let relay = figures(60.0, 100.0, 800.0, Some(40.0));
        let hop = figures(100.0, 250.0, 500.0, Some(60.0));
        let slow = figures(100.0, 250.0, 500.0, Some(80.0));
        let compared = Comparison::of(
            &measured(&[hop.clone(), slow, hop]),
            Some(&measured(&[direct])),
            Some(&measured(&[relay.clone(), relay.clone(), relay])),
        );
        assert_eq!(
            compared,
            Comparison {
                added_p50_us: Some(80.0),
                added_p99_us: Some(200.0),
                cpu_ratio: Some(1.5),
                cpu_ratio_range: Some((1.5, 2.0)),
                added_p50_ratio: Some(2.0),
                added_p99_ratio: Some(4.0),
                share_of_direct: Some(0.5),
            }
        );
    }

    #[test]
    fn ratios_without_baseline_are_left_out() {
        let hop = measured(&[figures(100.0, 250.0, 500.0, Some(60.0))]);
        let fast_relay = measured(&[figures(10.0, 10.0, 1.0, Some(0.0))]);
        let compared = Comparison::of(&hop, None, Some(&fast_relay));
        assert_eq!(
            (compared.added_p50_us, compared.share_of_direct),
            (None, None)
        );
        let compared = Comparison::of(&hop, Some(&hop), Some(&fast_relay));
        assert_eq!((compared.added_p50_ratio, compared.cpu_ratio), (None, None));
        assert_eq!(compared.cpu_ratio_range, None);
    }
}
