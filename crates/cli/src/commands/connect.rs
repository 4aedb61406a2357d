//! `riglm connect`: a bridge from standard input and output to the running proxy, for clients that
//! only start programs.
//!
//! The bridge is a proxy of its own with one upstream. It makes a lost connection again and repeats
//! the handshake, so that a client outlives a restart of the proxy; messages wait for the port of
//! the proxy to open. It records nothing, and it forwards everything, hints included.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use riglm_adapters_mcp::upstream::Patience;
use riglm_app::proxy::HintUse;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use url::{Host, Url};

use super::serve;
use crate::args::ConnectArgs;
use crate::compose::{self, Extensions};
use crate::config::{Config, Downstream, Environment, Overrides, ProcessEnv, load};
use crate::exit::WrongUsage;
use crate::output::note;

/// The variable with the key for the proxy.
pub(super) const KEY_VARIABLE: &str = "RIGLM_KEY";
/// The time to wait for a proxy that is being started, for example at login, or again.
const WAIT_FOR_PROXY: Duration = Duration::from_secs(10);
/// The timeout of one attempt.
const CONNECT: Duration = Duration::from_secs(2);
/// The pause between two attempts.
const RETRY: Duration = Duration::from_millis(200);

/// Bridges one client to the running proxy until the end of its input or a signal.
///
/// # Errors
///
/// Returns [`WrongUsage`] for a URL of another kind, and an error if no proxy answers.
pub(super) async fn run(
    config: Config,
    process: &ProcessEnv,
    arguments: &ConnectArgs,
) -> anyhow::Result<()> {
    let url = match &arguments.url {
        Some(url) => url.clone(),
        None => proxy_url(config.listen.address, arguments.profile.as_deref())?,
    };
    let key = process.variable(KEY_VARIABLE, &config.data_dir)?;
    wait_for_proxy(&url).await?;
    let bridge = bridge_config(config, &url, key)?;
    let stopped = serve::stop_signal()?;
    let core = compose::build(&bridge, None, Extensions::default()).await?;
    note(&format!("connected to {}", without_credentials(&url)));
    serve::serve_process(core, None, stopped).await
}

/// Returns the URL of the proxy that listens at an address.
pub(super) fn proxy_url(address: SocketAddr, profile: Option<&str>) -> anyhow::Result<Url> {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    if address.port() == 0 {
        let text = "listen.address has port 0, so the port of the proxy is unknown: use --url";
        return Err(WrongUsage(text.into()).into());
    }
    let mut url = Url::parse("http://localhost/mcp").context("the URL of the proxy is invalid")?;
    // Both are possible for an http URL.
    let _ = url.set_ip_host(ip);
    let _ = url.set_port(Some(address.port()));
    if let (Some(profile), Ok(mut segments)) = (profile, url.path_segments_mut()) {
        segments.push(profile);
    }
    Ok(url)
}

/// Returns a URL without a user, a password, a query and a fragment.
fn without_credentials(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// Waits until something listens at the address of a URL.
async fn wait_for_proxy(url: &Url) -> anyhow::Result<()> {
    if url.host().is_none() {
        return Err(WrongUsage("the URL of the proxy has no host".into()).into());
    }
    let deadline = Instant::now() + WAIT_FOR_PROXY;
    while !listens(url).await {
        if Instant::now() >= deadline {
            anyhow::bail!(no_proxy(url));
        }
        sleep(RETRY).await;
    }
    Ok(())
}

/// Returns the error for a proxy that does not run, with the cure.
fn no_proxy(url: &Url) -> String {
    format!(
        "no proxy answers at {}: start one with `riglm serve`, or with `riglm service install`",
        without_credentials(url)
    )
}

/// Returns whether something listens at the address of a URL.
pub(super) async fn listens(url: &Url) -> bool {
    let host = match url.host() {
        Some(Host::Domain(name)) => name.to_owned(),
        Some(Host::Ipv4(ip)) => ip.to_string(),
        Some(Host::Ipv6(ip)) => ip.to_string(),
        None => return false,
    };
    let port = url.port_or_known_default().unwrap_or_default();
    let attempt = timeout(CONNECT, TcpStream::connect((host.as_str(), port))).await;
    attempt.is_ok_and(|connected| connected.is_ok())
}

/// Returns the configuration of the bridge: one upstream, and nothing that changes a message.
fn bridge_config(config: Config, url: &Url, key: Option<String>) -> anyhow::Result<Config> {
    let mut values: Vec<(&str, String)> = [
        ("RIGLM__UPSTREAMS__RIGLM__URL", url.as_str()),
        ("RIGLM__UPSTREAMS__RIGLM__HEALTH_CHECK", "false"),
        ("RIGLM__RECORDING__MODE", "off"),
        ("RIGLM__FILTERING__STRATEGY", "none"),
        ("RIGLM__PREDICTION__ENABLED", "false"),
        ("RIGLM__SEARCH__ENABLED", "false"),
        ("RIGLM__RECOMMEND__ENABLED", "false"),
        ("RIGLM__SAFEGUARDS__BUDGET__ENABLED", "false"),
        ("RIGLM__SAFEGUARDS__SEARCHES__ENABLED", "false"),
        ("RIGLM__WORK_SESSIONS__ENABLED", "false"),
        ("RIGLM__CONTROL__ADDRESS", "off"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec();
    if let Some(key) = key {
        values.push((
            "RIGLM__UPSTREAMS__RIGLM__CREDENTIALS__TYPE",
            "bearer".into(),
        ));
        values.push(("RIGLM__UPSTREAMS__RIGLM__CREDENTIALS__TOKEN", key));
    }
    let process = ProcessEnv {
        environment: Environment::from_iter(values),
        ..ProcessEnv::default()
    };
    let overrides = Overrides {
        data_dir: Some(config.data_dir),
        downstream: Downstream::Stdio,
        reads_no_file: true,
        ..Overrides::default()
    };
    let mut bridge = load(&overrides, &process)?;
    bridge.hints = HintUse::Forward;
    bridge.set_patience(Patience {
        time: WAIT_FOR_PROXY,
        // Errors of upstreams have fixed texts. The process has one bridge, so this one is leaked
        // once.
        reason: no_proxy(url).leak(),
    });
    bridge.limits = config.limits;
    // The limits of the proxy count. It answers before the bridge gives up.
    bridge.limits.call_timeout_max *= 2;
    bridge.limits.call_timeout = bridge.limits.call_timeout_max;
    bridge.logging = config.logging;
    Ok(bridge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_proxy_follows_from_the_configuration() {
        let url = |address: &str, profile| proxy_url(address.parse().unwrap(), profile);
        let text = |address: &str, profile| url(address, profile).unwrap().to_string();
        assert_eq!(text("127.0.0.1:8642", None), "http://127.0.0.1:8642/mcp");
        assert_eq!(text("0.0.0.0:80", None), "http://127.0.0.1/mcp");
        assert_eq!(text("[::]:1", Some("a")), "http://[::1]:1/mcp/a");
        assert!(url("127.0.0.1:0", None).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_proxy_is_named_with_the_cure() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let url = Url::parse(&format!("http://u:s3cret@{address}/mcp?k=s3cret")).unwrap();
        let error = wait_for_proxy(&url).await.unwrap_err().to_string();
        let expected = format!("no proxy answers at http://{address}/mcp: start one with");
        assert!(error.starts_with(&expected), "{error}");
    }
}
