//! Test scene: a proxy over fakes, with one client.

use std::sync::Arc;

use bytes::Bytes;
use riglm_app::clock::SystemClock;
use riglm_app::control::approvals::Approvals;
use riglm_app::limits::Limits;
use riglm_app::proxy::{ClientSession, Proxy, ProxyParts, Upstream};
use riglm_app::selection::ListFilter;
use riglm_app::testing;
use riglm_app::tracking::RecorderOptions;
use riglm_discovery::intent::{IntentWeights, Intents};
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository, Journal};
use riglm_ports::fake::{MemoryStore, RecordingClient, ScriptedUpstream};
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
        let mut configured = Upstream::new(upstream.clone());
        if self.max_connections > 0 {
            configured.options.max_connections = Some(self.max_connections);
        }
        if self.has_no_connections {
            configured.options.max_connections = None;
        }
        if self.holds_changes {
            let observer = Arc::new(riglm_ports::observer::NoObserver);
            let approvals = Approvals::new(Some(store.clone()), observer, Arc::new(SystemClock));
            configured.approvals = Some(Arc::new(approvals));
        }
        let intents = Arc::new(Intents::new(IntentWeights::default()));
        let proxy = Proxy::new(ProxyParts {
            recorder: testing::recorder_with(journal, self.options),
            filter: (self.filter).unwrap_or_else(|| ListFilter::new(self.policy)),
            limits: self.limits,
            search: Some(testing::search_by_words()),
            intents: Some(Arc::clone(&intents)),
            tracer: self.tracer,
            tools: testing::own_tools(self.search, self.has_others),
            ..testing::proxy_parts(vec![configured])
        });
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

/// Hides the tools whose names begin with `hidden_`.
#[derive(Debug)]
pub(crate) struct HidingPolicy;

impl ListPolicy for HidingPolicy {
    fn select(&self, _context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection {
        let is_hidden = |position: &usize| tools[*position].as_str().starts_with("hidden_");
        Selection::Without((0..tools.len()).filter(is_hidden).collect())
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
