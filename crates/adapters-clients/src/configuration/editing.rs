//! Changes to the entry for riglm in the text of a file.
//!
//! Only the bytes of the entry change. Each change is checked: the new text is parsed, and must
//! have the same values as the old one, except for the entry.

mod json;
mod restoring;
mod text;
mod toml;
mod verification;
mod yaml;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::json::{ItemPlace, NewItem};
use self::toml::EntryPlace;
use self::verification::{check, has_input, remove_input, remove_value, value_of, with_composed};
use super::client::{Client, MapShape};
use super::document::{self, DocumentError, DocumentFormat, json as json_document};
use super::entry::{self, ComposedEntry, INPUT_ID, InstallEntry};
use super::identity::RiglmIdentity;
use super::reading::{ReadContext, read_servers};
use super::server::{ConfiguredServer, ConfiguredTransport, ServerNature};

pub use self::restoring::LossReason;
pub(super) use self::restoring::{ServersToRestore, restore_servers};

/// The key of the inputs that VS Code asks for.
const INPUTS: &str = "inputs";

/// The text of a file after a change.
#[derive(Clone, PartialEq)]
pub struct EditedText {
    /// The new text.
    pub text: String,
    /// The change that was made.
    pub change: EntryChange,
    /// The state before, for the removal.
    pub insertion: InsertionRecord,
}

impl std::fmt::Debug for EditedText {
    // The text may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EditedText")
            .field("change", &self.change)
            .finish_non_exhaustive()
    }
}

/// A change of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// It was added.
    Inserted,
    /// It was there with other values.
    Replaced,
    /// Nothing was changed, because an entry for the same endpoint was there.
    Unchanged {
        /// The name of the entry.
        name: String,
    },
    /// It was removed.
    Removed,
    /// Nothing was changed, because there was no entry.
    Absent,
}

/// The state of a file before an entry was added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertionRecord {
    /// The collection of servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    servers: Option<ContainerBefore>,
    /// The collection of inputs, if one was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inputs: Option<ContainerBefore>,
}

/// The state of a collection before an item was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ContainerBefore {
    /// It had items.
    Filled,
    /// It was empty or null.
    Empty {
        /// Its text.
        text: String,
    },
    /// It did not exist.
    Absent,
    /// It did not exist, and the document had no members.
    AbsentInEmpty {
        /// The text of the document.
        text: String,
    },
    /// The file had no values.
    Blank {
        /// The text of the file.
        text: String,
    },
}

/// The reason why an entry cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file is malformed.
    #[error("the file is malformed")]
    Document(#[from] DocumentError),
    /// The document is a list or a plain value.
    #[error("the file is not an object")]
    NoObject,
    /// The servers are in a value of the wrong kind.
    #[error("the value of {key:?} is not {expected}")]
    WrongKind {
        /// The key.
        key: String,
        /// The kind of value that is needed.
        expected: &'static str,
    },
    /// An entry of the same name is a server of somebody else.
    #[error("the server {name:?} is not riglm: rename or remove it first")]
    ForeignEntry {
        /// The name.
        name: String,
    },
    /// Not every client takes the name.
    #[error("the name {name:?} must be 1 to 64 letters, digits, hyphens and underscores")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The client replaces no variables.
    #[error("{client} replaces no variables: the key itself is needed")]
    KeyNeeded {
        /// The title of the client.
        client: &'static str,
    },
    /// The text has a form that cannot be changed by parts.
    #[error("the value of {key:?} has a form that cannot be changed safely: edit the file by hand")]
    Layout {
        /// The key.
        key: String,
    },
    /// The new text would have other values than it should.
    #[error("the change would alter other parts of the file: edit the file by hand")]
    Unsafe,
}

/// Returns the entry for riglm as a value, for a command or a link of the client.
///
/// # Errors
///
/// Returns [`EditError`] if the name is invalid, or if the client replaces no variables and the key
/// is in one.
pub fn entry_value(client: &Client, entry: &InstallEntry) -> Result<Value, EditError> {
    Ok(composed_entry(client, entry)?.value)
}

fn composed_entry(client: &Client, entry: &InstallEntry) -> Result<ComposedEntry, EditError> {
    if !is_valid_name(&entry.name) {
        return Err(EditError::InvalidName {
            name: entry.name.clone(),
        });
    }
    entry::compose(client, entry).map_err(|_| EditError::KeyNeeded {
        client: client.title,
    })
}

/// Adds the entry for riglm to the text of a file, or renews it. A missing file is an empty text.
///
/// # Errors
///
/// Returns [`EditError`] if the file is malformed, if an entry of that name is not riglm, or if the
/// text cannot be changed safely.
pub fn install_entry(
    text: &str,
    client: &Client,
    entry: &InstallEntry,
    riglm: &RiglmIdentity,
) -> Result<EditedText, EditError> {
    let mut composed = composed_entry(client, entry)?;
    let body = document::without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let old = document::read(body, client.format)?.value;
    let unchanged = |name: String| EditedText {
        text: text.to_owned(),
        change: EntryChange::Unchanged { name },
        insertion: InsertionRecord::default(),
    };
    let servers = own_entries(text, client, riglm)?;
    let existing = servers.iter().find(|server| server.name == entry.name);
    let existing_value = value_of(&old, client, &entry.name);
    if let Some(value) = existing_value {
        composed.keep_additions(value);
    }
    let needs_input = composed.input.is_some() && !has_input(&old);
    if existing_value == Some(&composed.value) && !needs_input {
        return Ok(unchanged(entry.name.clone()));
    }
    if existing_value.is_some() && existing.is_none() {
        return Err(EditError::ForeignEntry {
            name: entry.name.clone(),
        });
    }
    if existing.is_none()
        && let Some(other) = servers.iter().find(|server| reaches(server, entry))
    {
        return Ok(unchanged(other.name.clone()));
    }
    let place = place(client, &entry.name);
    let (edited, change, mut insertion) = if existing.is_some() {
        let edited = replace(body, client, place, &composed.value)?;
        (edited, EntryChange::Replaced, InsertionRecord::default())
    } else {
        let (edited, before) = insert(body, client, place, &composed.value)?;
        let insertion = InsertionRecord {
            servers: Some(before),
            inputs: None,
        };
        (edited, EntryChange::Inserted, insertion)
    };
    let edited = match &composed.input {
        Some(input) if !has_input(&old) => {
            let place = ItemPlace {
                container: INPUTS,
                key: None,
            };
            let (edited, before) = json::insert(&edited, place, NewItem::Value(input))?;
            insertion.inputs = Some(before);
            edited
        }
        _ => edited,
    };
    let expected = with_composed(old, client, &entry.name, &composed);
    check(&edited, client.format, &expected)?;
    Ok(EditedText {
        text: format!("{mark}{edited}"),
        change,
        insertion,
    })
}

/// Removes an entry for riglm from the text of a file. The record of its insertion helps to leave
/// the text as it was.
///
/// # Errors
///
/// Returns [`EditError`] if the file is malformed, if the entry is not riglm, or if the text cannot
/// be changed safely.
pub fn remove_entry(
    text: &str,
    client: &Client,
    removal: &EntryRemoval<'_>,
) -> Result<EditedText, EditError> {
    let EntryRemoval {
        name,
        riglm,
        insertion,
    } = *removal;
    let body = document::without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let old = document::read(body, client.format)?.value;
    let edited_text = |text: String, change| EditedText {
        text,
        change,
        insertion: InsertionRecord::default(),
    };
    if value_of(&old, client, name).is_none() {
        return Ok(edited_text(text.to_owned(), EntryChange::Absent));
    }
    let servers = own_entries(text, client, riglm)?;
    if !servers.iter().any(|server| server.name == name) {
        return Err(EditError::ForeignEntry {
            name: name.to_owned(),
        });
    }
    let place = place(client, name);
    let mut edited = body.to_owned();
    let mut expected = old;
    // The input was added last. Another entry may still need it.
    if insertion.is_some_and(|it| it.inputs.is_some()) && servers.len() == 1 {
        let before = insertion.and_then(|it| it.inputs.as_ref());
        edited = json::remove(&edited, INPUTS, before, |item| {
            let id = item.value.member("id").map(|id| id.value.to_value());
            id.is_some_and(|id| id == INPUT_ID)
        })?;
        remove_input(&mut expected);
    }
    let before = insertion.and_then(|it| it.servers.as_ref());
    edited = match client.format {
        DocumentFormat::Json | DocumentFormat::JsonWithComments => {
            json::remove(&edited, place.container, before, |item| {
                is_entry(item, client.map.shape, name)
            })?
        }
        DocumentFormat::Toml => toml::remove(&edited, place, before)?,
        DocumentFormat::Yaml => yaml::remove(&edited, place, before)?,
    };
    remove_value(&mut expected, client, name);
    check(&edited, client.format, &expected)?;
    Ok(edited_text(format!("{mark}{edited}"), EntryChange::Removed))
}

/// An entry to remove.
#[derive(Clone, Copy, Debug)]
pub struct EntryRemoval<'a> {
    /// The name of the entry.
    pub name: &'a str,
    /// The addresses and programs that are riglm.
    pub riglm: &'a RiglmIdentity,
    /// The record of the insertion, if there is one.
    pub insertion: Option<&'a InsertionRecord>,
}

/// Removes servers from the text of a file, whatever they are. Unknown names are ignored.
///
/// # Errors
///
/// Returns [`EditError`] if the file is malformed, or if the text cannot be changed safely.
pub(super) fn remove_servers(
    text: &str,
    client: &Client,
    names: &[String],
) -> Result<String, EditError> {
    let body = document::without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let mut expected = document::read(body, client.format)?.value;
    let mut edited = body.to_owned();
    for name in names {
        if value_of(&expected, client, name).is_none() {
            continue;
        }
        let place = place(client, name);
        edited = match client.format {
            DocumentFormat::Json | DocumentFormat::JsonWithComments => {
                json::remove(&edited, place.container, None, |item| {
                    is_entry(item, client.map.shape, name)
                })?
            }
            DocumentFormat::Toml => toml::remove(&edited, place, None)?,
            DocumentFormat::Yaml => yaml::remove(&edited, place, None)?,
        };
        remove_value(&mut expected, client, name);
    }
    check(&edited, client.format, &expected)?;
    Ok(format!("{mark}{edited}"))
}

/// Returns the entries of a file that are riglm itself, whatever their names are.
///
/// # Errors
///
/// Returns [`DocumentError`] if the text is malformed.
pub fn own_entries(
    text: &str,
    client: &Client,
    riglm: &RiglmIdentity,
) -> Result<Vec<ConfiguredServer>, DocumentError> {
    let context = ReadContext { home: "", riglm };
    let mut servers = read_servers(text, client, context)?.servers;
    servers.retain(|server| server.project.is_none() && server.nature == ServerNature::Riglm);
    Ok(servers)
}

/// The maximum length of the name of an entry.
const MAX_NAME: usize = 64;

/// Returns whether all clients take a name.
fn is_valid_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_fine)
}

/// Returns whether a server reaches the same endpoint as an entry.
fn reaches(server: &ConfiguredServer, entry: &InstallEntry) -> bool {
    match &server.transport {
        ConfiguredTransport::Url(url) => {
            let own = RiglmIdentity {
                addresses: vec![url.url.clone()],
                programs: Vec::new(),
            };
            // Both are under each other, so they are equal.
            let other = RiglmIdentity {
                addresses: vec![entry.address.clone()],
                programs: Vec::new(),
            };
            own.owns_url(&entry.address) && other.owns_url(&url.url)
        }
        ConfiguredTransport::Command(command) => command.args == entry.arguments,
        ConfiguredTransport::Unusable(_) => false,
    }
}

fn place<'a>(client: &Client, name: &'a str) -> EntryPlace<'a> {
    EntryPlace {
        container: client.map.key,
        shape: client.map.shape,
        name,
    }
}

fn item_place(place: EntryPlace<'_>) -> ItemPlace<'_> {
    ItemPlace {
        container: place.container,
        key: (place.shape == MapShape::Map).then_some(place.name),
    }
}

fn insert(
    text: &str,
    client: &Client,
    place: EntryPlace<'_>,
    value: &Value,
) -> Result<(String, ContainerBefore), EditError> {
    match client.format {
        DocumentFormat::Json | DocumentFormat::JsonWithComments => {
            json::insert(text, item_place(place), NewItem::Value(value))
        }
        DocumentFormat::Toml => toml::insert(text, place, value),
        DocumentFormat::Yaml => yaml::insert(text, place, value),
    }
}

fn replace(
    text: &str,
    client: &Client,
    place: EntryPlace<'_>,
    value: &Value,
) -> Result<String, EditError> {
    match client.format {
        DocumentFormat::Json | DocumentFormat::JsonWithComments => {
            let root = json_document::scan(text)?;
            let container = root.as_ref().and_then(|root| root.member(place.container));
            let items = container.map_or(&[][..], |container| container.value.items());
            let is_it = |item: &&json_document::Item| is_entry(item, place.shape, place.name);
            Ok(match items.iter().rfind(is_it) {
                Some(item) => json::replace(text, item, value),
                None => text.to_owned(),
            })
        }
        DocumentFormat::Toml => toml::replace(text, place, value),
        DocumentFormat::Yaml => yaml::replace(text, place, value),
    }
}

fn is_entry(item: &json_document::Item, shape: MapShape, name: &str) -> bool {
    match shape {
        MapShape::Map => item.key == name,
        MapShape::List => {
            let found = item.value.member("name").map(|it| it.value.to_value());
            found.is_some_and(|found| found == name)
        }
    }
}
