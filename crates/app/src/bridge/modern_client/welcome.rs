//! What the two peers of a legacy connection say of themselves in its handshake.

use riglm_domain::canonical::write_canonical;
use riglm_domain::edit;
use riglm_domain::message::Message;
use riglm_domain::meta::RequestMeta;
use riglm_domain::protocol::Revision;

/// What a server said of itself, as JSON text.
#[derive(Clone, Debug)]
pub(super) struct Welcome {
    /// What it can do, an object.
    pub(super) capabilities: Box<str>,
    /// Its name and version.
    pub(super) server_info: Option<Box<str>>,
    /// How it wants to be used.
    pub(super) instructions: Option<Box<str>>,
}

impl Welcome {
    /// Reads the result of `initialize`.
    pub(super) fn read(result: &str) -> Self {
        let object = |key| edit::member(result, key).filter(|text| text.starts_with('{'));
        Self {
            // The experimental tasks of 2025-11-25 are not those of the extension, and are not
            // translated: they are not offered.
            capabilities: edit::without_member(object("capabilities").unwrap_or("{}"), "tasks")
                .into(),
            server_info: object("serverInfo").map(Into::into),
            instructions: edit::member(result, "instructions").map(Into::into),
        }
    }

    /// Returns whether the server has log messages.
    pub(super) fn has_logging(&self) -> bool {
        edit::member(&self.capabilities, "logging").is_some_and(is_declared)
    }

    /// Returns whether the server tells of changes of a list: `tools`, `prompts` or `resources`.
    pub(super) fn tells_changes_of(&self, list: &str) -> bool {
        self.says(list, "listChanged")
    }

    /// Returns whether the server tells of changes of single resources.
    pub(super) fn has_subscriptions(&self) -> bool {
        self.says("resources", "subscribe")
    }

    fn says(&self, capability: &str, member: &str) -> bool {
        edit::member(&self.capabilities, capability)
            .and_then(|capability| edit::member(capability, member))
            == Some("true")
    }
}

/// What tells one connection of a link from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionKey {
    /// The capabilities of the client in canonical form.
    capabilities: Box<[u8]>,
    log_level: Option<Box<str>>,
}

/// What the client says of itself in a request, in place of a handshake; as JSON text.
#[derive(Clone, Debug)]
pub(super) struct Hello {
    capabilities: Box<str>,
    client_info: Option<Box<str>>,
    log_level: Option<Box<str>>,
}

impl Hello {
    /// Takes what the metadata of a request says.
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

    /// Returns the key of the connection for such requests.
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

    /// Returns whether the client can do what the requests with this method need of it; `None`
    /// for methods that a modern client is never asked for.
    pub(super) fn answers(&self, method: &str) -> Option<bool> {
        let capability = match method {
            "sampling/createMessage" => "sampling",
            "elicitation/create" => "elicitation",
            "roots/list" => "roots",
            _ => return None,
        };
        Some(edit::member(&self.capabilities, capability).is_some_and(is_declared))
    }

    /// Returns whether the client can show a page to its user.
    pub(super) fn has_url_elicitation(&self) -> bool {
        edit::member(&self.capabilities, "elicitation")
            .and_then(|elicitation| edit::member(elicitation, "url"))
            .is_some_and(is_declared)
    }

    /// Returns the first message of the handshake.
    pub(super) fn initialize(&self, id: &str) -> Option<Message> {
        let info = r#"{"name":"unknown","version":"0"}"#;
        Message::from_text(format!(
            r#"{{"jsonrpc":"2.0","id":"{id}","method":"initialize","params":{{"protocolVersion":"{}","capabilities":{},"clientInfo":{}}}}}"#,
            Revision::V2025_11_25,
            self.capabilities,
            self.client_info.as_deref().unwrap_or(info),
        ))
        .ok()
    }

    /// Returns the request for log messages, if the client wants any.
    pub(super) fn set_level(&self, id: &str) -> Option<Message> {
        let level = self.log_level.as_ref()?;
        Message::from_text(format!(
            r#"{{"jsonrpc":"2.0","id":"{id}","method":"logging/setLevel","params":{{"level":{level}}}}}"#
        ))
        .ok()
    }
}

fn is_declared(value: &str) -> bool {
    !matches!(value, "null" | "false")
}
