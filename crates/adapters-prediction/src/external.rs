//! Predictors outside of riglm: a program that is started, or a server that is asked.
//!
//! Both implement [`ExternalPredictor`]. They check each answer and keep the deadline. The circuit
//! breaker is not here, but in the service that asks: it is the same for predictors of other
//! programs that embed riglm.

mod config;
mod process;
mod server;

use std::sync::Arc;

use riglm_ports::external_predictor::ExternalPredictor;

pub use config::{ExternalConfig, ExternalRole, ExternalSource, PredictorChoice};
pub use process::ProcessPredictor;
pub use server::{ServerPredictor, ServerSetupError};

/// Returns the configured external predictor. A program starts at once, if there is an async
/// runtime; a server is connected at the first request.
///
/// # Errors
///
/// Returns [`ServerSetupError`] for the address or the key of a server that cannot be used.
pub fn external_predictor_from(
    config: &ExternalConfig,
) -> Result<Arc<dyn ExternalPredictor>, ServerSetupError> {
    Ok(match &config.source {
        ExternalSource::Command(command) => {
            let predictor = ProcessPredictor::new(command.clone(), config.deadline);
            predictor.start();
            Arc::new(predictor)
        }
        ExternalSource::Url { url, api_key } => {
            let predictor = ServerPredictor::new(url, api_key.as_ref(), config.deadline)?;
            Arc::new(predictor)
        }
    })
}

#[cfg(test)]
mod tests;
