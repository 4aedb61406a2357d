//! Detection of changes in the configuration of an upstream, without keeping its secrets.

use std::fmt;

use anyhow::Context;
use riglm_adapters_mcp::upstream::{UpstreamConfig, UpstreamCredentials};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::config::Upstream;

/// A maker of fingerprints that can be compared within one process and reveal nothing outside of
/// it: digests with a random key of the process.
pub(crate) struct Fingerprints {
    key: [u8; 32],
}

impl fmt::Debug for Fingerprints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprints(..)")
    }
}

impl Fingerprints {
    /// Creates a maker of fingerprints with a new key.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random numbers.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).context("failed to get random numbers")?;
        Ok(Self { key })
    }

    /// Returns the fingerprint of an upstream. Equal values have equal fingerprints, however they
    /// are written.
    pub(crate) fn of(&self, upstream: &Upstream) -> String {
        let digest = Sha256::new()
            .chain_update(self.key)
            .chain_update(canonical(upstream))
            .finalize();
        hex::encode(digest)
    }
}

/// Returns all values of an upstream as one text.
fn canonical(Upstream { name, config }: &Upstream) -> String {
    // All fields are named, so that the compiler reports a new one.
    let UpstreamConfig {
        url,
        command,
        env,
        cwd,
        headers,
        credentials,
        connect_timeout,
        patience,
        max_message_bytes,
        shutdown_grace,
        isolation,
        unavailable,
        idle_timeout,
        max_connections,
        tool_changes,
        health_check,
        enabled,
    } = config;
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose_secret()))
        .collect();
    let credentials = credentials.as_ref().map(of_credentials);
    let cwd = cwd.as_ref().map(|directory| directory.to_string_lossy());
    let texts = json!([name, url, command, env, cwd, headers, credentials]);
    let numbers = (
        connect_timeout,
        patience,
        max_message_bytes,
        shutdown_grace,
        isolation,
        unavailable,
        idle_timeout,
        max_connections,
        tool_changes,
        health_check,
        enabled,
    );
    format!("{texts} {numbers:?}")
}

fn of_credentials(credentials: &UpstreamCredentials) -> Value {
    let UpstreamCredentials {
        r#type,
        token,
        grant,
        scopes,
        client_id,
        client_secret,
        client_metadata_url,
        redirect_port,
        command,
        timeout,
        refresh,
    } = credentials;
    let secret = |secret: &Option<SecretString>| {
        let secret = secret.as_ref();
        secret.map(|secret| secret.expose_secret().to_owned())
    };
    let kind = format!("{type:?} {grant:?} {timeout:?} {refresh:?}");
    json!([
        kind,
        secret(token),
        scopes,
        client_id,
        secret(client_secret),
        client_metadata_url,
        redirect_port,
        command
    ])
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::UpstreamName;

    use super::*;

    fn upstream(name: &str, json: &str) -> Upstream {
        Upstream {
            name: UpstreamName::parse(name).unwrap(),
            config: serde_json::from_str(json).unwrap(),
        }
    }

    #[test]
    fn equal_configuration_has_equal_fingerprints_and_every_key_counts() {
        let fingerprints = Fingerprints::new().unwrap();
        let of = |name, json| fingerprints.of(&upstream(name, json));
        let plain = of("a", r#"{"url":"http://a"}"#);
        let written_out = r#"{"idle_timeout":"300s","isolation":"per_session","url":"http://a"}"#;
        assert_eq!(of("a", written_out), plain);
        let others = [
            of("b", r#"{"url":"http://a"}"#),
            of("a", r#"{"url":"http://b"}"#),
            of("a", r#"{"url":"http://a","isolation":"shared"}"#),
            of("a", r#"{"url":"http://a","unavailable":"list"}"#),
            of("a", r#"{"url":"http://a","max_connections":1}"#),
            of("a", r#"{"url":"http://a","tool_changes":"hold"}"#),
            of("a", r#"{"url":"http://a","headers":{"X":"1"}}"#),
            of("a", r#"{"url":"http://a","headers":{"X":"2"}}"#),
            of(
                "a",
                r#"{"url":"http://a","auth":{"type":"bearer","token":"1"}}"#,
            ),
            of(
                "a",
                r#"{"url":"http://a","auth":{"type":"bearer","token":"2"}}"#,
            ),
            of("a", r#"{"command":["a","b"]}"#),
            of("a", r#"{"command":["a b"]}"#),
            of("a", r#"{"command":["a"],"env":{"X":"1"}}"#),
            of("a", r#"{"command":["a"],"cwd":"/"}"#),
        ];
        for (position, fingerprint) in others.iter().enumerate() {
            assert_ne!(*fingerprint, plain);
            assert!(!others[..position].contains(fingerprint), "{position}");
        }
    }

    #[test]
    fn fingerprints_differ_between_processes() {
        let of = || {
            Fingerprints::new()
                .unwrap()
                .of(&upstream("a", r#"{"url":"http://a"}"#))
        };
        assert_ne!(of(), of());
    }
}
