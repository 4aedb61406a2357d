//! What needs numbers that were learned: predictors, encoders, and the sizes of texts in tokens.
//!
//! Predictors implement [`riglm_ports::predictor::Predictor`]: the rules are those of the domain, under
//! the names of the configuration section `prediction`. List policies implement
//! [`riglm_ports::list_policy::ListPolicy`]; the registry picks one from the configuration section
//! `filtering`. Both are synchronous computation on borrowed data: no I/O, no
//! clock, no randomness. [`encoder`] makes vectors of texts, which loads files and may ask a server;
//! [`chat`] asks language models about searches; [`models`] fetches and keeps the files. The crate depends on the domain and the ports alone.

pub mod chat;
pub mod encoder;
mod endpoint;
pub mod models;
mod name_list;
mod predictor;
mod registry;
mod token_table;
mod tokens;

pub use name_list::{AllowList, DenyList};
pub use predictor::{
    BandsConfig, PredictionConfig, PredictorName, PredictorSetError, predictor_from,
    predictor_named, predictor_set,
};
pub use registry::{
    ClientRuleConfig, CostsConfig, FilteringConfig, PolicyChoice, PoolConfig, ProfileConfig,
    ProfileFilteringConfig, Strategy, list_policy_from,
};
pub use tokens::O200kTokenCounter;
