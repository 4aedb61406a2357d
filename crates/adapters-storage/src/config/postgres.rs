//! The configuration section `storage.postgres`.

#[cfg(feature = "postgres")]
mod connection;

use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use validator::{Validate, ValidationError};

#[cfg(feature = "postgres")]
use self::connection::validate_url;

/// The PostgreSQL database.
#[derive(Clone, Debug, Deserialize, Validate)]
#[validate(schema(function = validate_url))]
#[serde(deny_unknown_fields, default)]
pub struct PostgresConfig {
    /// The URL, as in `postgres://user:password@host:5432/database`.
    pub url: Option<SecretString>,
    /// The schema that holds the tables. It is created if it is missing.
    #[validate(custom(function = validate_plain_name))]
    pub schema: String,
    /// Whether connections are encrypted. By default, connections to other machines are, and the
    /// certificate of the server is verified.
    pub tls: Option<PostgresTls>,
    /// A file with the certificates (PEM) of the authorities that sign the server's certificate. It
    /// replaces the certificates of the system.
    pub root_certificate: Option<PathBuf>,
    /// The maximum number of connections of this process.
    #[validate(range(min = 2, max = 100))]
    pub max_connections: u32,
    /// The timeout for making a connection, or for getting a free one.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = validate_not_zero))]
    pub connect_timeout: Duration,
    /// The timeout of a statement.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = validate_not_zero))]
    pub statement_timeout: Duration,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            url: None,
            schema: "riglm".into(),
            tls: None,
            root_certificate: None,
            max_connections: 5,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

impl PartialEq for PostgresConfig {
    fn eq(&self, other: &Self) -> bool {
        let secret = |config: &Self| {
            config
                .url
                .as_ref()
                .map(|url| url.expose_secret().to_owned())
        };
        secret(self) == secret(other)
            && self.schema == other.schema
            && self.tls == other.tls
            && self.root_certificate == other.root_certificate
            && self.max_connections == other.max_connections
            && self.connect_timeout == other.connect_timeout
            && self.statement_timeout == other.statement_timeout
    }
}

impl Eq for PostgresConfig {}

/// Whether a connection to the server is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PostgresTls {
    /// Encrypted, with verification of the server's certificate and name.
    VerifyFull,
    /// Not encrypted, for a private network.
    Off,
}

/// Accepts every URL: only the driver can read it, and nothing uses it.
#[cfg(not(feature = "postgres"))]
fn validate_url(_: &PostgresConfig) -> Result<(), ValidationError> {
    Ok(())
}

/// Refuses a timeout of zero.
fn validate_not_zero(duration: &Duration) -> Result<(), ValidationError> {
    if duration.is_zero() {
        return Err(ValidationError::new("duration").with_message("must be more than 0s".into()));
    }
    Ok(())
}

/// Refuses a name that needs quotes in SQL.
fn validate_plain_name(name: &str) -> Result<(), ValidationError> {
    let mut bytes = name.bytes();
    let starts_well = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let goes_on_well =
        bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if starts_well && goes_on_well && name.len() <= 63 && !name.starts_with("pg_") {
        return Ok(());
    }
    Err(ValidationError::new("schema").with_message(
        "must be 1 to 63 lower-case letters, digits and '_', not begin with a digit or pg_".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_a_plain_name() {
        assert!(
            ["riglm", "_x", "a1"]
                .iter()
                .all(|name| validate_plain_name(name).is_ok())
        );
        let refused = ["", "1a", "A", "a b", "a\"b", "pg_x"];
        assert!(
            refused
                .iter()
                .all(|name| validate_plain_name(name).is_err())
        );
    }
}
