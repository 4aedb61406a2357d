//! The options of the driver for a configured server.

use std::net::IpAddr;
use std::str::FromStr as _;

use riglm_ports::analytics::StoreError;
use secrecy::ExposeSecret as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use validator::ValidationError;

use super::{PostgresConfig, PostgresTls};

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
pub(super) fn validate_url(config: &PostgresConfig) -> Result<(), ValidationError> {
    if config.url.is_none() {
        return Ok(());
    }
    let refused = |message: &'static str| ValidationError::new("url").with_message(message.into());
    config.options().map(drop).map_err(refused)
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

#[cfg(test)]
mod tests {
    use validator::Validate as _;

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
}
