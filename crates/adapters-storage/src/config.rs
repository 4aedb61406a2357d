//! The configuration sections `storage` and `recording`.

mod postgres;

use std::path::PathBuf;

use serde::Deserialize;
use validator::Validate;

pub use self::postgres::{PostgresConfig, PostgresTls};

/// Where usage is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Validate)]
#[validate(schema(function = has_what_the_backend_needs))]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// Which database holds the rows.
    pub backend: Backend,
    /// Read when the backend is `sqlite`.
    #[validate(nested)]
    pub sqlite: SqliteConfig,
    /// Read when the backend is `postgres`.
    #[validate(nested)]
    pub postgres: PostgresConfig,
}

/// A database that can hold the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// One file beside the proxy.
    #[default]
    Sqlite,
    /// A PostgreSQL server, which several proxies may share.
    Postgres,
}

/// The SQLite database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct SqliteConfig {
    /// The database file; by default `riglm.db` in the data directory.
    pub path: Option<PathBuf>,
}

fn has_what_the_backend_needs(storage: &StorageConfig) -> Result<(), validator::ValidationError> {
    if storage.backend == Backend::Postgres {
        storage.postgres.checked()?;
    }
    Ok(())
}

/// How usage is written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct RecordingConfig {
    /// What happens to a call that cannot be recorded.
    pub mode: RecordingMode,
    /// What a record survives once its call is answered.
    pub durability: Durability,
    /// How many bytes of records may wait for the database, at least 64 KiB.
    #[validate(range(min = 65_536))]
    pub spool_max_bytes: u64,
    /// How the sizes of arguments and results in tokens come about.
    pub tokens: TokenSizes,
}

impl RecordingConfig {
    /// The default of [`Self::spool_max_bytes`]: about 300,000 calls.
    pub const SPOOL_MAX_BYTES: u64 = 256 * 1024 * 1024;
}

impl Default for RecordingConfig {
    fn default() -> Self {
        Self {
            mode: RecordingMode::default(),
            durability: Durability::default(),
            spool_max_bytes: Self::SPOOL_MAX_BYTES,
            tokens: TokenSizes::default(),
        }
    }
}

/// What happens to a call that cannot be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingMode {
    /// It goes on, and the loss is counted.
    #[default]
    BestEffort,
    /// It is refused.
    Required,
}

/// What a record survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The death of the process by any signal.
    #[default]
    Process,
    /// The loss of power too, at the price of a disk flush before each reply.
    Power,
}

/// How the sizes of arguments and results in tokens come about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSizes {
    /// Texts are counted after their call, as long as there is time for it; others are estimated.
    #[default]
    Counted,
    /// All are estimated from their bytes.
    Estimated,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_section_means_the_defaults() {
        assert_eq!(
            serde_json::from_str::<StorageConfig>("{}").unwrap(),
            StorageConfig::default()
        );
        assert_eq!(
            serde_json::from_str::<RecordingConfig>("{}").unwrap(),
            RecordingConfig::default()
        );
    }

    #[test]
    fn values_are_written_in_lower_case_and_misspelt_keys_are_named() {
        let recording: RecordingConfig = serde_json::from_str(
            r#"{"mode":"required","durability":"power","tokens":"estimated"}"#,
        )
        .unwrap();
        assert_eq!(recording.tokens, TokenSizes::Estimated);
        assert_eq!(recording.mode, RecordingMode::Required);
        assert_eq!(recording.durability, Durability::Power);
        let error = serde_json::from_str::<RecordingConfig>(r#"{"durabilty":"power"}"#);
        assert!(error.unwrap_err().to_string().contains("durabilty"));
    }

    #[test]
    fn a_spool_that_holds_hardly_anything_is_refused() {
        let recording = |spool_max_bytes| RecordingConfig {
            spool_max_bytes,
            ..RecordingConfig::default()
        };
        assert!(recording(65_535).validate().is_err());
        assert_eq!(recording(65_536).validate(), Ok(()));
    }
}
