//! Adapters with learned parameters: predictors, encoders, and token counts.
//!
//! Predictors implement [`riglm_ports::predictor::Learner`] with the rules of the domain. They
//! are configured in the section `prediction`. List policies implement
//! [`riglm_ports::list_policy::ListPolicy`]. Both are synchronous computation on borrowed data, without I/O, clock or
//! randomness. [`external`] asks a program or a server for scores. [`encoder`] turns texts into vectors, which loads files and may call a server.
//! [`chat`] sends prompts about searches to language models. [`models`] downloads and stores model
//! files. The crate depends only on the domain and the ports.
//!
//! Models on disk need the feature `model`. Without it, the crate has the static embedding and remote
//! encoders, and a configured model is refused.

pub mod chat;
pub mod encoder;
mod endpoint;
pub mod external;
pub mod models;
mod name_list;
mod predictor;
mod token_table;
mod tokens;

pub use name_list::{AllowList, DenyList};
pub use predictor::{BandsConfig, PredictionConfig, predictor_from, predictor_named};
pub use tokens::O200kTokenCounter;
