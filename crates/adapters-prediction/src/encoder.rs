//! Encoders: texts turned into vectors, by a table in the program, by models on disk, or by a
//! server.

mod bert;
mod floor;
mod load;
mod local;
pub(crate) mod model;
mod quantized;
mod registry;
mod remote;
pub(crate) mod unigram;

pub use floor::FloorEncoder;
pub(crate) use load::load;
pub use local::LocalEncoder;
pub(crate) use model::ModelError;
pub use registry::{EncoderConfig, EncoderConfigError, Encoders, encoders_from};
pub use remote::{RemoteConfig, RemoteConfigError, RemoteEncoder};
