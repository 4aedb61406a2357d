//! The configuration sections `storage` and `recording`.

mod postgres;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use strum::IntoStaticStr;
use validator::Validate;

pub use self::postgres::{PostgresConfig, PostgresTls};

/// The database for usage data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Validate)]
#[validate(schema(function = validate_backend))]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// The database that stores the rows.
    pub backend: Backend,
    /// Used when the backend is `sqlite`.
    #[validate(nested)]
    pub sqlite: SqliteConfig,
    /// Used when the backend is `postgres`.
    #[validate(nested)]
    pub postgres: PostgresConfig,
}

/// A supported database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Backend {
    /// A SQLite file on the machine of the proxy.
    #[default]
    Sqlite,
    /// A PostgreSQL server, which several proxies may share.
    Postgres,
}

impl Backend {
    /// Returns the configuration name of the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The SQLite database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct SqliteConfig {
    /// The database file; by default `riglm.db` in the data directory.
    pub path: Option<PathBuf>,
}

/// The refusal of PostgreSQL by a build without it.
pub(crate) const POSTGRES_NOT_BUILT: &str =
    "this build of riglm has no PostgreSQL: build it with `--features postgres`";

fn validate_backend(storage: &StorageConfig) -> Result<(), validator::ValidationError> {
    if storage.backend == Backend::Postgres && !cfg!(feature = "postgres") {
        let refusal = validator::ValidationError::new("feature");
        return Err(refusal.with_message(POSTGRES_NOT_BUILT.into()));
    }
    if storage.backend == Backend::Postgres && storage.postgres.url.is_none() {
        let message = "backend postgres needs postgres.url";
        return Err(validator::ValidationError::new("url").with_message(message.into()));
    }
    Ok(())
}

/// The recording of usage.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct RecordingConfig {
    /// Whether calls are recorded, and the handling of a call that cannot be recorded.
    pub mode: RecordingMode,
    /// The failures that a record survives once its call is answered.
    pub durability: Durability,
    /// The maximum number of bytes of records that wait for the database, at least 64 KiB.
    #[validate(range(min = 65_536))]
    pub spool_max_bytes: u64,
    /// The method to determine the sizes of arguments and results in tokens.
    pub tokens: TokenSizes,
    /// The retention of rows in days; 0 keeps them forever.
    #[validate(range(max = 36_500))]
    pub retention_days: u32,
}

impl RecordingConfig {
    /// The default of [`Self::spool_max_bytes`]: about 300,000 calls.
    pub const SPOOL_MAX_BYTES: u64 = 256 * 1024 * 1024;

    /// Returns the retention of rows; `None` for forever.
    #[must_use]
    pub fn retention(&self) -> Option<Duration> {
        let days = (self.retention_days > 0).then_some(self.retention_days)?;
        Some(Duration::from_hours(24 * u64::from(days)))
    }
}

impl Default for RecordingConfig {
    fn default() -> Self {
        Self {
            mode: RecordingMode::default(),
            durability: Durability::default(),
            spool_max_bytes: Self::SPOOL_MAX_BYTES,
            tokens: TokenSizes::default(),
            retention_days: 90,
        }
    }
}

/// Whether calls are recorded, and the handling of a call that cannot be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingMode {
    /// The call goes on without its record, and the loss is counted.
    #[default]
    BestEffort,
    /// The call is refused.
    Required,
    /// Nothing is recorded at all.
    Off,
}

/// The failures that a record survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The death of the process by any signal.
    #[default]
    Process,
    /// A loss of power too, at the price of a disk flush before each reply.
    Power,
}

/// The method to determine the sizes of arguments and results in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSizes {
    /// Texts are tokenized after their call, as long as there is time; other sizes are estimated.
    #[default]
    Counted,
    /// All sizes are estimated from the number of bytes.
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
        let recording: RecordingConfig = serde_json::from_str(r#"{"mode":"off"}"#).unwrap();
        assert_eq!(recording.mode, RecordingMode::Off);
        let error = serde_json::from_str::<RecordingConfig>(r#"{"durabilty":"power"}"#);
        assert!(error.unwrap_err().to_string().contains("durabilty"));
    }

    #[test]
    fn names_of_databases_are_those_of_the_configuration() {
        for (backend, name) in [(Backend::Sqlite, "sqlite"), (Backend::Postgres, "postgres")] {
            assert_eq!(backend.as_str(), name);
            assert_eq!(
                serde_json::from_value::<Backend>(name.into()).unwrap(),
                backend
            );
        }
    }

    #[test]
    fn spool_sizes_below_the_minimum_are_refused() {
        let recording = |spool_max_bytes| RecordingConfig {
            spool_max_bytes,
            ..RecordingConfig::default()
        };
        assert!(recording(65_535).validate().is_err());
        assert_eq!(recording(65_536).validate(), Ok(()));
    }

    #[test]
    fn rows_are_kept_for_days_or_for_ever() {
        let recording = |retention_days| RecordingConfig {
            retention_days,
            ..RecordingConfig::default()
        };
        assert_eq!(recording(0).retention(), None);
        let days = Duration::from_hours(48);
        assert_eq!(recording(2).retention(), Some(days));
        assert_eq!(recording(36_500).validate(), Ok(()));
        assert!(recording(36_501).validate().is_err());
    }

    #[cfg(not(feature = "postgres"))]
    #[test]
    fn the_postgres_backend_needs_the_feature() {
        let storage = StorageConfig {
            backend: Backend::Postgres,
            ..StorageConfig::default()
        };
        let error = storage.validate().unwrap_err().to_string();
        assert!(error.contains("--features postgres"), "{error}");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn the_postgres_backend_needs_an_address() {
        let storage = |url: Option<&str>| StorageConfig {
            backend: Backend::Postgres,
            postgres: PostgresConfig {
                url: url.map(Into::into),
                ..PostgresConfig::default()
            },
            ..StorageConfig::default()
        };
        let error = storage(None).validate().unwrap_err().to_string();
        assert!(error.contains("needs postgres.url"), "{error}");
        assert_eq!(storage(Some("postgres://a@b/c")).validate(), Ok(()));
    }
}
