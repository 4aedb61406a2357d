//! Identities and secrets: principals, keyed hashes, redaction, and the audit trail of operators.

pub mod audit;
pub mod canonical;
#[cfg(feature = "keys")]
pub mod key_digest;
pub mod principal;
pub mod redaction;
