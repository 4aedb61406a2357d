//! Questions to running proxies, over their control ports.

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

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const MAX_BYTES: usize = 16 << 20;

/// What running proxies say.
#[derive(Debug)]
pub(super) enum Answer {
    /// This, one answer for each proxy.
    Said(Vec<Value>),
    /// No proxy runs, and why that is believed.
    NotRunning(String),
    /// Whether one runs, and what it would say, cannot be found out, and why.
    Unknown(String),
}

/// Asks proxies for a path such as `/upstreams`: the one whose control server listens on the address that
/// is `named`, otherwise those that run on this machine with the data directory.
pub(super) async fn ask(config: &Config, named: Option<SocketAddr>, path: &str) -> Answer {
    let addresses = match named {
        Some(address) => vec![address],
        None => match announced(config) {
            Ok(addresses) => addresses,
            Err(answer) => return answer,
        },
    };
    let token = match token(config) {
        Ok(token) => token,
        Err(answer) => return answer,
    };
    // They are local, and answer in plain text.
    let client = Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .redirect(Policy::none())
        .timeout(TIMEOUT)
        .build();
    let client = match client {
        Ok(client) => client,
        Err(error) => return Answer::Unknown(error.to_string()),
    };
    let asked = addresses
        .into_iter()
        .map(|address| ask_one(&client, reachable(address), &token, path));
    joined(join_all(asked).await)
}

/// Returns the addresses of the control servers of the data directory, at least one.
fn announced(config: &Config) -> Result<Vec<SocketAddr>, Answer> {
    let data_dir = config.data_dir.display();
    let addresses = announcement::addresses(&config.data_dir).map_err(|error| {
        Answer::Unknown(format!(
            "the control servers in {data_dir} cannot be read: {error}"
        ))
    })?;
    if !addresses.is_empty() {
        return Ok(addresses);
    }
    Err(if config.control.address == ControlAddress::Off {
        Answer::Unknown("the control server is off (control.address)".into())
    } else {
        Answer::NotRunning(format!(
            "no control server runs on this machine with the data directory {data_dir} (another one is \
             asked with --control ADDRESS)"
        ))
    })
}

/// Returns what all proxies say, or else what keeps one of them from saying it.
fn joined(answers: Vec<Answer>) -> Answer {
    let mut said = Vec::new();
    let mut silent = None;
    for answer in answers {
        match (answer, &silent) {
            (Answer::Said(one), _) => said.extend(one),
            (answer @ Answer::Unknown(_), None | Some(Answer::NotRunning(_))) | (answer, None) => {
                silent = Some(answer);
            }
            _ => {}
        }
    }
    match silent {
        Some(silent) if said.is_empty() => silent,
        _ => Answer::Said(said),
    }
}

/// Asks what listens on an address. The token goes to what says that it is a control server.
async fn ask_one(client: &Client, address: SocketAddr, token: &str, path: &str) -> Answer {
    let get = |path: &str| {
        let request = client.get(format!("http://{address}{path}"));
        // The server admits this name on every address.
        request.header(HOST, "localhost")
    };
    let health = match answered(get("/health")).await {
        Ok((_, health)) => health,
        Err(error) if error.is_connect() => {
            return Answer::NotRunning(format!("nothing listens on {address}"));
        }
        Err(error) => return Answer::Unknown(format!("{address} cannot be asked: {error}")),
    };
    let is_control = health
        .is_some_and(|health| health["version"].is_string() && health["upstreams"].is_object());
    if !is_control {
        let reason = format!("what listens on {address} is no riglm");
        return Answer::NotRunning(reason);
    }
    match answered(get(path).bearer_auth(token)).await {
        Ok((StatusCode::OK, Some(said))) => Answer::Said(vec![said]),
        Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => {
            let reason = format!(
                "the control server at {address} refuses the token: another data directory or \
                 configuration may be in use there"
            );
            Answer::Unknown(reason)
        }
        Ok((status, _)) => Answer::Unknown(format!("{address} answers with status {status}")),
        Err(error) => Answer::Unknown(format!("{address} cannot be asked: {error}")),
    }
}

/// Sends a request, and returns the status of the answer and its body, where that is JSON.
async fn answered(request: RequestBuilder) -> Result<(StatusCode, Option<Value>), reqwest::Error> {
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
    fn what_some_proxies_say_counts_more_than_that_others_do_not() {
        let absent = |n: u8| Answer::NotRunning(n.to_string());
        let unknown = |n: u8| Answer::Unknown(n.to_string());
        let said = |n: u8| Answer::Said(vec![n.into()]);
        let told = |answers| match joined(answers) {
            Answer::Said(all) => serde_json::Value::from(all).to_string(),
            Answer::NotRunning(why) => format!("absent {why}"),
            Answer::Unknown(why) => format!("unknown {why}"),
        };
        assert_eq!(told(vec![absent(1), absent(2)]), "absent 1");
        assert_eq!(told(vec![absent(1), unknown(2), unknown(3)]), "unknown 2");
        assert_eq!(told(vec![unknown(1), said(2), absent(3), said(4)]), "[2,4]");
    }
}
