//! The search and its encoders.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use riglm_adapters_http::{EncoderHealth, EncoderState, Encoders as ControlEncoders};
use riglm_adapters_prediction::O200kTokenCounter;
use riglm_adapters_prediction::chat::{ChatConfig, ChatModel};
use riglm_adapters_prediction::encoder::{EncoderConfig, EncoderConfigError, Encoders};
use riglm_adapters_storage::Store;
use riglm_discovery::experiments::Experiments;
use riglm_discovery::learning::LivePredictions;
use riglm_discovery::search::{
    EncoderCondition, Escalation, GuardedModel, ModelLimits, Reranking, SearchChange,
    SearchEncoder, SearchParts, SearchStores, ToolSearch,
};
use riglm_ports::encoder::Encoder;
use riglm_ports::observer::Observer;
use riglm_ports::query_expander::QueryExpander;
use riglm_ports::reranker::Reranker;

use super::foundation::Foundation;
use super::telemetry::Telemetry;
use crate::config::{Config, RerankBy, SearchConfig};

/// The use of the embedded encoder in addition to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderUse {
    /// A model is combined with the embedded encoder, as in the proxy.
    WithEmbedded,
    /// The embedded encoder is used only without a model.
    Alone,
}

/// Returns the encoders of a section, the better one first.
///
/// # Errors
///
/// Returns [`EncoderConfigError`] for a missing model, and for values that cannot work.
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

/// Returns whether encoders are needed: clients may search, because the search is on and lists may
/// hide tools, or tools are recommended.
pub fn needs_encoders(config: &Config) -> bool {
    let is_searched = config.search.enabled && config.filtering.may_hide();
    is_searched || config.recommend.enabled
}

/// Builds the search. It ranks by words alone if nothing needs encoders.
pub(super) fn search_from(
    base: &Foundation<'_>,
    predictions: &LivePredictions,
    experiments: Option<&Arc<Experiments>>,
) -> anyhow::Result<Arc<ToolSearch>> {
    let config = base.config;
    let encoders = needs_encoders(config).then(|| encoders(config));
    let parts = SearchParts {
        encoders: encoders.transpose()?.unwrap_or_default(),
        stores: base.store().as_ref().map(stores_of),
        predictions: predictions.clone(),
        counter: Arc::new(O200kTokenCounter),
        clock: Arc::clone(&base.clock),
        rules: config.search.rules()?,
        escalation: escalation_from(&config.search, base.observer())?,
        experiments: experiments.cloned(),
    };
    Ok(Arc::new(ToolSearch::new(parts)))
}

/// Returns the change of the search between two configurations; `None` without one.
///
/// # Errors
///
/// Returns the error of an encoder, a file of synonyms or a language model that cannot be used.
pub(super) fn search_change(
    before: &Config,
    now: &Config,
    telemetry: &Telemetry,
) -> anyhow::Result<Option<SearchChange>> {
    let are_needed_now = needs_encoders(now) && !needs_encoders(before);
    if before.search == now.search && !are_needed_now {
        return Ok(None);
    }
    let has_others = are_needed_now || before.search.encoder != now.search.encoder;
    let encoders = (has_others && needs_encoders(now)).then(|| encoders(now));
    change_to(now, telemetry, encoders.transpose()?).map(Some)
}

/// Returns whether the encoder is chosen among the pulled models.
pub(super) fn chooses_model(config: &Config) -> bool {
    needs_encoders(config) && config.search.encoder.model == "auto"
}

/// Returns the change of the search to the encoders that are available now.
///
/// # Errors
///
/// Returns the error of a file of synonyms or a language model that cannot be used.
pub(super) fn model_change(config: &Config, telemetry: &Telemetry) -> anyhow::Result<SearchChange> {
    change_to(config, telemetry, Some(encoders(config)?))
}

/// Returns the change of the search to a configuration with these encoders, or the present ones.
fn change_to(
    config: &Config,
    telemetry: &Telemetry,
    encoders: Option<Vec<SearchEncoder>>,
) -> anyhow::Result<SearchChange> {
    Ok(SearchChange {
        encoders,
        rules: config.search.rules()?,
        escalation: escalation_from(&config.search, telemetry.observer())?,
    })
}

/// Returns the escalation of a search beyond its ranking.
fn escalation_from(
    config: &SearchConfig,
    observer: Arc<dyn Observer>,
) -> anyhow::Result<Escalation> {
    let expansion = config.expansion.rules();
    let expander = config
        .expansion
        .endpoint
        .as_ref()
        .filter(|_| expansion.is_some());
    let expander = expander.map(|chat| -> anyhow::Result<GuardedModel<dyn QueryExpander>> {
        let limits = config.expansion.limits();
        let model = chat_model(chat, limits, "search.expansion.endpoint")?;
        Ok(GuardedModel::new(model, limits))
    });
    let limits = config.rerank.limits();
    let max_tools = config.rerank.max_tools;
    let reranking = match (config.rerank.by, &config.rerank.endpoint) {
        (RerankBy::Endpoint, Some(chat)) => {
            let model: Arc<dyn Reranker> = chat_model(chat, limits, "search.rerank.endpoint")?;
            Reranking::Endpoint {
                reranker: GuardedModel::new(model, limits),
                max_tools,
            }
        }
        (RerankBy::Client, _) => Reranking::Client { limits, max_tools },
        (RerankBy::None | RerankBy::Endpoint, _) => Reranking::None,
    };
    Ok(Escalation {
        notes: config.notes.clone(),
        expansion,
        expander: expander.transpose()?,
        reranking,
        observer,
    })
}

/// Returns the client of the language model of a subsection.
fn chat_model(
    config: &ChatConfig,
    limits: ModelLimits,
    section: &str,
) -> anyhow::Result<Arc<ChatModel>> {
    let model = ChatModel::new(config.clone(), limits.deadline);
    Ok(Arc::new(model.with_context(|| {
        format!("failed to use the language model of {section}")
    })?))
}

/// Returns the configured encoders, the better one first.
pub(super) fn encoders(config: &Config) -> anyhow::Result<Vec<SearchEncoder>> {
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
        // The embedded encoder is fast, so its vectors need no storage.
        is_stored: false,
    });
    Ok(model.into_iter().chain(embedded).collect())
}

/// Returns the stores of recorded data that the search reads.
pub(super) fn stores_of(store: &Arc<Store>) -> SearchStores {
    SearchStores {
        embeddings: Arc::clone(store) as _,
        usage: Arc::clone(store) as _,
        contexts: Arc::clone(store) as _,
        invocations: Arc::clone(store) as _,
    }
}

/// Returns the source of the health of the encoders.
pub(super) fn encoder_states(search: Arc<ToolSearch>) -> ControlEncoders {
    Arc::new(move || {
        let health = |(model, condition)| EncoderHealth {
            model,
            state: match condition {
                EncoderCondition::Unused => EncoderState::Unused,
                EncoderCondition::Ready => EncoderState::Ready,
                EncoderCondition::Failing => EncoderState::Failing,
            },
        };
        search.encoders().into_iter().map(health).collect()
    })
}
