//! riglm with a predictor of its own: all commands and all other parts are those of riglm.

use std::process::ExitCode;
use std::sync::Arc;

use riglm_cli::compose::{Extensions, PredictorFactory};
use riglm_example_predictor::Successors;

fn main() -> ExitCode {
    let predictor = PredictorFactory {
        model: "example: successors of the last call".into(),
        make: Arc::new(|| Box::new(Successors::default())),
    };
    riglm_cli::main_with(Extensions {
        predictor: Some(predictor),
        ..Extensions::default()
    })
}
