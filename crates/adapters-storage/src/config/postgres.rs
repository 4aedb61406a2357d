//! The configuration section `storage.postgres`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use riglm_ports::analytics::StoreError;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use validator::{Validate, ValidationError};

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

impl PostgresConfig {
    /// Returns the connection options.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Open`] for an invalid URL, or for a URL that asks for less than full
    /// verification; the message does not contain the URL.
    pub(crate) fn connect_options(&self) -> Result<PgConnectOptions, StoreError> {
        self.options().map_err(|message| StoreError::Open {
            what: "the database of storage.postgres.url".into(),
            source: message.into(),
        })
    }

    fn options(&self) -> Result<PgConnectOptions, &'static str> {
        let url = self.url.as_ref().map_or("", |url| url.expose_secret());
        // The parser would accept a URL without a scheme as a path or a name.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err("url must begin with postgres:// or postgresql://");
        }
        if url.contains("sslmode=") {
            return Err("url must not have sslmode: set tls instead");
        }
        let options =
            PgConnectOptions::from_str(url).map_err(|_| "url is not a valid database URL")?;
        let tls = self.tls.unwrap_or(if is_loopback(&options) {
            PostgresTls::Off
        } else {
            PostgresTls::VerifyFull
        });
        let options = match tls {
            PostgresTls::VerifyFull => options.ssl_mode(PgSslMode::VerifyFull),
            PostgresTls::Off => options.ssl_mode(PgSslMode::Disable),
        };
        Ok(match &self.root_certificate {
            Some(path) => options.ssl_root_cert(path),
            None => options,
        })
    }
}

/// Validates the URL if there is one.
fn validate_url(config: &PostgresConfig) -> Result<(), ValidationError> {
    if config.url.is_none() {
        return Ok(());
    }
    let refused = |message: &'static str| ValidationError::new("url").with_message(message.into());
    config.options().map(drop).map_err(refused)
}

/// Refuses a timeout of zero.
fn validate_not_zero(duration: &Duration) -> Result<(), ValidationError> {
    if duration.is_zero() {
        return Err(ValidationError::new("duration").with_message("must be more than 0s".into()));
    }
    Ok(())
}

/// Returns whether the server is on this machine.
fn is_loopback(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
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

    fn config(url: &str, tls: Option<PostgresTls>) -> PostgresConfig {
        PostgresConfig {
            url: Some(url.into()),
            tls,
            ..PostgresConfig::default()
        }
    }

    fn mode(url: &str, tls: Option<PostgresTls>) -> String {
        format!("{:?}", config(url, tls).options().unwrap().get_ssl_mode())
    }

    #[test]
    fn other_machines_have_to_prove_their_name() {
        assert_eq!(mode("postgres://u:p@db.example/x", None), "VerifyFull");
        assert_eq!(mode("postgres://u@10.0.0.7/x", None), "VerifyFull");
        assert_eq!(mode("postgres://u@127.0.0.1:5432/x", None), "Disable");
        assert_eq!(mode("postgres://u@localhost/x", None), "Disable");
        assert_eq!(mode("postgres://u@[::1]/x", None), "Disable");
    }

    #[test]
    fn the_tls_mode_can_be_configured() {
        let off = Some(PostgresTls::Off);
        assert_eq!(mode("postgresql://u@db.example/x", off), "Disable");
        let full = Some(PostgresTls::VerifyFull);
        assert_eq!(mode("postgres://u@127.0.0.1/x", full), "VerifyFull");
    }

    #[test]
    fn invalid_addresses_are_refused_without_repeating_them() {
        for url in [
            "",
            "secret",
            "mysql://u:secret@h/x",
            "postgres://u:secret@h/x?sslmode=prefer",
        ] {
            let error = config(url, None).validate().unwrap_err().to_string();
            assert!(error.contains("url must"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!(PostgresConfig::default().validate(), Ok(()));
    }

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
