//! The example keeps the promises of a predictor.

use riglm_example_predictor::Successors;

riglm_ports::predictor_contract!(successors, &|| Box::new(Successors::default()));
