//! Encoders, which turn texts into vectors: by a table in the binary, by models on disk, or by a
//! server.

mod bert;
mod load;
mod local;
pub(crate) mod model;
mod quantized_bert;
mod registry;
mod remote;
mod static_embedding;
pub(crate) mod unigram;

pub(crate) use load::load;
pub use local::LocalEncoder;
pub(crate) use model::ModelError;
pub use registry::{
    EncoderConfig, EncoderConfigError, Encoders, PreferredModel, encoders_from, preferred_model,
};
pub use remote::{RemoteConfig, RemoteConfigError, RemoteEncoder};
pub use static_embedding::StaticEmbedding;
