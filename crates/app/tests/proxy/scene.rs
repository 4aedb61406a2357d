//! Test scene: a proxy over fakes, with one client.

use std::sync::Arc;

use bytes::Bytes;
use riglm_app::clock::SystemClock;
use riglm_app::control::approvals::Approvals;
use riglm_app::limits::Limits;
use riglm_app::proxy::{ClientSession, NamespacePolicy, OwnToolNames, Proxy, ProxyParts, Upstream};
use riglm_app::selection::ListFilter;
use riglm_app::tracking::{Recorder, RecorderOptions};
use riglm_discovery::intent::{IntentWeights, Intents};
use riglm_discovery::search::{SearchParts, ToolSearch};
use riglm_domain::id::{RunId, ToolName, UpstreamName};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository, Journal};
use riglm_ports::clock::Clock;
use riglm_ports::fake::{MemoryStore, RecordingClient, ScriptedUpstream, WordCounter};
use riglm_ports::list_policy::ListPolicy;
use riglm_ports::tracer::Tracer;

pub(crate) const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#;
pub(crate) const WELCOME: &str = r#""result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;

/// A proxy over fakes, with one client.
pub(crate) struct Scene {
    pub(crate) intents: Arc<Intents>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) upstream: Arc<ScriptedUpstream>,
    pub(crate) client: Arc<RecordingClient>,
    pub(crate) proxy: Proxy,
    pub(crate) session: Arc<ClientSession>,
}

#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) options: RecorderOptions,
    pub(crate) limits: Limits,
    pub(crate) policy: Option<Arc<dyn ListPolicy>>,
    /// The selection of lists, used instead of the policy.
    pub(crate) filter: Option<ListFilter>,
    /// The store from which records are read; it is also the journal if there is no other.
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) journal: Option<Arc<dyn Journal>>,
    /// The most connections to the upstream; 0 for the default.
    pub(crate) max_connections: usize,
    /// Whether its sessions use no connections, so that their number is unlimited.
    pub(crate) has_no_connections: bool,
    /// The name of the search tool.
    pub(crate) search: Option<&'static str>,
    /// Whether the proxy has its other own tools too.
    pub(crate) has_others: bool,
    /// Whether changes of tools wait for approval.
    pub(crate) holds_changes: bool,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

impl Setup {
    pub(crate) fn scene(self) -> Scene {
        let store = self.store;
        let journal = self.journal.unwrap_or_else(|| store.clone());
        let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
        upstream.reply_to("initialize", WELCOME);
        let run = RunId::new(SystemClock.now(), [0; 10]);
        let hasher = KeyedHasher::new(&[7; 32]);
        let clock = Arc::new(SystemClock);
        let mut configured = Upstream::new(upstream.clone());
        if self.max_connections > 0 {
            configured.options.max_connections = Some(self.max_connections);
        }
        if self.has_no_connections {
            configured.options.max_connections = None;
        }
        if self.holds_changes {
            let observer = Arc::new(riglm_ports::observer::NoObserver);
            let approvals = Approvals::new(Some(store.clone()), observer, clock.clone());
            configured.approvals = Some(Arc::new(approvals));
        }
        let intents = Arc::new(Intents::new(IntentWeights::default()));
        let parts = ProxyParts {
            upstreams: vec![configured],
            naming: NamespacePolicy::Prefix,
            recorder: Arc::new(Recorder::new(journal, hasher, clock, run, self.options)),
            filter: (self.filter).unwrap_or_else(|| ListFilter::new(self.policy)),
            limits: self.limits,
            search: Some(Arc::new(ToolSearch::new(SearchParts::words_only(
                Arc::new(WordCounter),
                Arc::new(SystemClock),
            )))),
            recommender: None,
            safeguards: None,
            intents: Some(Arc::clone(&intents)),
            observer: Arc::new(riglm_ports::observer::NoObserver),
            next_tools: None,
            work_sessions: None,
            tools: OwnToolNames {
                search: self.search.map(ToolName::from),
                call_tool: self.has_others.then(|| "call_tool".into()),
                set_context: self.has_others.then(|| "set_context".into()),
                ..OwnToolNames::default()
            },
        };
        let proxy = Proxy::with_tracer(parts, self.tracer);
        let client = Arc::new(RecordingClient::default());
        let session = proxy
            .accept(
                Transport::StreamableHttp,
                &Principal::local(),
                client.clone(),
            )
            .unwrap();
        Scene {
            intents,
            store,
            upstream,
            client,
            proxy,
            session,
        }
    }
}

impl Scene {
    pub(crate) async fn send(&self, text: &str) {
        let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
        self.session.receive(message).await.unwrap();
    }

    pub(crate) async fn outcomes(&self) -> Vec<Option<Outcome>> {
        let calls = self
            .store
            .invocations(&InvocationFilter::default(), 100)
            .await
            .unwrap();
        calls
            .into_iter()
            .map(|call| call.end.map(|end| end.outcome))
            .collect()
    }

    pub(crate) fn last(&self) -> String {
        self.client.delivered_messages().last().unwrap().0.clone()
    }
}

pub(crate) fn call(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"secret":"s3cr3t"}}}}}}"#
    )
}

pub(crate) fn id(number: u32) -> RequestId {
    RequestId::Number(number.to_string().into())
}
