//! The in-memory implementations fulfil the contracts of the ports.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::future::{Ready, ready};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::Journal;
use riglm_ports::authenticator::{Authenticator, LocalAuthenticator};
use riglm_ports::clock::Clock;
use riglm_ports::contract;
use riglm_ports::contract::authenticator::AuthenticatorScene;
use riglm_ports::contract::clock::ClockScene;
use riglm_ports::contract::downstream::RecordedScene;
use riglm_ports::contract::journal::JournalScene;
use riglm_ports::contract::model_call::{
    ModelCallScene, ModelFailure, SECRET_ANSWER, SECRET_PROMPT,
};
use riglm_ports::contract::observer::ObserverScene;
use riglm_ports::contract::query_expander::QueryExpanderScene;
use riglm_ports::contract::upstream::{NAME, UpstreamScene, reaction};
use riglm_ports::fake::{
    FailingPredictor, FakeExternalPredictor, KeyTable, ManualClock, MemoryStore, RecordingObserver,
    RecordingTracer, ScriptedExpander, ScriptedReranker, ScriptedUpstream, WithoutNames,
    WordCounter, WordEncoder,
};
use riglm_ports::model_call::ModelCallError;
use riglm_ports::observer::{NoObserver, Observer};
use riglm_ports::query_expander::QueryExpander;
use riglm_ports::upstream::UpstreamConnector;

fn fresh() -> Ready<Box<MemoryStore>> {
    ready(Box::default())
}

riglm_ports::usage_store_contract!(memory, fresh());

riglm_ports::predictor_contract!(predictor, &|| Box::new(FailingPredictor::default()));

riglm_ports::external_predictor_contract!(
    external_predictor,
    ready(Box::<FakeExternalPredictor>::default())
);

riglm_ports::reranker_contract!(reranker, ready(Box::new(ScriptedReranker::new([]))));

riglm_ports::encoder_contract!(encoder, ready(Box::new(WordEncoder)));

riglm_ports::token_counter_contract!(token_counter, ready(Box::new(WordCounter)));

#[test]
fn spans_have_their_places() {
    contract::tracer::all(&RecordingTracer::default());
}

fn left_out() -> Vec<ToolName> {
    ["get_note", "tool_7", "", "absent"]
        .map(ToolName::from)
        .into()
}

riglm_ports::list_policy_contract!(list_policy, ready(Box::new(WithoutNames(left_out()))));

/// A server in memory.
#[derive(Debug)]
struct Server(Arc<ScriptedUpstream>);

impl Server {
    fn new() -> Self {
        let upstream = ScriptedUpstream::new(UpstreamName::parse(NAME).unwrap());
        upstream.react_with(|text| reaction(Era::Legacy, text));
        Self(Arc::new(upstream))
    }

    fn with_streams() -> Self {
        let server = Self::new();
        server.0.with_streams();
        server
    }
}

impl UpstreamScene for Server {
    fn connector(&self) -> Arc<dyn UpstreamConnector> {
        self.0.clone()
    }

    fn received(&self) -> Vec<String> {
        let sent = self.0.sent_messages();
        sent.into_iter().map(|(_, text)| text).collect()
    }
}

riglm_ports::upstream_contract!(upstream, ready(Box::new(Server::new())));
riglm_ports::upstream_contract!(
    upstream_with_streams,
    ready(Box::new(Server::with_streams()))
);

riglm_ports::client_link_contract!(
    client_link,
    ready(Box::new(RecordedScene::new(|link| link)))
);

#[derive(Debug)]
struct Keys(KeyTable);

impl Keys {
    fn new() -> Self {
        let keys = KeyTable::default();
        for name in ["alice", "bob"] {
            keys.accept(&format!("the key of {name}"), Principal::from_name(name));
        }
        Self(keys)
    }
}

impl AuthenticatorScene for Keys {
    fn authenticator(&self) -> &dyn Authenticator {
        &self.0
    }

    fn accepted(&self) -> Vec<(Option<String>, Principal)> {
        let key = |name| {
            (
                Some(format!("the key of {name}")),
                Principal::from_name(name),
            )
        };
        ["alice", "bob"].map(key).into()
    }

    fn refused(&self) -> Vec<Option<String>> {
        vec![None, Some("the key of carol".into())]
    }

    fn revoke_first(&self) -> bool {
        self.0.revoke("the key of alice");
        true
    }
}

riglm_ports::authenticator_contract!(authenticator, ready(Box::new(Keys::new())));

/// Accepts everybody.
#[derive(Debug)]
struct Local;

impl AuthenticatorScene for Local {
    fn authenticator(&self) -> &dyn Authenticator {
        &LocalAuthenticator
    }

    fn accepted(&self) -> Vec<(Option<String>, Principal)> {
        let keys = [None, Some(String::new()), Some("any".into())];
        keys.map(|key| (key, Principal::local())).into()
    }

    fn refused(&self) -> Vec<Option<String>> {
        Vec::new()
    }
}

riglm_ports::authenticator_contract!(local_authenticator, ready(Box::new(Local)));

#[derive(Debug, Default)]
struct Stopped(ManualClock);

impl ClockScene for Stopped {
    fn clock(&self) -> &dyn Clock {
        &self.0
    }

    fn reference(&self) -> Timestamp {
        Timestamp::constant(1_800_000_000, 0)
    }
}

riglm_ports::clock_contract!(clock, ready(Box::<Stopped>::default()));

#[derive(Debug, Default)]
struct Names(RecordingObserver);

impl ObserverScene for Names {
    fn observer(&self) -> &dyn Observer {
        &self.0
    }

    fn size(&self) -> usize {
        self.0.names().len()
    }

    fn n_recorded(&self) -> Option<usize> {
        Some(self.0.names().len())
    }
}

riglm_ports::observer_contract!(observer, ready(Box::<Names>::default()));

#[derive(Debug)]
struct Nothing;

impl ObserverScene for Nothing {
    fn observer(&self) -> &dyn Observer {
        &NoObserver
    }

    fn size(&self) -> usize {
        0
    }
}

riglm_ports::observer_contract!(no_observer, ready(Box::new(Nothing)));

#[derive(Debug, Default)]
struct Expander(ScriptedExpander);

impl QueryExpanderScene for Expander {
    fn expander(&self) -> &dyn QueryExpander {
        &self.0
    }

    fn answer_with(&self, texts: &[&str]) {
        self.0.answer_with(serde_json::json!(texts).to_string());
    }
}

riglm_ports::query_expander_contract!(query_expander, ready(Box::<Expander>::default()));

#[async_trait]
impl ModelCallScene for Expander {
    async fn failure(&self, failure: ModelFailure) -> Option<ModelCallError> {
        if failure != ModelFailure::Nonsense {
            return None;
        }
        self.0.answer_with(SECRET_ANSWER);
        self.0.expand(SECRET_PROMPT, 3).await.err()
    }
}

riglm_ports::model_call_contract!(model_call, ready(Box::<Expander>::default()));

#[derive(Debug, Default)]
struct Rows(MemoryStore);

impl JournalScene for Rows {
    fn journal(&self) -> &dyn Journal {
        &self.0
    }

    fn applied(&self) -> Vec<Record> {
        self.0.records()
    }

    fn set_failing(&self, is_failing: bool) {
        if is_failing {
            self.0.start_failing();
        } else {
            self.0.stop_failing();
        }
    }

    fn outlasts_failures(&self) -> bool {
        false
    }
}

riglm_ports::journal_contract!(journal, ready(Box::<Rows>::default()));
