//! The search and its encoders.

use std::path::Path;
use std::sync::Arc;

use riglm_adapters_http::{EncoderHealth, EncoderState, Encoders as ControlEncoders};
use riglm_adapters_prediction::O200kTokenCounter;
use riglm_adapters_prediction::encoder::{EncoderConfig, EncoderConfigError, Encoders};
use riglm_adapters_storage::Storage;
use riglm_app::learning::NextTools;
use riglm_app::search::{EncoderCondition, SearchEncoder, SearchParts, SearchStores, ToolSearch};
use riglm_ports::clock::Clock;
use riglm_ports::encoder::Encoder;

use crate::config::Config;

/// Whether a model has the embedded encoder beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderUse {
    /// As in the proxy.
    WithEmbedded,
    /// The embedded one only where there is no other.
    Alone,
}

/// Returns the encoders that a section asks for, the better one first.
///
/// # Errors
///
/// Returns [`EncoderConfigError`] for a model that is not there, and for what cannot work.
pub fn encoders_from(
    config: &EncoderConfig,
    data_dir: &Path,
    encoder_use: EncoderUse,
) -> Result<Vec<Arc<dyn Encoder>>, EncoderConfigError> {
    let Encoders { model, embedded } =
        riglm_adapters_prediction::encoder::encoders_from(config, data_dir)?;
    let is_alone = encoder_use == EncoderUse::Alone && model.is_some();
    let embedded = embedded.filter(|_| !is_alone);
    Ok(model.into_iter().chain(embedded).collect())
}

/// Builds the search; `None` where it is switched off, or no list is ever made shorter.
pub(super) fn search_from(
    config: &Config,
    storage: Option<&Arc<Storage>>,
    next_tools: Option<&Arc<NextTools>>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Option<Arc<ToolSearch>>> {
    if !config.search.enabled || !config.filtering.may_hide() {
        return Ok(None);
    }
    let Encoders { model, embedded } = riglm_adapters_prediction::encoder::encoders_from(
        &config.search.encoder,
        &config.data_dir,
    )?;
    let model = model.map(|encoder| SearchEncoder {
        encoder,
        is_stored: true,
    });
    let embedded = embedded.map(|encoder| SearchEncoder {
        encoder,
        is_stored: false,
    });
    let stores = storage.map(|storage| {
        let store = Arc::new(storage.store.clone());
        SearchStores {
            embeddings: Arc::clone(&store) as _,
            usage: Arc::clone(&store) as _,
            contexts: Arc::clone(&store) as _,
            invocations: store,
        }
    });
    let parts = SearchParts {
        encoders: model.into_iter().chain(embedded).collect(),
        stores,
        next_tools: next_tools.cloned(),
        counter: Arc::new(O200kTokenCounter),
        clock,
        rules: config.search.rules()?,
    };
    Ok(Some(Arc::new(ToolSearch::new(parts))))
}

/// Returns what the control server asks for the encoders.
pub(super) fn encoder_states(search: Option<Arc<ToolSearch>>) -> ControlEncoders {
    Arc::new(move || {
        let encoders = search.as_ref().map(|search| search.encoders());
        let health = |(model, condition)| EncoderHealth {
            model,
            state: match condition {
                EncoderCondition::Unused => EncoderState::Unused,
                EncoderCondition::Ready => EncoderState::Ready,
                EncoderCondition::Failing => EncoderState::Failing,
            },
        };
        encoders.into_iter().flatten().map(health).collect()
    })
}
