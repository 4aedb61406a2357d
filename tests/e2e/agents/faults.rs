//! Failures between an agent and its tools cost one more round trip, but no call.

use std::path::Path;
use std::sync::Arc;

use riglm_app::proxy::NamespacePolicy;
use riglm_domain::prediction::NamePattern;
use riglm_domain::selection::ListPolicyName;
use riglm_ports::fake::ManualClock;
use serde_json::Value;

use super::{LONG_DEFINITION_TOKENS, generated_stream};
use crate::simulation::agent::{AgentSession, is_ok};
use crate::simulation::definitions::Definitions;
use crate::simulation::server::{CatalogServer, servers_of};
use crate::simulation::stage::{InProcessProxy, InProcessProxyOptions};
use crate::simulation::stream::Stream;

const ARGUMENTS: &str = r#"{"target":"a"}"#;

/// A proxy that has learned the sessions of a stream.
struct Scene {
    stage: InProcessProxy,
    stream: Stream,
    servers: Vec<Arc<CatalogServer>>,
    options: InProcessProxyOptions,
    data: tempfile::TempDir,
}

#[derive(Debug, Default)]
struct CallCounts {
    n: u32,
    n_failed: u32,
    /// Calls that needed a second attempt.
    n_again: u32,
}

impl Scene {
    async fn new(options: InProcessProxyOptions) -> Self {
        let data = tempfile::tempdir().unwrap();
        let stream = generated_stream(30);
        let servers = servers_of(
            &stream.tools,
            &Definitions::of(&stream.tools, LONG_DEFINITION_TOKENS.into()),
        );
        let stage = start(data.path(), &servers, &options).await;
        let mut scene = Self {
            stage,
            stream,
            servers,
            options,
            data,
        };
        for at in 0..20 {
            scene
                .stage
                .clock
                .advance(std::time::Duration::from_hours(2));
            scene.stage.learn().await;
            let mut line = scene.line().await;
            for tool in scene.needed_tools(at) {
                let answer = line
                    .call(&scene.listed_name(tool), ARGUMENTS)
                    .await
                    .unwrap();
                assert!(is_ok(&answer), "{answer}");
            }
            line.client.delete().await;
        }
        scene
            .stage
            .clock
            .advance(std::time::Duration::from_hours(2));
        scene.stage.learn().await;
        scene
    }

    /// Opens a session and lists the tools once.
    async fn line(&self) -> AgentSession {
        let mut line = AgentSession::open(&self.stage.url, "agent", None, false).await;
        line.list("{}").await.unwrap();
        line
    }

    fn needed_tools(&self, at: usize) -> Vec<usize> {
        self.stream.sessions[at].calls.clone()
    }

    /// Returns the listed name of a tool.
    fn listed_name(&self, tool: usize) -> String {
        let tool = &self.stream.tools[tool];
        match self.options.naming {
            NamespacePolicy::Prefix => format!("{}__{}", tool.server, tool.name),
            NamespacePolicy::Collision => tool.name.clone(),
        }
    }

    /// Calls a tool with one retry: in a new session after a 404, with the name that the error
    /// suggests, or unchanged.
    async fn call(&self, line: &mut AgentSession, name: &str, calls: &mut CallCounts) {
        calls.n += 1;
        let answer = line.call(name, ARGUMENTS).await;
        if answer.as_ref().is_ok_and(is_ok) {
            return;
        }
        calls.n_again += 1;
        let again = match answer {
            Err(_) => {
                *line = AgentSession::open(&self.stage.url, "agent", None, false).await;
                name.to_owned()
            }
            Ok(answer) => self
                .named_in(&answer, name)
                .unwrap_or_else(|| name.to_owned()),
        };
        let answer = line.call(&again, ARGUMENTS).await;
        calls.n_failed += u32::from(!answer.is_ok_and(|answer| is_ok(&answer)));
    }

    /// Returns the first name of a tool in an error.
    fn named_in(&self, answer: &Value, wrong: &str) -> Option<String> {
        let text = answer.to_string().replace(wrong, "");
        let names = (0..self.stream.tools.len()).map(|tool| self.listed_name(tool));
        names
            .filter_map(|name| Some((text.find(&name)?, name)))
            .min()
            .map(|(_, name)| name)
    }
}

impl CallCounts {
    /// Asserts that at least 99 % of the calls succeed.
    fn check(&self) {
        assert!(self.n > 30, "too few calls: {self:?}");
        assert!(self.n_failed * 100 <= self.n, "{self:?}");
    }
}

async fn start(
    data: &Path,
    servers: &[Arc<CatalogServer>],
    options: &InProcessProxyOptions,
) -> InProcessProxy {
    let clock = Arc::new(ManualClock::default());
    InProcessProxy::start(data, clock, servers.to_vec(), options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_with_stale_lists_can_call_omitted_tools() {
    let options = InProcessProxyOptions {
        policy: Some(ListPolicyName::Conformal),
        ..InProcessProxyOptions::default()
    };
    let scene = Scene::new(options).await;
    let mut calls = CallCounts::default();
    let mut line = scene.line().await;
    for at in 20..30 {
        for tool in scene.needed_tools(at) {
            scene
                .call(&mut line, &scene.listed_name(tool), &mut calls)
                .await;
        }
    }
    calls.check();
    assert_eq!(calls.n_again, 0);
    scene.stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_tools_can_be_called() {
    let options = InProcessProxyOptions {
        bans: vec![NamePattern::new("*_ticket")],
        ..InProcessProxyOptions::default()
    };
    let scene = Scene::new(options).await;
    let mut calls = CallCounts::default();
    let mut line = AgentSession::open(&scene.stage.url, "agent", None, false).await;
    let list = line.list("{}").await.unwrap();
    assert!(
        list.iter()
            .all(|tool| !tool["name"].as_str().unwrap().ends_with("_ticket")),
        "{list:?}"
    );
    for at in 20..30 {
        for tool in scene.needed_tools(at) {
            scene
                .call(&mut line, &scene.listed_name(tool), &mut calls)
                .await;
        }
    }
    calls.check();
    scene.stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_or_missing_namespace_is_corrected() {
    let options = InProcessProxyOptions {
        naming: NamespacePolicy::Prefix,
        ..InProcessProxyOptions::default()
    };
    let scene = Scene::new(options).await;
    let mut calls = CallCounts::default();
    let mut line = scene.line().await;
    for at in 20..30 {
        for tool in scene.needed_tools(at) {
            let own = &scene.stream.tools[tool].name;
            for wrong in [
                own.clone(),
                format!("elsewhere__{own}"),
                format!("mcp__{}", scene.listed_name(tool)),
            ] {
                scene.call(&mut line, &wrong, &mut calls).await;
            }
        }
    }
    calls.check();
    scene.stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_start_new_sessions_after_a_proxy_restart() {
    let mut scene = Scene::new(InProcessProxyOptions::default()).await;
    let mut calls = CallCounts::default();
    let mut line = scene.line().await;
    for at in 20..30 {
        for (place, tool) in scene.needed_tools(at).into_iter().enumerate() {
            if place == 1 {
                let now = scene.stage.clock.clone();
                scene.options.port = scene.stage.url.port().unwrap();
                scene.stage.stop().await;
                scene.stage = InProcessProxy::start(
                    scene.data.path(),
                    now,
                    scene.servers.clone(),
                    &scene.options,
                )
                .await;
                scene.stage.learn().await;
            }
            scene
                .call(&mut line, &scene.listed_name(tool), &mut calls)
                .await;
        }
    }
    calls.check();
    assert!(calls.n_again > 0, "no session expired: {calls:?}");
    scene.stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_servers_are_reconnected() {
    let scene = Scene::new(InProcessProxyOptions::default()).await;
    let mut calls = CallCounts::default();
    for at in 20..30 {
        let mut line = scene.line().await;
        for (place, tool) in scene.needed_tools(at).into_iter().enumerate() {
            if place == 1 {
                for server in &scene.servers {
                    server.restart().await;
                }
            }
            scene
                .call(&mut line, &scene.listed_name(tool), &mut calls)
                .await;
        }
    }
    calls.check();
    scene.stage.stop().await;
}
