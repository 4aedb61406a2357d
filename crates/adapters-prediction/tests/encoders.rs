//! Contract tests of encoders with models on disk.

#[path = "place/model.rs"]
mod model;

use std::future::{Ready, ready};
use std::sync::LazyLock;

use riglm_adapters_prediction::encoder::LocalEncoder;

static MINILM: LazyLock<LocalEncoder> = LazyLock::new(|| model::encoder("all-MiniLM-L6-v2"));

fn minilm() -> Ready<&'static LocalEncoder> {
    ready(&MINILM)
}

riglm_ports::encoder_contract!(
    #[ignore = "needs a model"]
    minilm,
    minilm()
);
