//! The external predictor of the configuration, in a replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use riglm_adapters_prediction::external::{ExternalConfig, external_predictor_from};
use riglm_adapters_prediction::{PredictionConfig, predictor_from};
use riglm_evaluation::replay::ReplayedPredictor;
use riglm_ports::external_predictor::ScoreRequest;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::exit::WrongUsage;
use crate::output::note;

/// Returns the external predictor of the configuration. It has up to five seconds for each request,
/// because a replay does not wait on a client.
///
/// # Errors
///
/// Returns an error if the configuration names none, or one that cannot be used.
pub(super) fn predictor(config: PredictionConfig) -> anyhow::Result<ReplayedPredictor> {
    let Some(configured) = config.predictor.external() else {
        let text = "prediction.predictor names no external predictor: it needs `command` or `url`";
        return Err(WrongUsage(text.into()).into());
    };
    let patient = ExternalConfig {
        deadline: ExternalConfig::MAX_DEADLINE,
        ..configured.clone()
    };
    let external = external_predictor_from(&patient).context("prediction.predictor")?;
    let runtime = Handle::current();
    let has_failed = AtomicBool::new(false);
    let ask = move |request: &ScoreRequest| {
        let scores = block_in_place(|| runtime.block_on(external.score(request)));
        if let Err(error) = &scores
            && !has_failed.swap(true, Ordering::Relaxed)
        {
            note(&format!(
                "the external predictor failed, so that some calls are predicted without it: {error}"
            ));
        }
        scores.ok()
    };
    let make = move || predictor_from(&config);
    Ok(ReplayedPredictor::with_external(
        "external",
        make,
        Arc::new(ask),
    ))
}
