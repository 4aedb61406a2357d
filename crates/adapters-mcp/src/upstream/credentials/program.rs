//! A program that prints the credentials for one upstream.
//!
//! It prints a token, the value of the header `Authorization`, one header, or a JSON object with
//! headers. The variables `RIGLM_UPSTREAM_NAME` and `RIGLM_UPSTREAM_URL` tell it the upstream. Its
//! standard error is dropped, because it may have secrets.

use std::collections::BTreeMap;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use riglm_domain::id::UpstreamName;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use url::Url;

use super::super::config::credential_header;
use super::section::ProgramSettings;
use super::tokens::{CredentialHeaders, IssuedHeaders};

/// The maximum size of the output.
const MAX_BYTES: u64 = 64 << 10;

/// A program that prints the credentials for one upstream.
pub(super) struct CredentialProgram {
    upstream: UpstreamName,
    url: Url,
    settings: ProgramSettings,
}

/// The reason why a program gave no credentials. No variant has a text of the program.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramFailure {
    #[error("failed to run the program of the credentials")]
    Start(#[source] std::io::Error),
    #[error("the program of the credentials ended with {0}")]
    Status(ExitStatus),
    #[error("the program of the credentials did not end within {0:?}")]
    TimedOut(Duration),
    #[error("the program of the credentials printed {0}")]
    Output(&'static str),
}

impl ProgramFailure {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Start(_) => "the program of its credentials cannot be run",
            Self::Status(_) => "the program of its credentials failed",
            Self::TimedOut(_) => "the program of its credentials did not end in time",
            Self::Output(_) => "the program of its credentials printed no usable credentials",
        }
    }
}

impl std::fmt::Debug for CredentialProgram {
    /// Omits the arguments, which may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialProgram")
            .field("upstream", &self.upstream)
            .field("program", &self.settings.command.first())
            .finish_non_exhaustive()
    }
}

impl CredentialProgram {
    pub(super) fn new(upstream: UpstreamName, url: Url, settings: ProgramSettings) -> Self {
        Self {
            upstream,
            url,
            settings,
        }
    }

    pub(super) fn upstream(&self) -> &UpstreamName {
        &self.upstream
    }

    /// Runs the program and returns the headers that it prints.
    pub(super) async fn run(&self) -> Result<IssuedHeaders, ProgramFailure> {
        let limit = self.settings.timeout;
        let output = tokio::time::timeout(limit, self.output())
            .await
            .unwrap_or(Err(ProgramFailure::TimedOut(limit)))?;
        Ok(IssuedHeaders {
            headers: headers_of(&output)?,
            good_for: Some(self.settings.refresh),
        })
    }

    async fn output(&self) -> Result<String, ProgramFailure> {
        let (program, arguments) =
            (self.settings.command.split_first()).ok_or(ProgramFailure::Output("nothing"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .env("RIGLM_UPSTREAM_NAME", self.upstream.as_str())
            .env("RIGLM_UPSTREAM_URL", self.url.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(ProgramFailure::Start)?;
        let mut printed = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let mut limited = stdout.take(MAX_BYTES + 1);
            let read = limited.read_to_end(&mut printed).await;
            read.map_err(ProgramFailure::Start)?;
        }
        if printed.len() as u64 > MAX_BYTES {
            return Err(ProgramFailure::Output("more than 64 KiB"));
        }
        let status = child.wait().await.map_err(ProgramFailure::Start)?;
        if !status.success() {
            return Err(ProgramFailure::Status(status));
        }
        String::from_utf8(printed).map_err(|_| ProgramFailure::Output("text that is not UTF-8"))
    }
}

fn headers_of(output: &str) -> Result<CredentialHeaders, ProgramFailure> {
    let text = output.trim();
    if text.starts_with('{') {
        let headers: BTreeMap<String, String> = serde_json::from_str(text)
            .map_err(|_| ProgramFailure::Output("JSON that is no object of texts"))?;
        if headers.is_empty() {
            return Err(ProgramFailure::Output("an object without headers"));
        }
        let headers: Result<Vec<_>, _> = (headers.iter())
            .map(|(name, value)| header(name, value))
            .collect();
        return Ok(CredentialHeaders::new(headers?));
    }
    if text.is_empty() {
        return Err(ProgramFailure::Output("nothing"));
    }
    if text.lines().count() > 1 {
        return Err(ProgramFailure::Output("several lines that are no JSON"));
    }
    let header = match text.split_once(": ") {
        Some((name, value)) => header(name, value)?,
        // A scheme and its credentials.
        None if text.contains(' ') => header(AUTHORIZATION.as_str(), text)?,
        None => header(AUTHORIZATION.as_str(), &format!("Bearer {text}"))?,
    };
    Ok(CredentialHeaders::new([header]))
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), ProgramFailure> {
    credential_header(name, value)
        .map_err(|_| ProgramFailure::Output("a header that is not allowed or has an invalid value"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn program(script: &str, timeout: Duration) -> CredentialProgram {
        let settings = ProgramSettings {
            command: ["sh", "-c", script].map(String::from).to_vec(),
            timeout,
            refresh: Duration::from_mins(5),
        };
        let url = Url::parse("https://tracker.example/mcp").unwrap();
        CredentialProgram::new(UpstreamName::parse("tracker").unwrap(), url, settings)
    }

    async fn headers(script: &str) -> Result<http::HeaderMap, ProgramFailure> {
        let issued = program(script, Duration::from_secs(10)).run().await?;
        let mut headers = http::HeaderMap::new();
        issued.headers.insert_into(&mut headers);
        Ok(headers)
    }

    #[tokio::test]
    async fn each_form_of_credentials_is_understood() {
        for (printed, name, expected) in [
            ("t0ken", "authorization", "Bearer t0ken"),
            ("Basic dTpw", "authorization", "Basic dTpw"),
            (
                "Authorization: Bearer t0ken",
                "authorization",
                "Bearer t0ken",
            ),
            ("X-Api-Key: t0ken", "x-api-key", "t0ken"),
            (r#"{"X-Api-Key":"t0ken"}"#, "x-api-key", "t0ken"),
        ] {
            let headers = headers(&format!("echo '{printed}'")).await.unwrap();
            assert_eq!(headers[name], expected, "{printed}");
            assert!(headers[name].is_sensitive());
        }
        let headers = headers("echo $RIGLM_UPSTREAM_NAME:$RIGLM_UPSTREAM_URL").await;
        let authorization = &headers.unwrap()["authorization"];
        assert_eq!(authorization, "Bearer tracker:https://tracker.example/mcp");
    }

    #[tokio::test]
    async fn a_failure_is_named_without_the_texts_of_the_program() {
        for (script, expected) in [
            ("echo s3cret >&2; exit 3", "ended with exit status: 3"),
            ("true", "printed nothing"),
            ("echo s3cret; echo s3cret", "several lines"),
            (r#"echo '{"a":1}'"#, "no object of texts"),
            ("echo '{}'", "without headers"),
            ("echo 'Host: s3cret'", "not allowed"),
            ("head -c 70000 /dev/zero", "more than 64 KiB"),
            ("printf '\\377'", "not UTF-8"),
        ] {
            let error = headers(script).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{script}: {error}");
            assert!(!error.contains("s3cret"), "{script}: {error}");
        }
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_ended() {
        let started_at = Instant::now();
        let program = program("exec sleep 60", Duration::from_millis(200));
        let error = program.run().await.err().unwrap();
        assert!(matches!(error, ProgramFailure::TimedOut(_)), "{error}");
        assert!(started_at.elapsed() < Duration::from_secs(30));
    }
}
