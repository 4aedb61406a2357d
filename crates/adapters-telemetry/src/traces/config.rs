//! The configuration section `telemetry`: traces for other programs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;
use validator::{Validate, ValidationError, ValidationErrors};

use super::{TracesError, TracesOptions};

/// Headers that belong to the transport and cannot be configured.
const RESERVED_HEADERS: [&str; 5] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// Section `telemetry`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// The receiver of traces.
    #[validate(nested)]
    pub otlp: OtlpConfig,
    /// The sampling ratio of traces that begin here, from 0 to 1.
    #[validate(custom(function = "is_share"))]
    pub sample_ratio: f64,
    /// The service name in traces.
    #[validate(length(min = 1, max = 128, message = "expected 1 to 128 characters"))]
    pub service_name: String,
}

/// Section `telemetry.otlp`: a receiver of the OpenTelemetry protocol over HTTP.
#[derive(Clone, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpConfig {
    /// The base URL of the receiver; empty for none.
    #[validate(custom(function = "is_receiver"))]
    pub endpoint: String,
    /// Headers of every request to the receiver.
    #[validate(nested)]
    pub headers: ReceiverHeaders,
    /// The timeout of a request to the receiver, as in `10s`.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "is_timeout"))]
    pub timeout: Duration,
}

/// Key `telemetry.otlp.headers`: headers by name. Their values may be secrets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ReceiverHeaders(BTreeMap<String, SecretString>);

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp: OtlpConfig::default(),
            sample_ratio: 1.0,
            service_name: "riglm".into(),
        }
    }
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            headers: ReceiverHeaders::default(),
            timeout: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for OtlpConfig {
    // Leaves out possible secrets: header values, and all of the URL except its origin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = Url::parse(&self.endpoint).map(|url| url.origin().ascii_serialization());
        f.debug_struct("OtlpConfig")
            .field("endpoint", &origin.as_deref().unwrap_or(""))
            .field("headers", &self.headers.0.keys())
            .field("timeout", &self.timeout)
            .finish()
    }
}

impl PartialEq for OtlpConfig {
    fn eq(&self, other: &Self) -> bool {
        self.endpoint == other.endpoint
            && self.timeout == other.timeout
            && self.headers == other.headers
    }
}

impl PartialEq for ReceiverHeaders {
    fn eq(&self, other: &Self) -> bool {
        let exposed = |(name, value): (&String, &SecretString)| {
            (name.clone(), value.expose_secret().to_owned())
        };
        self.0.iter().map(exposed).eq(other.0.iter().map(exposed))
    }
}

impl Validate for ReceiverHeaders {
    fn validate(&self) -> Result<(), ValidationErrors> {
        let is_wrong = |(name, value): &(&String, &SecretString)| header(name, value).is_none();
        let Some((name, _)) = self.0.iter().find(is_wrong) else {
            return Ok(());
        };
        let text = format!("header {name:?} is not allowed or its value cannot be sent");
        let mut errors = ValidationErrors::new();
        errors.add("__all__", validation_error("headers", text));
        Err(errors)
    }
}

impl TelemetryConfig {
    /// Returns the options of traces; `None` if no receiver is configured.
    #[must_use]
    pub fn traces(&self) -> Option<TracesOptions> {
        let endpoint = Url::parse(&self.otlp.endpoint).ok()?;
        let headers = self.otlp.headers.0.iter();
        Some(TracesOptions {
            endpoint,
            headers: headers
                .filter_map(|(name, value)| header(name, value))
                .collect::<HeaderMap>(),
            timeout: self.otlp.timeout,
            sample_ratio: self.sample_ratio,
            service_name: self.service_name.clone(),
            service_version: env!("CARGO_PKG_VERSION").into(),
        })
    }
}

/// Returns a header for sending, marked as sensitive; `None` if it is reserved or invalid.
fn header(name: &str, value: &SecretString) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    if RESERVED_HEADERS.contains(&name.as_str()) {
        return None;
    }
    let mut value = HeaderValue::from_str(value.expose_secret()).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

fn validation_error(
    code: &'static str,
    text: impl Into<std::borrow::Cow<'static, str>>,
) -> ValidationError {
    ValidationError::new(code).with_message(text.into())
}

fn is_receiver(endpoint: &str) -> Result<(), ValidationError> {
    if endpoint.is_empty() {
        return Ok(());
    }
    // A text that is no URL may be a misplaced secret: the error does not repeat it.
    let expected = || {
        validation_error(
            "endpoint",
            "expected a URL with http:// or https://, or nothing",
        )
    };
    let url = Url::parse(endpoint).map_err(|_| expected())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(expected());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let text = "expected a URL without credentials; they belong in telemetry.otlp.headers";
        return Err(validation_error("endpoint", text));
    }
    if !cfg!(feature = "telemetry-otlp") {
        return Err(validation_error(
            "feature",
            TracesError::NotBuilt.to_string(),
        ));
    }
    Ok(())
}

fn is_timeout(timeout: &Duration) -> Result<(), ValidationError> {
    if (Duration::from_millis(1)..=Duration::from_mins(5)).contains(timeout) {
        return Ok(());
    }
    Err(validation_error(
        "range",
        "expected a duration from 1ms to 5m",
    ))
}

fn is_share(ratio: f64) -> Result<(), ValidationError> {
    if (0.0..=1.0).contains(&ratio) {
        return Ok(());
    }
    Err(validation_error("range", "expected a number from 0 to 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> TelemetryConfig {
        serde_json::from_str(json).unwrap()
    }

    #[cfg(not(feature = "telemetry-otlp"))]
    #[test]
    fn a_receiver_needs_the_feature() {
        let with = config(r#"{"otlp":{"endpoint":"https://h:4318"}}"#);
        let error = with.validate().unwrap_err().to_string();
        assert!(error.contains("--features telemetry-otlp"), "{error}");
    }

    #[cfg(feature = "telemetry-otlp")]
    #[test]
    fn a_configured_receiver_enables_traces() {
        assert!(config("{}").traces().is_none());
        let with = config(
            r#"{"otlp":{"endpoint":"https://h:4318","headers":{"Authorization":"Basic hunter2"}},
                "sample_ratio":0.25,"service_name":"s"}"#,
        );
        with.validate().unwrap();
        let traces = with.traces().unwrap();
        assert_eq!(traces.endpoint.as_str(), "https://h:4318/");
        assert_eq!(traces.headers["authorization"], "Basic hunter2");
        assert_eq!(
            (traces.sample_ratio, traces.service_name.as_str()),
            (0.25, "s")
        );
        assert!(!format!("{with:?} {traces:?}").contains("hunter2"));
        assert_ne!(with, config(r#"{"otlp":{"endpoint":"https://h:4318"}}"#));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (wrong, said) in [
            (r#"{"sample_ratio":1.01}"#, "from 0 to 1"),
            (r#"{"sample_ratio":-1}"#, "from 0 to 1"),
            (r#"{"service_name":""}"#, "1 to 128"),
            (r#"{"otlp":{"timeout":"0s"}}"#, "from 1ms"),
            (r#"{"otlp":{"endpoint":"ftp://h"}}"#, "http://"),
            (r#"{"otlp":{"endpoint":"hunter2"}}"#, "http://"),
            (
                r#"{"otlp":{"endpoint":"http://u:hunter2@h"}}"#,
                "without credentials",
            ),
            (
                r#"{"otlp":{"headers":{"Content-Type":"hunter2"}}}"#,
                "Content-Type",
            ),
            (r#"{"otlp":{"headers":{"a b":"hunter2"}}}"#, "a b"),
        ] {
            let error = config(wrong).validate().unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(is_share(f64::NAN).is_err());
    }
}
