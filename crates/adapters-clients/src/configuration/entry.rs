//! The entry for riglm in the notation of a client.

use std::fmt;

use serde_json::{Map, Value, json};

use super::client::{Client, Connection, Constant, HeaderPlace, HttpEntry, VariableReference};

/// The identifier of the input that VS Code asks for.
pub(super) const INPUT_ID: &str = "riglm-key";

/// The facts that an entry for riglm is made of.
#[derive(Clone, Debug)]
pub struct InstallEntry {
    /// The name of the entry, usually `riglm`.
    pub name: String,
    /// The address of the endpoint, such as `http://127.0.0.1:8642/mcp`.
    pub address: String,
    /// The absolute path of the program, for clients without addresses.
    pub program: String,
    /// The arguments of the program, such as `connect`.
    pub arguments: Vec<String>,
    /// The access key.
    pub key: EntryKey,
}

/// The access key of an entry.
#[derive(Clone, PartialEq, Eq)]
pub enum EntryKey {
    /// No key is needed.
    None,
    /// A variable holds the key.
    Variable(String),
    /// The key itself, for clients that replace no variables.
    Text(String),
}

impl fmt::Debug for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Variable(name) => f.debug_tuple("Variable").field(name).finish(),
            Self::Text(_) => f.write_str("Text"),
        }
    }
}

/// An entry that is ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ComposedEntry {
    pub(super) value: Value,
    /// The input that the client asks for.
    pub(super) input: Option<Value>,
}

/// Members that make the connection. Those of an old entry must not stay in a new one.
const CONNECTION_MEMBERS: [&str; 23] = [
    "args",
    "auth",
    "bearer_token_env_var",
    "cmd",
    "command",
    "cwd",
    "env",
    "env_http_headers",
    "env_keys",
    "env_vars",
    "environment",
    "envs",
    "headers",
    "http_headers",
    "httpUrl",
    "oauth",
    "requestInit",
    "requestOptions",
    "serverUrl",
    "transport",
    "type",
    "uri",
    "url",
];

impl ComposedEntry {
    /// Keeps the members of an older entry that the client or its user has added, such as a time
    /// limit.
    pub(super) fn keep_additions(&mut self, old: &Value) {
        let (Some(members), Some(old)) = (self.value.as_object_mut(), old.as_object()) else {
            return;
        };
        for (key, value) in old {
            if !members.contains_key(key) && !CONNECTION_MEMBERS.contains(&key.as_str()) {
                members.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The client replaces no variables, and the key is in one.
#[derive(Debug)]
pub(super) struct NoReference;

/// Returns the entry for a client.
///
/// # Errors
///
/// Returns [`NoReference`] if the key cannot be referred to.
pub(super) fn compose(client: &Client, entry: &InstallEntry) -> Result<ComposedEntry, NoReference> {
    let shape = match &client.connection {
        Connection::Bridge => {
            // The program knows the key itself.
            return Ok(ComposedEntry {
                value: json!({ "command": entry.program, "args": entry.arguments }),
                input: None,
            });
        }
        Connection::Http(shape) => shape,
    };
    let mut members = Map::new();
    for member in shape.before {
        members.insert(member.key.to_owned(), constant(member.value, entry));
    }
    members.insert(shape.address_key.to_owned(), json!(entry.address));
    add_key(&mut members, shape, client.reference, &entry.key)?;
    for member in shape.after {
        members.insert(member.key.to_owned(), constant(member.value, entry));
    }
    let is_asked =
        client.reference == VariableReference::Input && matches!(entry.key, EntryKey::Variable(_));
    let input = is_asked.then(|| {
        json!({
            "type": "promptString",
            "id": INPUT_ID,
            "description": "Access key of riglm",
            "password": true,
        })
    });
    Ok(ComposedEntry {
        value: Value::Object(members),
        input,
    })
}

fn add_key(
    members: &mut Map<String, Value>,
    shape: &HttpEntry,
    reference: VariableReference,
    key: &EntryKey,
) -> Result<(), NoReference> {
    let token = match key {
        EntryKey::None => None,
        EntryKey::Variable(name) => Some(refer(reference, name).ok_or(NoReference)?),
        EntryKey::Text(text) => Some(text.clone()),
    };
    if shape.headers == HeaderPlace::TokenVariable {
        match (key, token) {
            (EntryKey::Variable(name), _) => {
                members.insert("bearer_token_env_var".to_owned(), json!(name));
            }
            (_, Some(token)) => {
                let headers = json!({ "Authorization": format!("Bearer {token}") });
                members.insert("http_headers".to_owned(), headers);
            }
            (_, None) => {}
        }
        return Ok(());
    }
    let headers = match token {
        Some(token) => json!({ "Authorization": format!("Bearer {token}") }),
        None if shape.headers == HeaderPlace::RequiredHeaders => json!({}),
        None => return Ok(()),
    };
    let (key, value) = match shape.headers {
        HeaderPlace::RequestInit => ("requestInit", json!({ "headers": headers })),
        HeaderPlace::RequestOptions => ("requestOptions", json!({ "headers": headers })),
        _ => ("headers", headers),
    };
    members.insert(key.to_owned(), value);
    Ok(())
}

/// Returns a reference to a variable, if the client replaces any.
fn refer(reference: VariableReference, name: &str) -> Option<String> {
    match reference {
        VariableReference::Braces => Some(format!("${{{name}}}")),
        VariableReference::Dollar => Some(format!("${name}")),
        VariableReference::EnvBraces => Some(format!("${{env:{name}}}")),
        VariableReference::EnvOnly => Some(format!("{{env:{name}}}")),
        VariableReference::Secrets => Some(format!("${{{{ secrets.{name} }}}}")),
        VariableReference::Input => Some(format!("${{input:{INPUT_ID}}}")),
        VariableReference::Name => Some(name.to_owned()),
        VariableReference::None => None,
    }
}

fn constant(constant: Constant, entry: &InstallEntry) -> Value {
    match constant {
        Constant::Name => json!(entry.name),
        Constant::Text(text) => json!(text),
        Constant::Number(number) => json!(number),
        Constant::True => json!(true),
        Constant::False => json!(false),
        Constant::Everything => json!(["*"]),
        Constant::KeyVariables => match &entry.key {
            EntryKey::Variable(name) => json!([name]),
            EntryKey::None | EntryKey::Text(_) => json!([]),
        },
        Constant::EmptyMap => json!({}),
    }
}
