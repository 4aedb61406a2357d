//! Requests to running proxies over their control ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, ETAG, HOST, IF_MATCH};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};
use riglm_adapters_http::ControlAddress;
use riglm_adapters_storage::existing_control_token;
use riglm_app::selection::Pause;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::announcement;
use crate::config::Config;

const TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which a stream of events ends, and has to be opened again.
const STREAM_LIFETIME: Duration = Duration::from_hours(24);
/// The largest accepted body, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The number of attempts to change a tuning that others change, too.
const MAX_ATTEMPTS: usize = 5;

/// The answer of running proxies.
#[derive(Clone, Debug)]
pub(super) enum ControlAnswer {
    /// The bodies, one for each proxy.
    Said(Vec<Value>),
    /// No proxy runs, with the reason for this conclusion.
    NotRunning(String),
    /// No proxy could be asked, with the reason. It may run all the same.
    Unknown(String),
}

impl ControlAnswer {
    /// Returns the reason why there is no body.
    pub(super) fn reason(self) -> String {
        match self {
            Self::NotRunning(why) | Self::Unknown(why) => why,
            Self::Said(_) => "the answer has no report".into(),
        }
    }
}

/// Requests a path such as `/upstreams` from proxies: from the control server at the address
/// `named`, or from all that run on this machine with the data directory.
pub(super) async fn ask(config: &Config, named: Option<SocketAddr>, path: &str) -> ControlAnswer {
    let ports = match ControlPort::all(config, named) {
        Ok(ports) => ports,
        Err(answer) => return answer,
    };
    merge_answers(join_all(ports.iter().map(|port| port.ask(path))).await)
}

/// Requests several paths at the same time, each as [`ask`] does. Returns the answers in the order of
/// the paths.
pub(super) async fn ask_all(
    config: &Config,
    named: Option<SocketAddr>,
    paths: &[String],
) -> Vec<ControlAnswer> {
    let ports = match ControlPort::all(config, named) {
        Ok(ports) => ports,
        Err(answer) => return vec![answer; paths.len()],
    };
    let of_ports = join_all(ports.iter().map(|port| port.ask_all(paths))).await;
    let mut of_ports: Vec<_> = of_ports.into_iter().map(Vec::into_iter).collect();
    let next = paths.iter().map(|_| {
        let of_path = of_ports.iter_mut().filter_map(Iterator::next);
        merge_answers(of_path.collect())
    });
    next.collect()
}

#[derive(Debug)]
pub(super) struct Readiness {
    pub(super) address: SocketAddr,
    /// The body of `/health/ready`, with the status 200 or 503; otherwise the reason why there is
    /// none.
    pub(super) report: Result<ReadyReport, ControlAnswer>,
}

/// An answer of `/health/ready`.
#[derive(Debug)]
pub(super) struct ReadyReport {
    pub(super) is_ready: bool,
    pub(super) body: Value,
    /// The pause that holds, if one does.
    pub(super) pause: Pause,
}

impl ReadyReport {
    /// Returns the parts that are not ready, or the reason of a refusal.
    pub(super) fn causes(&self) -> String {
        if let Some(detail) = self.body["detail"].as_str() {
            return detail.to_owned();
        }
        let upstreams = self.body["upstreams"].as_array().into_iter().flatten();
        let unavailable = upstreams
            .filter(|upstream| upstream["ok"] == false)
            .map(|upstream| format!("upstream {}", upstream["name"].as_str().unwrap_or("?")));
        let parts = self.body.as_object().into_iter().flatten();
        let bad = parts
            .filter(|(_, part)| part["ok"] == false)
            .map(|(name, _)| name.clone());
        let causes: Vec<String> = unavailable.chain(bad).collect();
        if causes.is_empty() {
            return "it starts or stops".into();
        }
        causes.join(", ")
    }
}

/// Requests the readiness of the proxies that [`ask`] asks. No token is needed.
///
/// # Errors
///
/// Returns the answer if there is no proxy.
pub(super) async fn readiness(
    config: &Config,
    named: Option<SocketAddr>,
) -> Result<Vec<Readiness>, ControlAnswer> {
    let ports = ControlPort::at_all(config, named, "")?;
    let asked = ports.iter().map(|port| async {
        Readiness {
            address: port.address,
            report: port.readiness().await,
        }
    });
    Ok(join_all(asked).await)
}

/// A one-time code for the page of a proxy.
#[derive(Debug)]
pub(super) struct PageCode {
    /// The control address of the proxy.
    pub(super) address: SocketAddr,
    pub(super) code: String,
    pub(super) expires_at: Timestamp,
    /// The control addresses of the other proxies that [`ask`] would ask.
    pub(super) others: Vec<SocketAddr>,
}

/// Requests a one-time code for the page from the first of the proxies that [`ask`] asks, or from
/// the next one if that gives none.
///
/// # Errors
///
/// Returns the answer if no proxy gives one.
pub(super) async fn page_code(
    config: &Config,
    named: Option<SocketAddr>,
) -> Result<PageCode, ControlAnswer> {
    let ports = ControlPort::all(config, named)?;
    let mut refusals = Vec::new();
    for port in &ports {
        match port.page_code().await {
            Ok(IssuedCode { code, expires_at }) => {
                let others = ports.iter().map(|other| other.address);
                return Ok(PageCode {
                    address: port.address,
                    code,
                    expires_at,
                    others: others.filter(|other| *other != port.address).collect(),
                });
            }
            Err(answer) => refusals.push(answer),
        }
    }
    Err(merge_answers(refusals))
}

/// Opens the stream of events (`GET /events`) of the first of the proxies that [`ask`] asks, or of
/// the next one if that has none. The caller limits the time of silence.
///
/// # Errors
///
/// Returns the answer if no proxy has a stream.
pub(super) async fn events(
    config: &Config,
    named: Option<SocketAddr>,
) -> Result<Response, ControlAnswer> {
    let mut refusals = Vec::new();
    for port in ControlPort::all(config, named)? {
        match port.events().await {
            Ok(stream) => return Ok(stream),
            Err(answer) => refusals.push(answer),
        }
    }
    Err(merge_answers(refusals))
}

/// Changes the tuning of the proxies that [`ask`] asks, and returns their configurations afterwards.
/// Other processes with the same data directory follow by themselves.
pub(super) async fn retune(
    config: &Config,
    named: Option<SocketAddr>,
    change: impl Fn(&mut Map<String, Value>),
) -> ControlAnswer {
    let ports = match ControlPort::all(config, named) {
        Ok(ports) => ports,
        Err(answer) => return answer,
    };
    let mut answers = Vec::new();
    // One after the other, because they share a tuning file.
    for port in &ports {
        match port.retune(&change).await {
            // The answers of others do not make up for a failure.
            failed @ ControlAnswer::Unknown(_) => return failed,
            answer => answers.push(answer),
        }
    }
    merge_answers(answers)
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

/// The control server at an address, which may not run.
#[derive(Debug)]
struct ControlPort {
    client: Client,
    address: SocketAddr,
    token: String,
}

impl ControlPort {
    /// Returns the control server at the address `named`, or those of the data directory, at least
    /// one.
    ///
    /// # Errors
    ///
    /// Returns the answer if there is none.
    fn all(config: &Config, named: Option<SocketAddr>) -> Result<Vec<Self>, ControlAnswer> {
        Self::at_all(config, named, &token(config)?)
    }

    /// As [`Self::all`], with a token.
    fn at_all(
        config: &Config,
        named: Option<SocketAddr>,
        token: &str,
    ) -> Result<Vec<Self>, ControlAnswer> {
        let addresses = match named {
            Some(address) => vec![address],
            None => announced_addresses(config)?,
        };
        // Control servers are local and speak plain HTTP. The token must not follow a proxy or a
        // redirect.
        let client = Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .redirect(Policy::none())
            .timeout(TIMEOUT)
            .build();
        let client = client.map_err(|error| ControlAnswer::Unknown(error.to_string()))?;
        let port = |address| Self {
            client: client.clone(),
            address: reachable(address),
            token: token.to_owned(),
        };
        Ok(addresses.into_iter().map(port).collect())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        // The server accepts this host name on every address.
        self.client.request(method, url).header(HOST, "localhost")
    }

    async fn ask(&self, path: &str) -> ControlAnswer {
        match self.check().await {
            Ok(_) => self.get(path).await,
            Err(answer) => answer,
        }
    }

    /// Requests paths at the same time, after one check for all.
    async fn ask_all(&self, paths: &[String]) -> Vec<ControlAnswer> {
        match self.check().await {
            Ok(_) => join_all(paths.iter().map(|path| self.get(path))).await,
            Err(answer) => vec![answer; paths.len()],
        }
    }

    /// Requests a path of a port that was checked.
    async fn get(&self, path: &str) -> ControlAnswer {
        match self.send(self.request(Method::GET, path)).await {
            Ok(response) => ControlAnswer::Said(vec![response.body]),
            Err(answer) => answer,
        }
    }

    async fn readiness(&self) -> Result<ReadyReport, ControlAnswer> {
        let pause = pause_in(&self.check().await?);
        let sent = send_request(self.request(Method::GET, "/health/ready")).await;
        match sent {
            Ok(JsonResponse {
                status: StatusCode::SERVICE_UNAVAILABLE,
                body: Some(body),
                ..
            }) => Ok(ReadyReport {
                is_ready: false,
                body,
                pause,
            }),
            sent => self.read(sent).map(|response| ReadyReport {
                is_ready: true,
                body: response.body,
                pause,
            }),
        }
    }

    /// Requests a one-time code for the page.
    async fn page_code(&self) -> Result<IssuedCode, ControlAnswer> {
        self.check().await?;
        let request = self.request(Method::POST, "/page/codes");
        let sent = send_request(request.bearer_auth(&self.token)).await;
        let address = self.address;
        let reason = match sent {
            Ok(JsonResponse {
                status: StatusCode::CREATED,
                body: Some(body),
                ..
            }) => match serde_json::from_value::<IssuedCode>(body) {
                Ok(issued) if issued.is_plain() => return Ok(issued),
                _ => format!("the proxy at {address} returned no code for its page"),
            },
            Ok(JsonResponse {
                status: StatusCode::NOT_FOUND,
                ..
            }) => format!("the proxy at {address} has no page: it is older than this program"),
            sent => match self.read(sent) {
                Ok(_) => format!("the proxy at {address} returned no code for its page"),
                Err(answer) => return Err(answer),
            },
        };
        Err(ControlAnswer::Unknown(reason))
    }

    /// Opens the stream of events.
    async fn events(&self) -> Result<Response, ControlAnswer> {
        self.check().await?;
        let address = self.address;
        let request = self.request(Method::GET, "/events");
        let request = request.bearer_auth(&self.token).timeout(STREAM_LIFETIME);
        let reason = match tokio::time::timeout(TIMEOUT, request.send()).await {
            Ok(Ok(response)) if response.status() == StatusCode::OK => return Ok(response),
            Ok(Ok(response)) => format!("{address} returned status {}", response.status()),
            Ok(Err(error)) => format!("request to {address} failed: {error}"),
            Err(_) => format!("{address} sends no events"),
        };
        Err(ControlAnswer::Unknown(reason))
    }

    /// Checks that a control server listens at the address, and returns its health. The token is sent
    /// only then.
    async fn check(&self) -> Result<Value, ControlAnswer> {
        let address = self.address;
        let health = match send_request(self.request(Method::GET, "/health")).await {
            Ok(response) => response.body,
            Err(error) if error.is_connect() => {
                let reason = format!("nothing listens on {address}");
                return Err(ControlAnswer::NotRunning(reason));
            }
            Err(error) => {
                let reason = format!("request to {address} failed: {error}");
                return Err(ControlAnswer::Unknown(reason));
            }
        };
        let is_control =
            |health: &Value| health["version"].is_string() && health["upstreams"].is_object();
        if let Some(health) = health.filter(is_control) {
            return Ok(health);
        }
        let reason = format!("the server on {address} is not riglm");
        Err(ControlAnswer::NotRunning(reason))
    }

    /// Changes the tuning until it has the change. Returns the configuration afterwards.
    async fn retune(&self, change: impl Fn(&mut Map<String, Value>)) -> ControlAnswer {
        if let Err(answer) = self.check().await {
            return answer;
        }
        for _ in 0..MAX_ATTEMPTS {
            let known = match self.send(self.request(Method::GET, "/config")).await {
                Ok(known) => known,
                Err(answer) => return answer,
            };
            let before = known.body["tuning"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            let mut tuning = before.clone();
            change(&mut tuning);
            if tuning == before {
                return ControlAnswer::Said(vec![known.body]);
            }
            let replace = self
                .request(Method::PUT, "/config")
                .header(IF_MATCH, known.tag)
                .header(CONTENT_TYPE, "application/json")
                .body(Value::Object(tuning).to_string());
            match send_request(replace.bearer_auth(&self.token)).await {
                // Somebody else changed it.
                Ok(response) if response.status == StatusCode::PRECONDITION_FAILED => {}
                sent => {
                    return match self.read(sent) {
                        Ok(response) => ControlAnswer::Said(vec![response.body]),
                        Err(answer) => answer,
                    };
                }
            }
        }
        let reason = format!("the tuning at {} changes all the time", self.address);
        ControlAnswer::Unknown(reason)
    }

    async fn send(&self, request: RequestBuilder) -> Result<ReadResponse, ControlAnswer> {
        self.read(send_request(request.bearer_auth(&self.token)).await)
    }

    /// Returns a response with the status 200 and a JSON body.
    fn read(&self, sent: reqwest::Result<JsonResponse>) -> Result<ReadResponse, ControlAnswer> {
        let address = self.address;
        let reason = match sent {
            Ok(JsonResponse {
                status: StatusCode::OK,
                tag,
                body: Some(body),
            }) => return Ok(ReadResponse { tag, body }),
            Ok(JsonResponse {
                status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN,
                ..
            }) => format!(
                "the control port {address} rejected the token: it may use another data directory \
                 or configuration"
            ),
            Ok(JsonResponse { status, body, .. }) => {
                let detail = body.as_ref().and_then(|body| body["detail"].as_str());
                let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
                format!("{address} returned status {status}{detail}")
            }
            Err(error) => format!("request to {address} failed: {error}"),
        };
        Err(ControlAnswer::Unknown(reason))
    }
}

/// The answer of `POST /page/codes`.
#[derive(Debug, Deserialize)]
struct IssuedCode {
    code: String,
    expires_at: Timestamp,
}

impl IssuedCode {
    /// Returns whether the code can be a part of an address as it is.
    fn is_plain(&self) -> bool {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
        !self.code.is_empty() && self.code.chars().all(is_plain)
    }
}

/// A response of a control server.
#[derive(Debug)]
struct JsonResponse {
    status: StatusCode,
    /// The `ETag`, or an empty text.
    tag: String,
    /// `None` for a body that is too large or not JSON.
    body: Option<Value>,
}

/// A response with the status 200.
#[derive(Debug)]
struct ReadResponse {
    /// The `ETag`, or an empty text.
    tag: String,
    body: Value,
}

/// Sends a request, and returns the response.
async fn send_request(request: RequestBuilder) -> reqwest::Result<JsonResponse> {
    let mut response = request.send().await?;
    let tag = response.headers().get(ETAG);
    let tag = tag.and_then(|tag| tag.to_str().ok()).unwrap_or_default();
    let (status, tag) = (response.status(), tag.to_owned());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_BYTES {
            return Ok(JsonResponse {
                status,
                tag,
                body: None,
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(JsonResponse {
        status,
        tag,
        body: serde_json::from_slice(&body).ok(),
    })
}

/// Returns the pause in a health. A proxy that does not know pauses has none.
fn pause_in(health: &Value) -> Pause {
    if health["paused"] != true {
        return Pause::Off;
    }
    let end = health["paused_until"].as_str();
    end.and_then(|end| end.parse().ok())
        .map_or(Pause::On, Pause::Until)
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
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_on_every_address_is_reached_on_the_loopback_one() {
        let reached = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:8643"), "127.0.0.1:8643");
        assert_eq!(reached("[::]:8643"), "[::1]:8643");
        assert_eq!(reached("192.0.2.1:1"), "192.0.2.1:1");
    }

    #[test]
    fn a_health_tells_the_pause_and_its_end() {
        let pause = |health: &str| pause_in(&serde_json::from_str(health).unwrap());
        let end = Timestamp::constant(1_800_000_000, 0);
        let until = r#"{"paused": true, "paused_until": "2027-01-15T08:00:00Z"}"#;
        assert_eq!(pause(until), Pause::Until(end));
        assert_eq!(pause(r#"{"paused": true}"#), Pause::On);
        assert_eq!(pause(r#"{"paused": false}"#), Pause::Off);
        assert_eq!(pause("{}"), Pause::Off);
    }

    /// Answers requests on a port of its own with an object that passes for a health. Returns the
    /// port, and the paths that were requested.
    async fn control_server() -> (ControlPort, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = ControlPort {
            client: (Client::builder().no_proxy().tls_certs_only([]))
                .build()
                .unwrap(),
            address: listener.local_addr().unwrap(),
            token: "token".into(),
        };
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&paths);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n")
                    && stream.read_buf(&mut request).await.unwrap() > 0
                {}
                let request = String::from_utf8(request).unwrap();
                let path = request.split(' ').nth(1).unwrap_or_default();
                seen.lock().push(path.to_owned());
                let body = format!(r#"{{"version":"1","upstreams":{{}},"path":"{path}"}}"#);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream
                    .write_all(format!("{head}{body}").as_bytes())
                    .await
                    .unwrap();
            }
        });
        (port, paths)
    }

    #[tokio::test]
    async fn several_paths_need_one_check() {
        // The program does this at its start. Another test may have done it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (port, paths) = control_server().await;
        let asked = ["/overview".to_owned(), "/tools".to_owned()];
        let answers = port.ask_all(&asked).await;
        let answered = answers.into_iter().map(|answer| match answer {
            ControlAnswer::Said(bodies) => bodies[0]["path"].as_str().unwrap().to_owned(),
            other => other.reason(),
        });
        assert_eq!(answered.collect::<Vec<_>>(), asked);
        let mut seen = paths.lock().clone();
        assert_eq!(seen[0], "/health");
        seen.sort_unstable();
        assert_eq!(seen, ["/health", "/overview", "/tools"]);
    }

    #[test]
    fn only_codes_that_fit_into_an_address_are_used() {
        let issued = |code: &str| IssuedCode {
            code: code.into(),
            expires_at: Timestamp::UNIX_EPOCH,
        };
        assert!(issued("aZ09-_").is_plain());
        for odd in ["", "a b", "a&token=b", "é", "a\u{1b}"] {
            assert!(!issued(odd).is_plain(), "{odd:?}");
        }
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
