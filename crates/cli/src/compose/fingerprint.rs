//! Detection of changes in the configuration of an upstream, without keeping its secrets.

use std::fmt;

use riglm_adapters_mcp::upstream::{UpstreamConfig, UpstreamCredentials};
use riglm_domain::privacy::canonical::KeyedHasher;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::config::Upstream;

/// The purpose for which the key of fingerprints is derived. Another text changes all fingerprints.
const PURPOSE: &str = "riglm 2026-11 fingerprints of upstreams";

/// A maker of fingerprints, which reveal nothing without the key: keyed hashes. Under the key of the
/// installation they can be compared with those of another run.
#[derive(Debug)]
pub(crate) struct Fingerprints {
    hasher: KeyedHasher,
}

impl Fingerprints {
    /// Creates a maker of fingerprints. Its key is derived from that of `hasher`.
    pub(crate) fn new(hasher: &KeyedHasher) -> Self {
        Self {
            hasher: hasher.for_purpose(PURPOSE),
        }
    }

    /// Returns the fingerprint of all values of an upstream. Equal values have equal fingerprints,
    /// however they are written.
    pub(crate) fn of(&self, upstream: &Upstream) -> String {
        let [server, connections] = canonical(upstream);
        self.hash(&format!("{server} {connections}"))
    }

    /// Returns the fingerprint of the values that decide which server it is and what it says: how
    /// it is reached, as whom, and the largest message. Timeouts and the like do not count.
    pub(crate) fn of_server(&self, upstream: &Upstream) -> String {
        let [server, _] = canonical(upstream);
        self.hash(&server)
    }

    fn hash(&self, text: &str) -> String {
        self.hasher.hash_text(text).to_string()
    }
}

/// Returns all values of an upstream as two texts: those of the server, and those of the connections
/// to it.
fn canonical(Upstream { name, config }: &Upstream) -> [String; 2] {
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
        start_timeout,
        spare,
        revision,
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
    let (credentials, token_times) = credentials.as_ref().map(of_credentials).unzip();
    let cwd = cwd.as_ref().map(|directory| directory.to_string_lossy());
    let server = json!([
        name,
        url,
        command,
        env,
        cwd,
        headers,
        credentials,
        max_message_bytes
    ]);
    let connections = (
        token_times,
        connect_timeout,
        patience,
        shutdown_grace,
        isolation,
        unavailable,
        idle_timeout,
        max_connections,
        tool_changes,
        health_check,
        (enabled, spare, start_timeout, revision),
    );
    [server.to_string(), format!("{connections:?}")]
}

/// Returns the values of credentials that decide whose they are, and the times of their use.
fn of_credentials(credentials: &UpstreamCredentials) -> (Value, impl fmt::Debug) {
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
    let identity = json!([
        format!("{type:?} {grant:?}"),
        secret(token),
        scopes,
        client_id,
        secret(client_secret),
        client_metadata_url,
        redirect_port,
        command
    ]);
    (identity, (timeout, refresh))
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

    /// Returns a maker under a key, as each run creates its own.
    fn fingerprints(key: u8) -> Fingerprints {
        Fingerprints::new(&KeyedHasher::new(&[key; 32]))
    }

    #[test]
    fn equal_configuration_has_equal_fingerprints_and_every_key_counts() {
        let fingerprints = fingerprints(1);
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
    fn a_server_is_told_apart_by_what_it_is_and_not_by_its_connections() {
        let config = r#"{"command":["a","b"],"env":{"X":"1"}}"#;
        let of = |json: &str| fingerprints(1).of_server(&upstream("a", json));
        let plain = of(config);
        assert!(plain.bytes().all(|byte| byte.is_ascii_hexdigit()));
        for same in [
            config,
            r#"{"command":["a","b"],"env":{"X":"1"},"connect_timeout":"7s","isolation":"shared"}"#,
        ] {
            assert_eq!(of(same), plain);
        }
        let with_token = |token: &str, timeout: &str| {
            let auth = format!(r#"{{"type":"bearer","token":"{token}","timeout":"{timeout}"}}"#);
            of(&format!(r#"{{"url":"http://a","auth":{auth}}}"#))
        };
        assert_eq!(with_token("1", "1s"), with_token("1", "2s"));
        let others = [
            of(r#"{"command":["a","c"],"env":{"X":"1"}}"#),
            of(r#"{"command":["a","b"],"env":{"X":"2"}}"#),
            of(r#"{"command":["a","b"],"env":{"X":"1"},"cwd":"/"}"#),
            of(r#"{"command":["a","b"],"env":{"X":"1"},"max_message_bytes":2048}"#),
            of(r#"{"url":"http://a"}"#),
            of(r#"{"url":"http://a","headers":{"X":"1"}}"#),
            with_token("1", "1s"),
            with_token("2", "1s"),
        ];
        for (position, fingerprint) in others.iter().enumerate() {
            assert_ne!(*fingerprint, plain);
            assert!(!others[..position].contains(fingerprint), "{position}");
        }
    }

    #[test]
    fn fingerprints_are_equal_under_one_key_only() {
        let upstream = upstream("a", r#"{"url":"http://a"}"#);
        let of = |key| {
            let fingerprints = fingerprints(key);
            [
                fingerprints.of(&upstream),
                fingerprints.of_server(&upstream),
            ]
        };
        assert_eq!(of(1), of(1));
        assert!(of(1).iter().zip(of(2)).all(|(one, other)| *one != other));
    }
}
