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
#[validate(schema(function = has_usable_url))]
#[serde(deny_unknown_fields, default)]
pub struct PostgresConfig {
    /// The address, as in `postgres://user:password@host:5432/database`.
    pub url: Option<SecretString>,
    /// The schema that holds the tables; made when it is missing.
    #[validate(custom(function = is_plain_name))]
    pub schema: String,
    /// Whether connections are encrypted. Without it, those to other machines are, and the server
    /// has to prove its name.
    pub tls: Option<PostgresTls>,
    /// A file with the certificates (PEM) of the authorities that may vouch for the server, in
    /// place of those of the system.
    pub root_certificate: Option<PathBuf>,
    /// The most connections of this process at once.
    #[validate(range(min = 2, max = 100))]
    pub max_connections: u32,
    /// How long making a connection, or waiting for a free one, may take.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = is_some_time))]
    pub connect_timeout: Duration,
    /// How long a statement may take.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = is_some_time))]
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
    /// It is, and the server has to prove that it has the name of the address.
    VerifyFull,
    /// It is not: for a network that is private.
    Off,
}

impl PostgresConfig {
    /// Returns how to connect.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Open`] for an address that is none, or that asks for less than full
    /// verification; it does not repeat the address.
    pub(crate) fn connect_options(&self) -> Result<PgConnectOptions, StoreError> {
        self.options().map_err(|message| StoreError::Open {
            what: "the database of storage.postgres.url".into(),
            source: message.into(),
        })
    }

    fn options(&self) -> Result<PgConnectOptions, &'static str> {
        let url = self.url.as_ref().map_or("", |url| url.expose_secret());
        // The parser would take an address without a scheme for a path or a name.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err("url must begin with postgres:// or postgresql://");
        }
        if url.contains("sslmode=") {
            return Err("url must not have sslmode: set tls instead");
        }
        let options =
            PgConnectOptions::from_str(url).map_err(|_| "url is not the address of a database")?;
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

/// Checks the address where there is one.
fn has_usable_url(config: &PostgresConfig) -> Result<(), ValidationError> {
    if config.url.is_none() {
        return Ok(());
    }
    let refused = |message: &'static str| ValidationError::new("url").with_message(message.into());
    config.options().map(drop).map_err(refused)
}

/// Checks that an operation gets time at all.
fn is_some_time(duration: &Duration) -> Result<(), ValidationError> {
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

/// Checks a name that needs no quotes.
fn is_plain_name(name: &str) -> Result<(), ValidationError> {
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
    fn an_operator_may_say_otherwise() {
        let off = Some(PostgresTls::Off);
        assert_eq!(mode("postgresql://u@db.example/x", off), "Disable");
        let full = Some(PostgresTls::VerifyFull);
        assert_eq!(mode("postgres://u@127.0.0.1/x", full), "VerifyFull");
    }

    #[test]
    fn an_address_that_is_none_is_refused_without_being_repeated() {
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
                .all(|name| is_plain_name(name).is_ok())
        );
        let refused = ["", "1a", "A", "a b", "a\"b", "pg_x"];
        assert!(refused.iter().all(|name| is_plain_name(name).is_err()));
    }
}
