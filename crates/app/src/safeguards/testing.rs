//! Calls for tests.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;

use super::GuardedCall;
use riglm_discovery::search::{Catalog, CatalogTool};

/// Common parts of the calls of a test.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) principal: Principal,
    pub(super) upstream: UpstreamName,
    pub(super) catalog: Arc<Catalog>,
    pub(super) start: Instant,
}

impl Scene {
    /// Returns a scene whose catalog has tools with these names and annotations, as JSON text.
    pub(super) fn new(tools: &[(&str, &str)]) -> Self {
        let upstream = UpstreamName::parse("notes").expect("it is a name");
        let tools = tools.iter().map(|(name, annotations)| CatalogTool {
            name: format!("notes__{name}"),
            tool: ToolRef {
                upstream: upstream.clone(),
                tool: (*name).into(),
            },
            definition: format!(r#"{{"name":"{name}","annotations":{annotations}}}"#).into(),
            is_hidden: false,
        });
        Self {
            principal: Principal::local(),
            catalog: Arc::new(Catalog::new(tools.collect(), Vec::new())),
            upstream,
            start: Instant::now(),
        }
    }

    /// Returns a call of the first work session.
    pub(super) fn call<'a>(&'a self, tool: &'a ToolName, arguments: &'a str) -> GuardedCall<'a> {
        GuardedCall {
            session_key: session(1),
            principal: &self.principal,
            asker: None,
            profile: None,
            upstream: Some(&self.upstream),
            fingerprint: "",
            tool,
            own: None,
            arguments: Some(arguments),
            is_task: false,
            token_budget: None,
            catalog: Some(&self.catalog),
            now: Timestamp::constant(1_800_000_000, 0),
            at: self.start,
        }
    }
}

/// Returns the session key of a connection.
pub(super) fn session(n: u8) -> SessionKey {
    SessionKey::Connection(SessionId::new(Timestamp::UNIX_EPOCH, [n; 10]))
}
