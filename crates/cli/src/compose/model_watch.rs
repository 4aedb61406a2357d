//! The watch on pulled models: with `search.encoder.model = "auto"`, a model that is pulled or
//! removed while riglm runs is taken into use, or given up.

use std::path::PathBuf;
use std::time::Duration;

use riglm_adapters_prediction::encoder::{PreferredModel, preferred_model};

/// The interval of checks.
const INTERVAL: Duration = Duration::from_secs(5);

/// The model that was the best one at the last check.
#[derive(Debug)]
pub(super) struct ModelWatch {
    data_dir: PathBuf,
    known: Option<PreferredModel>,
}

impl ModelWatch {
    /// Returns the watch on a data directory, whose models are in use already.
    pub(super) fn new(data_dir: PathBuf) -> Self {
        Self {
            known: preferred_model(&data_dir),
            data_dir,
        }
    }

    /// Waits until another model is the best one. Returns its name; `None` if none is left.
    pub(super) async fn wait_for_change(&mut self) -> Option<String> {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let data_dir = self.data_dir.clone();
            let found = tokio::task::spawn_blocking(move || preferred_model(&data_dir)).await;
            let Ok(found) = found else {
                continue; // The runtime is shutting down.
            };
            if found != self.known {
                self.known = found;
                return self.known.as_ref().map(|model| model.name.to_string());
            }
        }
    }
}
