//! Requests to running proxies over their control ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use reqwest::header::HOST;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};
use riglm_adapters_http::ControlAddress;
use riglm_adapters_storage::existing_control_token;
use serde_json::Value;

use crate::announcement;
use crate::config::Config;

const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest accepted body, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// The answer of running proxies.
#[derive(Debug)]
pub(super) enum ControlAnswer {
    /// The bodies, one for each proxy.
    Said(Vec<Value>),
    /// No proxy runs, with the reason for this conclusion.
    NotRunning(String),
    /// No proxy could be asked, with the reason. It may run all the same.
    Unknown(String),
}

/// Requests a path such as `/upstreams` from proxies: from the control server at the address
/// `named`, or from all that run on this machine with the data directory.
pub(super) async fn ask(config: &Config, named: Option<SocketAddr>, path: &str) -> ControlAnswer {
    let addresses = match named {
        Some(address) => vec![address],
        None => match announced_addresses(config) {
            Ok(addresses) => addresses,
            Err(answer) => return answer,
        },
    };
    let token = match token(config) {
        Ok(token) => token,
        Err(answer) => return answer,
    };
    // Control servers are local and speak plain HTTP. The token must not follow a proxy or a
    // redirect.
    let client = Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .redirect(Policy::none())
        .timeout(TIMEOUT)
        .build();
    let client = match client {
        Ok(client) => client,
        Err(error) => return ControlAnswer::Unknown(error.to_string()),
    };
    let asked = addresses
        .into_iter()
        .map(|address| ask_one(&client, reachable(address), &token, path));
    merge_answers(join_all(asked).await)
}

/// Returns the addresses of the control servers of the data directory, at least one.
fn announced_addresses(config: &Config) -> Result<Vec<SocketAddr>, ControlAnswer> {
    let data_dir = config.data_dir.display();
    let addresses = announcement::addresses(&config.data_dir).map_err(|error| {
        ControlAnswer::Unknown(format!(
            "failed to read the control addresses in {data_dir}: {error}"
        ))
    })?;
    if !addresses.is_empty() {
        return Ok(addresses);
    }
    Err(if config.control.address == ControlAddress::Off {
        ControlAnswer::Unknown("the control port is off (control.address)".into())
    } else {
        ControlAnswer::NotRunning(format!(
            "no control port of data directory {data_dir} on this machine (use --control ADDRESS \
             for another one)"
        ))
    })
}

/// Merges answers: the bodies of all proxies or, without any body, one reason. `Unknown` takes
/// precedence over `NotRunning`.
fn merge_answers(answers: Vec<ControlAnswer>) -> ControlAnswer {
    let mut said = Vec::new();
    let mut silent = None;
    for answer in answers {
        match (answer, &silent) {
            (ControlAnswer::Said(one), _) => said.extend(one),
            (answer @ ControlAnswer::Unknown(_), None | Some(ControlAnswer::NotRunning(_)))
            | (answer, None) => {
                silent = Some(answer);
            }
            _ => {}
        }
    }
    match silent {
        Some(silent) if said.is_empty() => silent,
        _ => ControlAnswer::Said(said),
    }
}

/// Requests a path from an address. It first checks that a control server listens there, and sends
/// the token only then.
async fn ask_one(client: &Client, address: SocketAddr, token: &str, path: &str) -> ControlAnswer {
    let get = |path: &str| {
        let request = client.get(format!("http://{address}{path}"));
        // The server accepts this host name on every address.
        request.header(HOST, "localhost")
    };
    let health = match send_request(get("/health")).await {
        Ok((_, health)) => health,
        Err(error) if error.is_connect() => {
            return ControlAnswer::NotRunning(format!("nothing listens on {address}"));
        }
        Err(error) => {
            return ControlAnswer::Unknown(format!("request to {address} failed: {error}"));
        }
    };
    let is_control = health
        .is_some_and(|health| health["version"].is_string() && health["upstreams"].is_object());
    if !is_control {
        let reason = format!("the server on {address} is not riglm");
        return ControlAnswer::NotRunning(reason);
    }
    match send_request(get(path).bearer_auth(token)).await {
        Ok((StatusCode::OK, Some(said))) => ControlAnswer::Said(vec![said]),
        Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => {
            let reason = format!(
                "the control port {address} rejected the token: it may use another data directory \
                 or configuration"
            );
            ControlAnswer::Unknown(reason)
        }
        Ok((status, _)) => ControlAnswer::Unknown(format!("{address} returned status {status}")),
        Err(error) => ControlAnswer::Unknown(format!("request to {address} failed: {error}")),
    }
}

/// Sends a request, and returns the status and the body, or `None` for a body that is too large or
/// not JSON.
async fn send_request(
    request: RequestBuilder,
) -> Result<(StatusCode, Option<Value>), reqwest::Error> {
    let mut response = request.send().await?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_BYTES {
            return Ok((response.status(), None));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((response.status(), serde_json::from_slice(&body).ok()))
}

/// Returns an address that reaches a server with this listen address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the token of the control server.
fn token(config: &Config) -> Result<String, ControlAnswer> {
    if let Some(token) = &config.control.token {
        return token.plain().map(str::to_owned).ok_or_else(|| {
            ControlAnswer::Unknown(
                "control.token is a digest, so the token for the request is unknown".into(),
            )
        });
    }
    match existing_control_token(&config.data_dir) {
        Ok(Some(token)) => Ok(token),
        Ok(None) => Err(ControlAnswer::NotRunning(format!(
            "no file control.token in {}",
            config.data_dir.display()
        ))),
        Err(error) => Err(ControlAnswer::Unknown(format!(
            "{:#}",
            anyhow::Error::from(error)
        ))),
    }
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

    #[test]
    fn answers_of_some_proxies_outweigh_failures_of_others() {
        let absent = |n: u8| ControlAnswer::NotRunning(n.to_string());
        let unknown = |n: u8| ControlAnswer::Unknown(n.to_string());
        let said = |n: u8| ControlAnswer::Said(vec![n.into()]);
        let told = |answers| match merge_answers(answers) {
            ControlAnswer::Said(all) => serde_json::Value::from(all).to_string(),
            ControlAnswer::NotRunning(why) => format!("absent {why}"),
            ControlAnswer::Unknown(why) => format!("unknown {why}"),
        };
        assert_eq!(told(vec![absent(1), absent(2)]), "absent 1");
        assert_eq!(told(vec![absent(1), unknown(2), unknown(3)]), "unknown 2");
        assert_eq!(told(vec![unknown(1), said(2), absent(3), said(4)]), "[2,4]");
    }
}
