//! Instruction counts of the functions on the way of a message, against a committed baseline.
//!
//! `cargo bench -p riglm-domain --bench instructions [-- --update]`
//!
//! Times differ between machines and moments, instruction counts hardly do. Each function runs under
//! Valgrind, which counts only what it does itself. The program fails if a function needs more than
//! the baseline and a tolerance. `--update` writes the counts of this run to the baseline.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints its figures and may fail"
)]

#[expect(dead_code, unreachable_pub, reason = "another bench uses the rest")]
#[path = "prediction/scene.rs"]
mod scene;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use riglm_domain::bytes::Bytes;
use riglm_domain::catalog::tool::{ToolPage, ToolRef};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::request_hints::extract_hints;
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::retrieval::{IndexedTool, Query, RankingRules, Synonyms, ToolIndex, ToolText};
use scene::SyntheticSessions;

/// The repetitions of a function.
const REPETITIONS: u64 = 20;
/// The part of the baseline by which a count may differ. Compilers and libraries change a little.
const TOLERANCE: f64 = 0.2;
/// The name of the file with the baseline, beside this one.
const BASELINE: &str = "instructions.txt";

/// A measured function: returns what one repetition does, after its preparation.
type Case = fn() -> Box<dyn FnMut()>;

const CASES: [(&str, Case); 9] = [
    ("call_of_1_kb", || read_call(1_000)),
    ("call_of_100_kb", || read_call(100_000)),
    ("arguments_of_1_kb_hashed", || hash_arguments(1_000)),
    ("list_of_100_tools_parsed", parse_list),
    ("list_of_100_tools_repeated", parse_repeated_list),
    ("list_of_100_tools_split", split_list),
    ("ranking_of_1000_tools", rank),
    ("prediction_of_50_tools", || predict(50)),
    ("prediction_of_500_tools", || predict(500)),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = arguments.as_slice()
        && flag == "--run"
    {
        let (_, case) = CASES.iter().find(|(known, _)| known == name).unwrap();
        repeat_counted(case().as_mut());
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("valgrind is not installed, so no instructions are counted");
        return ExitCode::FAILURE;
    }
    let counts: BTreeMap<&str, u64> = CASES.map(|(name, _)| (name, count(name))).into();
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("benches")
        .join(BASELINE);
    if arguments.iter().any(|argument| argument == "--update") {
        let lines = counts.iter().map(|(name, n)| format!("{name} {n}\n"));
        std::fs::write(file, lines.collect::<String>()).unwrap();
        return ExitCode::SUCCESS;
    }
    let baseline = std::fs::read_to_string(file).unwrap();
    let known: BTreeMap<&str, u64> = (baseline.lines())
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, n)| (name, n.parse().unwrap()))
        .collect();
    println!("| function | instructions | baseline | ratio |");
    println!("|---|---|---|---|");
    let mut has_grown = false;
    for (name, n) in counts {
        let before = known.get(name).copied().unwrap_or_default();
        let ratio = as_float(n) / as_float(before).max(1.0);
        let mark = if ratio > 1.0 + TOLERANCE {
            has_grown = true;
            " MORE"
        } else if ratio < 1.0 - TOLERANCE {
            " less: update the baseline"
        } else {
            ""
        };
        println!("| {name} | {n} | {before} | {ratio:.2}{mark} |");
    }
    if has_grown {
        println!("a function needs more instructions: make it cheaper, or accept it with --update");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn as_float(n: u64) -> f64 {
    // Counts are far below 2^32 for each repetition.
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// Repeats a function. Valgrind counts what happens in here, so this must not become a part of
/// another function.
#[inline(never)]
fn repeat_counted(repeat: &mut dyn FnMut()) {
    for _ in 0..REPETITIONS {
        repeat();
    }
}

/// Returns the instructions of one repetition.
fn count(name: &str) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*repeat_counted*")
        .arg(std::env::current_exe().unwrap())
        .args(["--run", name])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}: {text}");
    let line = text
        .lines()
        .find_map(|line| line.split("Collected :").nth(1));
    let n: Option<u64> = line.and_then(|n| n.trim().parse().ok());
    let n = n.unwrap_or_else(|| panic!("{name}: valgrind printed no count: {text}"));
    assert!(n > 0, "{name}: nothing was counted");
    n / REPETITIONS
}

fn words(n_bytes: usize) -> String {
    "lorem ipsum ".repeat(n_bytes / 12)
}

fn call(n_bytes: usize) -> Bytes {
    let text = words(n_bytes);
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{text}"}},"_meta":{{"progressToken":7}}}}}}"#
    );
    call.into()
}

/// Returns the parsing of a call and the reading of its members.
fn read_call(n_bytes: usize) -> Box<dyn FnMut()> {
    let raw = call(n_bytes);
    Box::new(move || {
        let message = Message::parse(black_box(&raw)).unwrap();
        assert!(!message.is_deeper_than(64));
        let message = extract_hints(message);
        let part = message.single().unwrap();
        assert!(black_box(message.member(part, "name")).is_some());
        assert!(black_box(message.member(part, "arguments")).is_some());
        black_box(message.on_one_line());
    })
}

fn hash_arguments(n_bytes: usize) -> Box<dyn FnMut()> {
    let hasher = KeyedHasher::new(&[7; 32]);
    let arguments = format!(r#"{{"text":"{}","limit":1.0}}"#, words(n_bytes));
    Box::new(move || {
        black_box(hasher.hash_json(Some(black_box(&arguments))).unwrap());
    })
}

fn definition(number: usize) -> String {
    let properties: Vec<String> = (0..6)
        .map(|field| {
            format!(
                r#""field_{field}":{{"type":"string","description":"What field {field} of tool {number} means."}}"#
            )
        })
        .collect();
    format!(
        r#"{{"name":"tool_{number}","description":"{}","inputSchema":{{"type":"object","properties":{{{}}}}}}}"#,
        words(300),
        properties.join(",")
    )
}

fn list_result() -> String {
    let tools: Vec<String> = (0..100).map(definition).collect();
    format!(r#"{{"tools":[{}]}}"#, tools.join(","))
}

fn list(id: usize) -> Bytes {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#,
        list_result()
    )
    .into()
}

fn parse_list() -> Box<dyn FnMut()> {
    let raw = list(1);
    Box::new(move || {
        let message = Message::parse(black_box(&raw)).unwrap();
        let part = message.single().unwrap();
        assert!(black_box(message.member(part, "tools")).is_some());
    })
}

fn parse_repeated_list() -> Box<dyn FnMut()> {
    let (known, raw) = (Message::parse(&list(1)).unwrap(), list(22));
    Box::new(move || {
        let message = Message::parse_repeated(black_box(&raw), &known).unwrap();
        assert!(!black_box(&message).is_deeper_than(64));
    })
}

fn split_list() -> Box<dyn FnMut()> {
    let result = list_result();
    Box::new(move || {
        black_box(ToolPage::split(black_box(&result)).unwrap());
    })
}

fn rank() -> Box<dyn FnMut()> {
    let tool = |number: usize| {
        let server = format!("server-{}", number / 100);
        let name = format!("tool_{number}");
        let text = ToolText::of_definition(&name, &definition(number)).on_server(&server, "", "");
        let tool = ToolRef {
            upstream: UpstreamName::parse(&server).unwrap(),
            tool: name.as_str().into(),
        };
        IndexedTool::new(tool, text)
    };
    let index = ToolIndex::new((0..1_000).map(tool).collect());
    let rules = RankingRules::default();
    let query = Query::new("what field 3 of tool 17 means", &Synonyms::built_in());
    Box::new(move || {
        black_box(index.rank(black_box(&query), &rules, None, 10));
    })
}

fn predict(n_tools: usize) -> Box<dyn FnMut()> {
    let mut scene = SyntheticSessions::after_calls(n_tools, 500);
    Box::new(move || {
        black_box(scene.step());
    })
}
