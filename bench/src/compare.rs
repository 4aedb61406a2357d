//! The comparison of ways to one server: directly, through the relay, and through proxies, in turn.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::load::Sessions;
use crate::message::{Case, Era, Request};
use crate::report::{Report, ResultFile, Row};
use crate::statistics::{Comparison, Measured, Sample};
use crate::usage::Memory;
use crate::ways::{Launcher, Setting, Transport, Way, WayArgs};

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// The measured ways.
    #[command(flatten)]
    ways: WayArgs,
    /// Cases: call-1kb, call-100kb, call-1mb, list-100, list-1000, or other sizes
    #[arg(long = "cases", value_name = "CASE", value_delimiter = ',', default_values_t = Case::ALL)]
    cases: Vec<Case>,
    /// Numbers of concurrent sessions
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,10,100",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions: Vec<u32>,
    /// Eras of the protocol
    #[arg(
        long = "era",
        value_name = "ERA",
        value_delimiter = ',',
        default_value = "legacy"
    )]
    eras: Vec<Era>,
    /// Transports of the upstream
    #[arg(
        long = "upstream",
        value_name = "TRANSPORT",
        value_delimiter = ',',
        default_value = "http"
    )]
    transports: Vec<Transport>,
    /// Rounds of each way
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each round
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Fail if riglm takes more than R times the processor time of the relay, in every round of a
    /// case
    #[arg(long, value_name = "R")]
    max_cpu_ratio: Option<f64>,
    /// File for the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Open sessions through a way, until something fails.
struct Measurement<'a> {
    way: &'a mut Way,
    memory_before: Option<Memory>,
    sessions: anyhow::Result<Sessions>,
}

impl CompareArgs {
    /// Measures all ways and prints the report.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let file = ResultFile::create(self.json.as_deref())?;
        let launcher = self.ways.clone().prepare()?;
        let mut report = Report::new(launcher.placement());
        // If a program does not start, the results so far are printed, too.
        let result = self.measure_all(&launcher, &mut report).await;
        report.print();
        file.write(&report)?;
        result?;
        let n_failed = report.n_failed();
        if n_failed > 0 {
            bail!("{n_failed} measurements have failed, see the report");
        }
        if let Some(limit) = self.max_cpu_ratio {
            let above = report.cases_above(limit);
            if !above.is_empty() {
                bail!(
                    "riglm takes more than {limit} times the processor time of the relay: {above}"
                );
            }
        }
        Ok(())
    }

    async fn measure_all(&self, launcher: &Launcher, report: &mut Report) -> anyhow::Result<()> {
        for setting in self.settings() {
            let mut scene = launcher.start(setting)?;
            for n_sessions in &self.sessions {
                let n_sessions = *n_sessions as usize;
                self.measure(setting, &mut scene.ways, n_sessions, report)
                    .await;
            }
        }
        Ok(())
    }

    /// Returns the upstreams that the cases need, each once.
    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for transport in &self.transports {
            for era in &self.eras {
                for case in &self.cases {
                    let setting = Setting {
                        transport: *transport,
                        era: *era,
                        n_tools: case.n_tools(),
                    };
                    if !settings.contains(&setting) {
                        settings.push(setting);
                    }
                }
            }
        }
        settings
    }

    /// Measures all cases of a setting with a number of sessions.
    async fn measure(
        &self,
        setting: Setting,
        ways: &mut [Way],
        n_sessions: usize,
        report: &mut Report,
    ) {
        let mut measurements = Vec::new();
        for way in ways {
            let memory_before = way.memory();
            let sessions = Sessions::open(&way.endpoint, setting.era, n_sessions).await;
            let sessions = sessions.map_err(|error| way.explain(error));
            measurements.push(Measurement {
                way,
                memory_before,
                sessions,
            });
        }
        let cases = self
            .cases
            .iter()
            .filter(|case| case.n_tools() == setting.n_tools);
        for case in cases {
            eprintln!(
                "{} upstream, {} clients, {case}, {n_sessions} sessions",
                setting.transport.name(),
                setting.era
            );
            let rows = self
                .measure_case(setting, *case, n_sessions, &mut measurements)
                .await;
            report.add(rows);
        }
        for measurement in measurements {
            if let Ok(sessions) = measurement.sessions {
                // A session that cannot be ended is no part of what was measured.
                if let Err(error) = sessions.close().await {
                    eprintln!("{error:#}");
                }
            }
        }
    }

    /// Measures one case through all ways, round by round.
    async fn measure_case(
        &self,
        setting: Setting,
        case: Case,
        n_sessions: usize,
        measurements: &mut [Measurement<'_>],
    ) -> Vec<Row> {
        let request = Arc::new(case.request(setting.era));
        for measurement in &mut *measurements {
            measurement.warm_up(case, &request, self.seconds / 4).await;
        }
        let mut samples: Vec<Vec<Sample>> = measurements.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.rounds {
            for (measurement, samples) in measurements.iter_mut().zip(&mut samples) {
                samples.extend(measurement.round(&request, self.seconds).await);
            }
        }
        let measured: Vec<Measured> = samples.iter().map(|of| Measured::of(of)).collect();
        let of = |name: &str| {
            let at = measurements
                .iter()
                .position(|it| it.way.endpoint.name == name)?;
            measurements[at].sessions.is_ok().then(|| &measured[at])
        };
        let (direct, relay) = (of("direct"), of("relay"));
        let rows = measurements
            .iter()
            .zip(&measured)
            .map(|(measurement, measured)| {
                let way = &measurement.way;
                let error = measurement.sessions.as_ref().err();
                Row {
                    upstream: setting.transport,
                    upstream_of_way: way.transport,
                    era: setting.era,
                    case: case.to_string(),
                    sessions: n_sessions,
                    way: way.endpoint.name.clone(),
                    measured: measured.clone(),
                    compared: (way.endpoint.name != "direct")
                        .then(|| Comparison::of(measured, direct, relay)),
                    memory_before: measurement.memory_before,
                    memory_after: way.memory(),
                    error: error.map(|error| format!("{error:#}")),
                }
            });
        rows.collect()
    }
}

impl Measurement<'_> {
    /// Checks the responses and sends requests that are not counted.
    async fn warm_up(&mut self, case: Case, request: &Arc<Request>, time: Duration) {
        let Ok(sessions) = &mut self.sessions else {
            return;
        };
        let result = match sessions.check(case).await {
            Ok(()) => sessions.run(request, time).await.map(drop),
            Err(error) => Err(error),
        };
        self.fail(result);
        let cpu = self.way.cpu();
        self.way.settle(cpu).await;
    }

    async fn round(&mut self, request: &Arc<Request>, time: Duration) -> Option<Sample> {
        let sessions = self.sessions.as_mut().ok()?;
        let result = sessions.wake().await;
        let before = self.way.cpu();
        let load = match result {
            Ok(()) => sessions.run(request, time).await,
            Err(error) => Err(error),
        };
        let cpu = self.way.settle(before).await;
        match load {
            Ok(load) => Some(Sample { load, cpu }),
            Err(error) => {
                self.fail(Err(error));
                None
            }
        }
    }

    /// Keeps an error in place of the sessions.
    fn fail(&mut self, result: anyhow::Result<()>) {
        if let Err(error) = result {
            self.sessions = Err(self.way.explain(error));
        }
    }
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds: f64 = text.parse().context("a number of seconds")?;
    if !(0.01..=3_600.0).contains(&seconds) {
        bail!("0.01 to 3600 seconds are possible");
    }
    Ok(Duration::from_secs_f64(seconds))
}
