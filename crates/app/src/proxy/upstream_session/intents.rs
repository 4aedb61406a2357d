//! The intents of a client, read from the requests that pass.

use std::sync::Arc;

use riglm_domain::id::ToolName;
use riglm_domain::intent::{
    IntentSource, MAX_INTENT_CHARS, path_words, prompt_text, sampling_text, string_values,
};
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Envelope, Message};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::scan::members;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::{Event, EventOrigin};

use super::scope::UpstreamScope;
use crate::proxy::request_params::{RequestParams, is_input_required};

/// The method by which a server requests a completion from the model of the client.
const SAMPLING: &str = "sampling/createMessage";
/// The maximum length of the text that is read from call arguments, in characters.
const MAX_ARGUMENT_CHARS: usize = 300;
/// The maximum size of arguments that are read, in bytes. Calls must not wait for larger ones.
const MAX_ARGUMENT_BYTES: usize = 8 << 10;

/// Listens to the intents in the requests of one client to one upstream.
#[derive(Debug)]
pub(super) struct IntentLayer(Arc<UpstreamScope>);

impl IntentLayer {
    pub(super) fn new(scope: &Arc<UpstreamScope>) -> Self {
        Self(Arc::clone(scope))
    }

    /// Stores the intent of a request of the client, except for calls.
    pub(super) async fn on_request(&self, method: &str, params: &RequestParams<'_>) {
        let Some(intents) = self.0.shared.intents() else {
            return;
        };
        let source = match method {
            "prompts/get" => IntentSource::Prompt,
            "resources/read" => IntentSource::Resource,
            _ => return,
        };
        if !intents.listens_to(source) {
            return;
        }
        let text = match source {
            IntentSource::Prompt => {
                let name = params.name().unwrap_or_default();
                prompt_text(&name, params.arguments(), MAX_INTENT_CHARS)
            }
            _ => path_words(&params.uri().unwrap_or_default()),
        };
        self.note_intent(source, &text).await;
    }

    /// Stores the intent of a call, from its arguments and its tool. The call may show that the
    /// client has left the context that it stated.
    pub(super) fn on_call(&self, session: SessionKey, tool: &ToolName, arguments: Option<&str>) {
        let Some(intents) = self.0.shared.intents() else {
            return;
        };
        let is_read = |arguments: &&str| {
            let is_heard = intents.listens_to(IntentSource::Arguments);
            is_heard && arguments.len() <= MAX_ARGUMENT_BYTES
        };
        let arguments = arguments.filter(is_read);
        let text = arguments.map(|arguments| string_values(arguments, MAX_ARGUMENT_CHARS));
        let text = text.unwrap_or_default();
        let now = self.0.shared.recorder.now();
        let threshold = self.context_shift(session);
        let shift = intents.record_call(session, tool.as_str(), &text, threshold);
        intents.note(session, IntentSource::Arguments, &text, now);
        if let Some(shift) = shift {
            self.0.shared.observe_from(
                &Event::ContextShifted(shift),
                &EventOrigin::of_session(&self.0.client_context.principal, session),
            );
        }
    }

    /// Returns the minimum similarity between the calls of a session and its stated context.
    fn context_shift(&self, session: SessionKey) -> f64 {
        let Some(lists) = self.0.shared.selection.lists() else {
            return 0.0;
        };
        let client = self.0.client_context.client_name();
        let now = self.0.shared.recorder.now();
        lists.context_shift(
            &self
                .0
                .client_context
                .list_request(&client, session, Era::Legacy, now),
        )
    }

    /// Stores the intent in a sampling request of the server.
    pub(super) async fn on_server_request(&self, message: &Message, asked: &Envelope) {
        if asked.method() == Some(SAMPLING) {
            let params = message.params(asked).map(str::to_owned);
            self.note_sampling(params.as_deref()).await;
        }
    }

    /// Stores the intents in a result of a modern server that asks for input.
    pub(super) async fn on_result(&self, answer: &Message, part: &Envelope) {
        if self.0.shared.intents().is_none() || !is_input_required(answer, part) {
            return;
        }
        let requests = answer.member(part, "inputRequests");
        let requests = requests.filter(|all| all.starts_with('{'));
        for (_, request) in requests.into_iter().flat_map(members) {
            let method = member(request, "method").map(|method| method.trim_matches('"'));
            if method == Some(SAMPLING) {
                self.note_sampling(member(request, "params")).await;
            }
        }
    }

    async fn note_sampling(&self, params: Option<&str>) {
        let intents = self.0.shared.intents();
        let source = IntentSource::Sampling;
        if let Some(params) = params
            && intents.is_some_and(|intents| intents.listens_to(source))
        {
            let text = sampling_text(params, MAX_INTENT_CHARS);
            self.note_intent(source, &text).await;
        }
    }

    async fn note_intent(&self, source: IntentSource, text: &str) {
        if let Some(intents) = self.0.shared.intents() {
            let now = self.0.shared.recorder.now();
            let row = self.0.session_id().await;
            intents.note(self.0.client_context.session_key(row), source, text, now);
        }
    }
}
