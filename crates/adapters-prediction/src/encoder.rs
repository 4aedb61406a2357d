//! Encoders, which turn texts into vectors: by a table in the binary, by models on disk, or by a
//! server.

#[cfg(feature = "model")]
mod bert;
#[cfg(feature = "model")]
mod load;
#[cfg(feature = "model")]
mod local;
#[cfg(feature = "model")]
pub(crate) mod model;
#[cfg(feature = "model")]
mod quantized_bert;
mod registry;
mod remote;
mod static_embedding;
#[cfg(feature = "model")]
pub(crate) mod unigram;

#[cfg(feature = "model")]
pub(crate) use load::load;
#[cfg(feature = "model")]
pub use local::LocalEncoder;
#[cfg(feature = "model")]
pub(crate) use model::ModelError;
pub use registry::{
    EncoderConfig, EncoderConfigError, Encoders, PreferredModel, encoders_from, preferred_model,
};
pub use remote::{RemoteConfig, RemoteConfigError, RemoteEncoder};
pub use static_embedding::StaticEmbedding;
