//! Requests to the control port of the demonstration.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};
use riglm_adapters_storage::existing_control_token;
use serde_json::{Value, json};

use crate::config::Config;

const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for something that takes a moment, even on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ControlClient {
    client: Client,
    address: SocketAddr,
    token: String,
}

impl ControlClient {
    /// Creates a client with the token of the data directory.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no token.
    pub(super) fn new(config: &Config, address: SocketAddr) -> anyhow::Result<Self> {
        let token = existing_control_token(&config.data_dir)?;
        let client = Client::builder().no_proxy().tls_certs_only([]);
        Ok(Self {
            client: client.redirect(Policy::none()).timeout(TIMEOUT).build()?,
            address,
            token: token.context("the proxy has no control token")?,
        })
    }

    /// Returns the number of calls that riglm has learned from.
    ///
    /// # Errors
    ///
    /// Returns the error of the request.
    pub(super) async fn learned_calls(&self) -> anyhow::Result<u64> {
        let health = self.get("/health").await?;
        let learned = health["prediction"]["learned_calls"].as_u64();
        learned.context("the proxy does not say what it has learned")
    }

    /// Returns the predictions for the newest open session, which has this number of calls.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such session.
    pub(super) async fn predictions(&self, n_calls: usize) -> anyhow::Result<Value> {
        let begun = Instant::now();
        loop {
            let sessions = self.get("/sessions?state=active").await?;
            let newest = &sessions["sessions"][0];
            if newest["calls"].as_u64() == u64::try_from(n_calls).ok()
                && let Some(id) = newest["id"].as_str()
            {
                return self.get(&format!("/predictions/{id}")).await;
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "the control port shows no open session"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns recommendations for a task.
    ///
    /// # Errors
    ///
    /// Returns the error of the request.
    pub(super) async fn recommend(&self, task: &str) -> anyhow::Result<Value> {
        let url = format!("http://{}/recommendations", self.address);
        let body = json!({"query": task, "limit": 3}).to_string();
        let request = self.client.post(url).body(body);
        self.send(request.header("Content-Type", "application/json"))
            .await
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let url = format!("http://{}{path}", self.address);
        self.send(self.client.get(url)).await
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let response = request.bearer_auth(&self.token).send().await?;
        let (url, status) = (response.url().clone(), response.status());
        let text = response.text().await?;
        if !status.is_success() {
            bail!("{url} returned status {status}: {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("{url} returned no JSON"))
    }
}
