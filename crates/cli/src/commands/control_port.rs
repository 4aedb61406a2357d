//! Questions to a running proxy, over its control port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use http::StatusCode;
use reqwest::header::HOST;
use reqwest::redirect::Policy;
use riglm_adapters_http::ControlAddress;
use riglm_adapters_storage::existing_control_token;
use serde_json::Value;

use crate::config::Config;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const MAX_BYTES: usize = 16 << 20;

/// What a running proxy says.
#[derive(Debug)]
pub(super) enum Answer {
    /// This.
    Said(Value),
    /// No proxy runs, and why that is believed.
    NotRunning(String),
    /// Whether one runs, and what it would say, cannot be found out, and why.
    Unknown(String),
}

/// Asks the proxy that runs with this configuration for a path such as `/upstreams`.
pub(super) async fn ask(config: &Config, path: &str) -> Answer {
    let ControlAddress::At(address) = config.control.address else {
        return Answer::Unknown("the control server is off (control.address)".into());
    };
    let address = reachable(address);
    let token = match token(config) {
        Ok(token) => token,
        Err(reason) => return reason,
    };
    // It is local, and answers in plain text.
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .redirect(Policy::none())
        .timeout(TIMEOUT)
        .build();
    let asked = async {
        let request = client?.get(format!("http://{address}{path}"));
        // The server admits this name on every address.
        let request = request.header(HOST, "localhost").bearer_auth(token);
        request.send().await
    };
    let response = match asked.await {
        Ok(response) => response,
        Err(error) if error.is_connect() => {
            return Answer::NotRunning(format!("nothing listens on {address} (control.address)"));
        }
        Err(error) if error.is_timeout() => {
            return Answer::Unknown(format!("{address} gives no answer within {TIMEOUT:?}"));
        }
        Err(error) => return Answer::Unknown(format!("{address} cannot be asked: {error}")),
    };
    match response.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let reason = format!(
                "the control server at {address} refuses the token: another data directory or \
                 configuration may be in use there"
            );
            return Answer::Unknown(reason);
        }
        status => return Answer::Unknown(format!("{address} answers with status {status}")),
    }
    match read(response).await {
        Some(said) => Answer::Said(said),
        None => Answer::Unknown(format!("what listens on {address} is no control server")),
    }
}

/// Returns the address at which a server is reached that listens on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the token that the control server asks for.
fn token(config: &Config) -> Result<String, Answer> {
    if let Some(token) = &config.control.token {
        return token.plain().map(str::to_owned).ok_or_else(|| {
            Answer::Unknown("control.token is a digest, which tells no token to ask with".into())
        });
    }
    match existing_control_token(&config.data_dir) {
        Ok(Some(token)) => Ok(token),
        Ok(None) => Err(Answer::NotRunning(format!(
            "there is no control.token in {}",
            config.data_dir.display()
        ))),
        Err(error) => Err(Answer::Unknown(format!("{:#}", anyhow::Error::from(error)))),
    }
}

async fn read(mut response: reqwest::Response) -> Option<Value> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if body.len() + chunk.len() > MAX_BYTES {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_every_address_is_reached_on_the_loopback_one() {
        let reached = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:8643"), "127.0.0.1:8643");
        assert_eq!(reached("[::]:8643"), "[::1]:8643");
        assert_eq!(reached("192.0.2.1:1"), "192.0.2.1:1");
    }
}
