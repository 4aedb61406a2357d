//! Says what the list of tools of each session in a log should have been.
//!
//! An example of a tool that uses the rules of riglm without the proxy: it depends on
//! `riglm-domain` alone, without its optional features.

mod advice;
mod catalog;
mod log;
mod report;

use std::error::Error;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use riglm_domain::selection::economics::CostModel;

use crate::advice::advise;
use crate::catalog::KnownTools;
use crate::log::Log;

/// Says what the list of tools of each session in a log of calls should have been.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The log: JSON lines with `session`, `time`, `tool` (UPSTREAM/TOOL) and optionally `client`,
    /// or the output of `riglm calls --json`. `-` is the standard input.
    #[arg(default_value = "-")]
    log: PathBuf,
    /// All tools that could have been called, with their tokens: a JSON array of UPSTREAM/TOOL, or
    /// the output of `riglm tools --json`. Without it, they are the tools in the log.
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Number of tokens of a definition, for tools whose number is not known.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, default_value_t = CostModel::default().tokens_per_tool)]
    tokens_per_tool: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if the standard error is closed, too.
            let _ = writeln!(io::stderr(), "list-advisor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let known = match &arguments.tools {
        None => KnownTools::default(),
        Some(path) => {
            let mut text = String::new();
            open(path)
                .and_then(|mut file| file.read_to_string(&mut text))
                .map_err(|error| format!("failed to read {}: {error}", path.display()))?;
            KnownTools::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?
        }
    };
    let prices = CostModel {
        tokens_per_tool: known.mean_tokens(arguments.tokens_per_tool),
        ..CostModel::default()
    };
    prices.check()?;
    let shown = arguments.log.display();
    let log = open(&arguments.log)
        .and_then(|file| Log::read(BufReader::new(file)))
        .map_err(|error| format!("failed to read {shown}: {error}"))?;
    report::write_bad_entries(&mut io::stderr().lock(), &log)?;
    if log.calls.is_empty() {
        return Err(format!("{shown} has no calls").into());
    }
    let advice = advise(&log.calls, &known.tools, &prices)?;
    let text = if arguments.json {
        report::as_json(&log, &advice).to_string() + "\n"
    } else {
        report::as_text(&log, &advice)
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(path)?))
}
