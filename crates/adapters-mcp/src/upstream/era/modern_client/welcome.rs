//! The handshake of a legacy connection: the descriptions of both peers.

use riglm_domain::mcp::edit;
use riglm_domain::mcp::internal_id::SingleRequest;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::privacy::canonical::write_canonical;

use crate::upstream::era::tasks::{declares_extension, runs_calls_as_tasks, with_extension};

/// The description of a server, as JSON text.
#[derive(Clone, Debug)]
pub(super) struct Welcome {
    /// The capabilities, an object.
    pub(super) capabilities: Box<str>,
    /// The name and version.
    pub(super) server_info: Option<Box<str>>,
    /// The instructions for its use.
    pub(super) instructions: Option<Box<str>>,
    /// Whether it runs calls of tools as tasks.
    pub(super) runs_tasks: bool,
}

impl Welcome {
    /// Reads the result of `initialize`.
    pub(super) fn read(result: &str) -> Self {
        let object = |key| edit::member(result, key).filter(|text| text.starts_with('{'));
        let declared = object("capabilities").unwrap_or("{}");
        let runs_tasks = runs_calls_as_tasks(declared);
        // The tasks of 2025-11-25 are translated into those of the extension.
        let mut capabilities = edit::without_member(declared, "tasks");
        if runs_tasks {
            capabilities = with_extension(&capabilities);
        }
        Self {
            capabilities: capabilities.into(),
            runs_tasks,
            server_info: object("serverInfo").map(Into::into),
            instructions: edit::member(result, "instructions").map(Into::into),
        }
    }

    /// Returns whether the server supports log messages.
    pub(super) fn has_logging(&self) -> bool {
        edit::member(&self.capabilities, "logging").is_some_and(is_declared)
    }

    /// Returns whether the server reports changes of a list: `tools`, `prompts` or `resources`.
    pub(super) fn tells_changes_of(&self, list: &str) -> bool {
        self.says(list, "listChanged")
    }

    /// Returns whether the server supports subscriptions to resources.
    pub(super) fn has_subscriptions(&self) -> bool {
        self.says("resources", "subscribe")
    }

    fn says(&self, capability: &str, member: &str) -> bool {
        edit::member(&self.capabilities, capability)
            .and_then(|capability| edit::member(capability, member))
            == Some("true")
    }
}

/// The key of a connection in a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionKey {
    /// The capabilities of the client in canonical form.
    capabilities: Box<[u8]>,
    log_level: Option<Box<str>>,
}

/// The description of the client in a request, which replaces a handshake; as JSON text.
#[derive(Clone, Debug)]
pub(super) struct Hello {
    capabilities: Box<str>,
    client_info: Option<Box<str>>,
    log_level: Option<Box<str>>,
}

impl Hello {
    /// Reads the metadata of a request.
    pub(super) fn of(meta: &RequestMeta<'_>) -> Self {
        let object = |text: Option<&str>| text.filter(|text| text.starts_with('{')).map(Box::from);
        Self {
            capabilities: object(meta.client_capabilities).unwrap_or_else(|| "{}".into()),
            client_info: object(meta.client_info),
            log_level: meta
                .log_level
                .filter(|text| text.starts_with('"'))
                .map(Into::into),
        }
    }

    /// Returns the key of the connection for requests with this description.
    pub(super) fn key(&self) -> ConnectionKey {
        let mut canonical = Vec::new();
        let written = write_canonical(&self.capabilities, &mut |piece| {
            canonical.extend_from_slice(piece);
        });
        ConnectionKey {
            capabilities: match written {
                Ok(()) => canonical.into(),
                Err(_) => self.capabilities.as_bytes().into(),
            },
            log_level: self.log_level.clone(),
        }
    }

    /// Returns whether the client supports requests with this method. Returns `None` for methods
    /// that a modern client is never asked for.
    pub(super) fn answers(&self, method: &str) -> Option<bool> {
        let capability = match method {
            method::SAMPLING_CREATE_MESSAGE => "sampling",
            method::ELICITATION_CREATE => "elicitation",
            method::ROOTS_LIST => "roots",
            _ => return None,
        };
        Some(edit::member(&self.capabilities, capability).is_some_and(is_declared))
    }

    /// Returns whether the client supports elicitation by URL.
    pub(super) fn has_url_elicitation(&self) -> bool {
        edit::member(&self.capabilities, "elicitation")
            .and_then(|elicitation| edit::member(elicitation, "url"))
            .is_some_and(is_declared)
    }

    /// Returns whether the client supports the tasks extension.
    pub(super) fn has_tasks(&self) -> bool {
        declares_extension(&self.capabilities)
    }

    /// Returns the first message of the handshake.
    pub(super) fn initialize(&self) -> Message {
        let info = r#"{"name":"unknown","version":"0"}"#;
        let params = format!(
            r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{}}}"#,
            Revision::NEWEST_LEGACY,
            self.capabilities,
            self.client_info.as_deref().unwrap_or(info),
        );
        Message::request(
            &SingleRequest::Initialize.id(),
            method::INITIALIZE,
            Some(&params),
        )
    }

    /// Returns the request that sets the log level, if the client requests log messages.
    pub(super) fn set_level(&self) -> Option<Message> {
        let level = self.log_level.as_ref()?;
        let params = format!(r#"{{"level":{level}}}"#);
        let id = SingleRequest::LogLevel.id();
        Some(Message::request(
            &id,
            method::LOGGING_SET_LEVEL,
            Some(&params),
        ))
    }
}

fn is_declared(value: &str) -> bool {
    !matches!(value, "null" | "false")
}
