//! `riglm model pull`.

use riglm_adapters_prediction::models::pull::{
    HubSettings, PipSettings, PullError, PullOutcome, PullRequest, pull as pull_model,
};
use riglm_adapters_prediction::models::{Job, ModelStore};
use serde_json::json;

use super::megabytes;
use crate::args::ModelPullArgs;
use crate::commands::db::show;
use crate::exit::WrongUsage;
use crate::output::{note, printable};

/// Pulls a model into the store, and prints it.
pub(super) fn pull(
    model_store: &ModelStore,
    arguments: ModelPullArgs,
    job: &Job,
) -> anyhow::Result<()> {
    let request = PullRequest {
        name: arguments.name,
        source: arguments.from.map(|from| from.0).unwrap_or_default(),
        is_forced: arguments.force,
        query_prefix: arguments.query_prefix,
        passage_prefix: arguments.passage_prefix,
        hub: HubSettings::from_variables(|name| std::env::var(name).ok()),
        pip: PipSettings {
            python: arguments.python,
            ..PipSettings::default()
        },
    };
    let pulled = pull_model(model_store, &request, job).map_err(usage_error)?;
    if let PullOutcome::AlreadyThere(manifest) = &pulled {
        note(&format!(
            "{} is already installed and undamaged; use --force to download it again",
            manifest.name
        ));
    }
    let is_new = matches!(pulled, PullOutcome::New(_));
    let manifest = pulled.into_manifest();
    let text = format!(
        "{} {} from {}: {}",
        if is_new { "pulled" } else { "kept" },
        manifest.name,
        printable(&manifest.source),
        megabytes(manifest.bytes())
    );
    show(arguments.store.format, &json!(manifest), &text)
}

/// Turns errors of usage into [`WrongUsage`], which has its own exit code.
fn usage_error(error: PullError) -> anyhow::Error {
    if error.is_usage() {
        WrongUsage(error.to_string()).into()
    } else {
        error.into()
    }
}
