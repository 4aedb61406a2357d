//! Compares three ways to send spans over OTLP: the exporter of this crate, and the exporter of
//! `opentelemetry-otlp` with each of the two batch processors of the SDK, on a thread and in a task.
//!
//! `cargo bench -p riglm-adapters-telemetry --bench otlp_export`
//!
//! Each way makes the spans of the same `tools/call` in a process of its own, with the same limits,
//! and sends them to a receiver in this process. The ways alternate. The tables have the time that
//! the end of a span takes its caller, the processor time, the memory and the threads of the
//! process; the losses if the receiver fails, and the share of them that the program can see; and
//! the environment variables that change what is sent. Processor time is without that of a process
//! that drops its spans. Figures of different runs cannot be compared, only the ratios.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints its figures and may fail"
)]

#[path = "otlp_export/losses.rs"]
mod losses;
#[path = "otlp_export/measured.rs"]
mod measured;
#[path = "otlp_export/receiver.rs"]
mod receiver;
#[path = "otlp_export/ways.rs"]
mod ways;

use std::collections::HashMap;
use std::process::Command;

use measured::{FAULT, FEW, Load, MANY, MAX_CLOSE};
use receiver::{Answers, Received, Receiver};
use ways::Way;

/// The number of measurements of each way. The table has the median.
const N_ROUNDS: u32 = 3;
const CHILD: &str = "--child";
/// The variables that are set, one in each run, and their values.
const VARIABLES: [(&str, &str); 15] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "http://127.0.0.1:9/v1/traces",
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "x-key=environment,x-more=environment",
    ),
    ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=environment"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
    ("OTEL_SERVICE_NAME", "environment"),
    ("OTEL_RESOURCE_ATTRIBUTES", "from=environment"),
    ("OTEL_TRACES_SAMPLER", "always_off"),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "1"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
    ("OTEL_BSP_SCHEDULE_DELAY", "60000"),
    ("OTEL_SDK_DISABLED", "true"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [child, way, load, base_url] = arguments.as_slice()
        && child == CHILD
    {
        return measured::measure(
            Way::parse(way).unwrap(),
            Load::parse(load).unwrap(),
            base_url,
        );
    }
    let receiver = Receiver::start();
    healthy_receiver(&receiver);
    faulty_receivers(&receiver);
    environment(&receiver);
}

/// The figures that a measured process printed, and what the receiver got from it.
struct Figures {
    printed: HashMap<String, f64>,
    received: Received,
}

impl Figures {
    fn get(&self, name: &str) -> f64 {
        self.printed[name]
    }
}

/// Runs one way under one load, in a process of its own. `run` is a lowercase name that no other run
/// has.
fn run(
    receiver: &Receiver,
    way: Way,
    load: Load,
    answers: Answers,
    run: &str,
    variable: Option<(&str, &str)>,
) -> Figures {
    let base_url = receiver.base_url(run, answers);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([CHILD, way.name(), load.name, &base_url]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command.envs(variable);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{run}: {output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed = printed.lines().map(|line| {
        let (name, value) = line.split_once('=').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    Figures {
        printed: printed.collect(),
        received: receiver.take(run),
    }
}

/// The first table: costs, with a receiver that accepts everything.
fn healthy_receiver(receiver: &Receiver) {
    println!("| A receiver that accepts all | none | own | thread | / own | task | / own |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for load in Load::HEALTHY {
        let mut rounds: [Vec<Figures>; 4] = Default::default();
        for round in 0..N_ROUNDS {
            for (way, rounds) in Way::ALL.into_iter().zip(&mut rounds) {
                let name = format!("{}-{}-{round}", way.name(), load.name);
                rounds.push(run(receiver, way, load, Answers::Accepts, &name, None));
            }
        }
        let printed = |name: &str| {
            rounds
                .each_ref()
                .map(|of| median(of.iter().map(|figures| figures.get(name))))
        };
        let accepted = |count: fn(&Received) -> usize| {
            rounds.each_ref().map(|of| {
                let counts = of.iter().map(|figures| count(&figures.received));
                median(counts.map(|n| f64::from(u32::try_from(n).unwrap())))
            })
        };
        let n_spans = f64::from(load.n_spans());
        let title = load.title;
        row(
            &format!("{title}: end of a span, p50, ns"),
            printed("p50_ns"),
        );
        row(
            &format!("{title}: end of a span, p99, ns"),
            printed("p99_ns"),
        );
        let cpu = printed("cpu_ns");
        row(
            &format!("{title}: processor time of a span, ns"),
            cpu.map(|of| (of - cpu[0]) / f64::from(load.n_measured())),
        );
        row(&format!("{title}: batches"), accepted(Received::n_batches));
        let [_, own, thread, task] = accepted(Received::n_spans).map(|n| n_spans - n);
        row(&format!("{title}: spans lost"), [0.0, own, thread, task]);
        if load.name == MANY.name {
            row(
                &format!("{n_spans} spans: memory added, KiB"),
                printed("resident_kib"),
            );
            row("Threads added", printed("threads"));
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints a row of the first table: each way, and its ratio to the way of this crate.
fn row(title: &str, [none, own, thread, task]: [f64; 4]) {
    let ratio = |of: f64| {
        if own.abs() < 0.5 {
            "-".into()
        } else {
            format!("{:.2}", of / own)
        }
    };
    println!(
        "| {title} | {none:.0} | {own:.0} | {thread:.0} | {} | {task:.0} | {} |",
        ratio(thread),
        ratio(task)
    );
}

/// The second table: losses, and the time until the end, with receivers that fail.
fn faulty_receivers(receiver: &Receiver) {
    println!(
        "\n| Receiver | way | end of a span, p99, ns | longest, ns | spans lost | in the log | in metrics | counted by a wrapper | close, ms |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let faults = Answers::FAULTY.map(|answers| (answers, FAULT));
    for (answers, load) in faults.into_iter().chain([(Answers::Silent, FEW)]) {
        let of_ways = std::thread::scope(|scope| {
            let running = Way::SENDING.map(|way| {
                scope.spawn(move || {
                    let name = format!("{}-{}-{}", way.name(), answers.name(), load.name);
                    run(receiver, way, load, answers, &name, None)
                })
            });
            running.map(|running| running.join().unwrap())
        });
        for (way, figures) in Way::SENDING.into_iter().zip(of_ways) {
            let n_lost = load.n_spans() as usize - figures.received.n_spans();
            let is = |name: &str| figures.get(name) > 0.0;
            let close = match (is("is_closed"), is("has_error")) {
                (false, _) => format!("over {}", MAX_CLOSE.as_millis()),
                (true, true) => format!("{}, error", figures.get("close_ms")),
                (true, false) => figures.get("close_ms").to_string(),
            };
            // The ways of the library alone have these.
            let counted = |name: &str| match figures.get(name) {
                n if way == Way::Own || n.is_nan() => "-".into(),
                n => n.to_string(),
            };
            println!(
                "| {}, {} spans | {} | {} | {} | {n_lost} | {} | {} | {} | {close} |",
                answers.name(),
                load.n_spans(),
                way.name(),
                figures.get("p99_ns"),
                figures.get("max_ns"),
                figures.get("in_log"),
                counted("in_metrics"),
                counted("failed"),
            );
        }
    }
}

/// The third table: the environment variables that change what arrives.
fn environment(receiver: &Receiver) {
    println!("\n| Environment variable changes what is sent | own | thread | task |");
    println!("| --- | --- | --- | --- |");
    let sent = |way: Way, variable: Option<(&str, &str)>| {
        let name = variable.map_or("none", |(name, _)| name);
        let name = format!("env-{}-{name}", way.name()).to_lowercase();
        let figures = run(receiver, way, FEW, Answers::Accepts, &name, variable);
        figures.received.shape()
    };
    let expected = Way::SENDING.map(|way| sent(way, None));
    for variable in VARIABLES {
        let mut columns = Way::SENDING
            .into_iter()
            .zip(&expected)
            .map(|(way, expected)| {
                let is_changed = sent(way, Some(variable)) != *expected;
                if is_changed { "yes" } else { "no" }
            });
        let columns: Vec<&str> = columns.by_ref().collect();
        println!("| `{}` | {} |", variable.0, columns.join(" | "));
    }
}
