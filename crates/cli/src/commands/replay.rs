//! `riglm replay`: evaluation of predictors and list policies on recorded calls.

mod catalog;
mod external;
mod lines;
mod report;
mod sessions;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use riglm_adapters_prediction::{PredictionConfig, predictor_named};
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_discovery::learning::idle_gap;
use riglm_domain::prediction::PredictorName;
use riglm_domain::selection::ListBounds;
use riglm_evaluation::Encoders;
use riglm_evaluation::replay::{
    ReplayCatalog, ReplayHistory, ReplayOptions, ReplayReport, ReplayTexts, ReplayedPredictor,
    SessionSource, history_catalog, replay, texts_of,
};
use riglm_evaluation::simulation::{SimulatedOptions, SimulatedPolicy};

use self::report::ReplayResult;
pub(super) use self::report::policy_json;
use self::sessions::SessionFile;
use crate::args::{PredictorToReplay, ReplayArgs};
use crate::compose::{EncoderUse, answer_size, encoders_from, words};
use crate::config::Config;
use crate::exit::WrongUsage;
use crate::output::{note, print};

/// The default predictors to replay: the default of the proxy, and two to compare it with.
const PREDICTORS: [PredictorToReplay; 3] = [
    PredictorToReplay::Named(PredictorName::Mix),
    PredictorToReplay::Named(PredictorName::Cooccurrence),
    PredictorToReplay::Named(PredictorName::Frequency),
];

/// Replays sessions of files or of the store, and prints the results.
pub(super) async fn run(config: &Config, arguments: &ReplayArgs) -> anyhow::Result<()> {
    let options = options(config, arguments)?;
    let encoders = match &arguments.encoder {
        None => Vec::new(),
        Some(model) => {
            let mut section = config.search.encoder.clone();
            section.model.clone_from(model);
            encoders_from(&section, &config.data_dir, EncoderUse::WithEmbedded)?
        }
    };
    let started = Instant::now();
    let input = &arguments.input;
    if input.catalog.is_none() && !input.from_store {
        let text = "no input: use --from-store to replay recorded calls, or --catalog FILE and \
                    --sessions FILE";
        return Err(WrongUsage(text.into()).into());
    }
    let (dataset, n_tools, report) = match (&input.catalog, &input.sessions) {
        (Some(catalog), Some(sessions)) if !input.from_store => {
            let leniency = if input.lenient {
                Leniency::Skip
            } else {
                Leniency::Refuse
            };
            let (n_tools, report) =
                replay_files(catalog, sessions, leniency, &encoders, &options).await?;
            (name_of(sessions), n_tools, report)
        }
        _ => {
            let (n_tools, report) = replay_store(config, &encoders, &options).await?;
            ("store".to_owned(), n_tools, report)
        }
    };
    let replayed = ReplayResult {
        dataset,
        n_tools,
        report,
        elapsed: started.elapsed(),
    };
    let text = if arguments.format.is_json() {
        replayed.as_json().to_string()
    } else {
        replayed.as_tables()
    };
    Ok(print(&text)?)
}

/// Returns the JSON output for an unused database.
pub(super) fn empty() -> serde_json::Value {
    serde_json::json!({
        "dataset": "store",
        "calls": 0,
        "first_uses": 0,
        "catalog": 0,
        "predictors": {},
        "policies": {},
        "best_fixed": null,
        "regret": null,
        "seconds": 0.0,
    })
}

/// Returns the options of the replay. Predictors and lists follow the configuration.
fn options(config: &Config, arguments: &ReplayArgs) -> anyhow::Result<ReplayOptions> {
    let predictors = given_or_all(&arguments.predictor, &PREDICTORS);
    Ok(ReplayOptions {
        predictors: (predictors.into_iter())
            .map(|name| predictor(name, &config.prediction))
            .collect::<anyhow::Result<_>>()?,
        policies: given_or_all(&arguments.policy, &SimulatedPolicy::DEFAULT),
        lists: lists(config, arguments),
        words: words(config),
        with_query: !arguments.no_query,
        unseen_tasks: arguments.unseen_tasks,
    })
}

/// Returns the options of lists: from the configuration, overridden by the arguments.
fn lists(config: &Config, arguments: &ReplayArgs) -> SimulatedOptions {
    let filtering = &config.filtering;
    let at_most = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let max_tools = arguments.max_tools.map_or(filtering.max_tools, at_most);
    SimulatedOptions {
        bounds: ListBounds {
            min_tools: filtering.min_tools.min(max_tools),
            max_tools,
            ..filtering.bounds()
        },
        n_inline: (arguments.inline).map_or(config.search.n_predicted, at_most),
        prices: filtering.prices(answer_size(&config.search)),
    }
}

fn predictor(
    chosen: PredictorToReplay,
    config: &PredictionConfig,
) -> anyhow::Result<ReplayedPredictor> {
    let config = config.clone();
    match chosen {
        PredictorToReplay::Named(name) => Ok(ReplayedPredictor::of(name.as_str(), move || {
            predictor_named(name, &config)
        })),
        PredictorToReplay::External => external::predictor(config),
    }
}

/// Returns the given values without duplicates, or all values if none is given.
fn given_or_all<T: Copy + PartialEq>(given: &[T], all: &[T]) -> Vec<T> {
    let mut chosen = Vec::new();
    for one in if given.is_empty() { all } else { given } {
        if !chosen.contains(one) {
            chosen.push(*one);
        }
    }
    chosen
}

/// The treatment of invalid parts of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leniency {
    /// They are errors.
    Refuse,
    /// They are skipped and counted.
    Skip,
}

async fn replay_files(
    catalog_path: &Path,
    sessions_path: &Path,
    leniency: Leniency,
    encoders: &Encoders,
    options: &ReplayOptions,
) -> anyhow::Result<(usize, ReplayReport)> {
    let (catalog, n_twice) = catalog::read(catalog_path, leniency)?;
    let mut sessions = SessionFile::open(sessions_path, catalog_path, &catalog, leniency)?;
    let report = run_replay(&catalog, &mut sessions, encoders, options).await?;
    let skipped = sessions.skipped_counts();
    for (n, what) in [
        (n_twice, "duplicate tools in the catalog"),
        (skipped.lines, "lines that are not a session"),
        (skipped.calls, "calls that cannot be replayed"),
        (skipped.empty_sessions, "sessions without calls"),
    ] {
        if n > 0 {
            note(&format!("skipped {n} {what}"));
        }
    }
    if report.n_calls == 0 {
        bail!("{}: there are no calls", sessions_path.display());
    }
    Ok((catalog.tools.len(), report))
}

async fn replay_store(
    config: &Config,
    encoders: &Encoders,
    options: &ReplayOptions,
) -> anyhow::Result<(usize, ReplayReport)> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let (catalog, tools) = history_catalog(&store).await?;
    let mut history = ReplayHistory::new(&store, tools, idle_gap);
    let report = run_replay(&catalog, &mut history, encoders, options).await?;
    if report.n_calls == 0 {
        bail!("no calls are recorded yet");
    }
    Ok((catalog.tools.len(), report))
}

pub(super) async fn run_replay<S: SessionSource>(
    catalog: &ReplayCatalog,
    source: &mut S,
    encoders: &Encoders,
    options: &ReplayOptions,
) -> anyhow::Result<ReplayReport>
where
    S::Error: Into<anyhow::Error>,
{
    let told = |what: &str, n_sessions: u64| {
        const EVERY: u64 = 1_000;
        if n_sessions > 0 && n_sessions.is_multiple_of(EVERY) {
            note(&format!("{what} {n_sessions} sessions"));
        }
    };
    let mut texts = ReplayTexts::of_catalog(catalog);
    if options.with_query && !encoders.is_empty() {
        let of_users = texts_of(source).await.map_err(Into::into)?;
        let encoded = |n_done: usize, n_texts: usize| {
            if n_done == n_texts {
                note(&format!("encoded {n_texts} texts"));
            }
        };
        texts = (texts.with_vectors(encoders, of_users, &encoded).await)
            .context("failed to encode the texts")?;
    }
    let texts = Arc::new(texts);
    let replaying = replay(catalog, &texts, source, options, &told);
    replaying.await.map_err(Into::into)
}

fn name_of(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
