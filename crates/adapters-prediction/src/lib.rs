//! Predictors: which tools of a list a client is shown. And the sizes of texts in tokens.
//!
//! Each predictor implements [`riglm_ports::predictor::Predictor`]; the registry picks one from the
//! configuration section `filtering`. They are synchronous computation on borrowed data: no I/O, no
//! clock, no randomness. Reading and fetching is what `models` does, the files of encoders. The
//! crate depends on the domain and the ports alone.

mod cold_start;
pub mod encoder;
pub mod models;
mod name_list;
mod registry;
mod token_table;
mod tokens;

pub use cold_start::ColdStart;
pub use name_list::{AllowList, DenyList};
pub use registry::{FilteringConfig, Strategy, predictor_from};
pub use tokens::O200kTokenCounter;
