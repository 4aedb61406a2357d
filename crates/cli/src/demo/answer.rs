//! The answers of the servers, as data: what is said, and what becomes of the items in memory.

use std::collections::BTreeMap;

use jiff::civil::Date;
use rmcp::model::JsonObject;
use serde::Deserialize;
use serde_json::Value;

use super::template::Scope;

/// The most items of a collection.
const MAX_ITEMS: usize = 1_000;

/// The text of a call that failed, for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct CallFailure(pub(super) String);

/// The items that a server has in memory, for example notes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Collection {
    /// The word for one item.
    noun: String,
    /// The field that names an item: a number from 1, if the call that adds it does not set it.
    key: String,
    /// A template; lists are in the order of its texts.
    order: String,
    /// The texts that come first in this order.
    first: Vec<String>,
    /// The template of an item in a list.
    line: String,
    /// The fields of a new item.
    blank: JsonObject,
    items: Vec<JsonObject>,
    /// The number of items that were removed.
    n_removed: usize,
}

/// The answer to calls with some arguments.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Case {
    /// The arguments of the calls; there may be others.
    pub(super) when: JsonObject,
    action: Action,
    /// The argument with the key of the item, if it has not the name of the key.
    item: Option<String>,
    /// The templates of fields. A template without its value changes nothing. Values are added to a
    /// field that is a list.
    set: BTreeMap<String, String>,
    /// Tests of the items of a list, all of which hold: a template of the item, and one of the
    /// wanted text. A test without a wanted text holds.
    filter: Vec<(String, Test, String)>,
    /// The template of an item in a list, if not that of the collection.
    line: Option<String>,
    /// The template of the answer. That to a list has its `.lines` and their number `.n`.
    answer: String,
    /// The text of a call that fails, in place of all else.
    failure: Option<String>,
}

/// The effect of a call on the items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Nothing is read or changed.
    #[default]
    Say,
    /// Items are listed.
    List,
    /// An item is read.
    Read,
    /// An item comes, as a copy of another one if the case names one.
    Add,
    /// An item changes.
    Change,
    /// An item changes, or comes if there is none with the key.
    Write,
    /// An item goes.
    Remove,
}

/// The comparison of a text with a wanted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Test {
    /// It is the text, or an element of a list.
    Has,
    Contains,
    /// Each word is in the text.
    Words,
    /// It is the folder of the path, or one above it.
    Begins,
    /// The text is not before it.
    From,
    /// The text is not after it.
    Until,
    /// Both are dates of one week.
    Week,
}

impl Test {
    fn holds(self, text: &str, wanted: &str) -> bool {
        let (lower, query) = (text.to_lowercase(), wanted.to_lowercase());
        let week = |date: &str| date.parse().map(|date: Date| date.iso_week_date());
        match self {
            Self::Has => lower.split(", ").any(|one| one == query),
            Self::Contains => lower.contains(&query),
            Self::Words => query.split_whitespace().all(|word| lower.contains(word)),
            Self::Begins => text.starts_with(wanted.trim_matches(['.', '/'])),
            Self::From => text >= wanted,
            Self::Until => text <= wanted,
            Self::Week => match (week(text), week(wanted)) {
                (Ok(one), Ok(other)) => (one.year(), one.week()) == (other.year(), other.week()),
                _ => false,
            },
        }
    }
}

impl Case {
    /// Makes a call with checked arguments.
    pub(super) fn answer(
        &self,
        collection: &mut Collection,
        arguments: &JsonObject,
    ) -> Result<String, CallFailure> {
        if let Some(failure) = &self.failure {
            return Err(CallFailure(failure.clone()));
        }
        let item = match self.action {
            Action::Say => JsonObject::new(),
            Action::List => self.list(collection, arguments),
            _ => self.use_item(collection, arguments)?,
        };
        let answer = Scope::new(arguments, &item).fill(&self.answer);
        Ok(answer.unwrap_or_default())
    }

    fn list(&self, collection: &Collection, arguments: &JsonObject) -> JsonObject {
        let is_listed = |item: &&JsonObject| {
            self.filter.iter().all(|(text, test, wanted)| {
                let wanted = Scope::new(arguments, item).fill(wanted);
                let text = Scope::new(arguments, item).fill(text).unwrap_or_default();
                wanted.is_none_or(|wanted| test.holds(&text, &wanted))
            })
        };
        let mut found: Vec<&JsonObject> = collection.items.iter().filter(is_listed).collect();
        found.sort_by_key(|item| {
            let text = Scope::new(arguments, item)
                .fill(&collection.order)
                .unwrap_or_default();
            let first = collection.first.iter().position(|one| *one == text);
            (first.unwrap_or(usize::MAX), text)
        });
        let line = self.line.as_ref().unwrap_or(&collection.line);
        let lines = found
            .iter()
            .filter_map(|item| Scope::new(arguments, item).fill(line));
        let mut lines: Vec<String> = lines.collect();
        let n = lines.len();
        if lines.is_empty() {
            lines.push(format!("no {}s", collection.noun));
        }
        let list = [("n", Value::from(n)), ("lines", lines.join("\n").into())];
        list.map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }

    /// Reads, adds, changes or removes an item, and returns it.
    fn use_item(
        &self,
        collection: &mut Collection,
        arguments: &JsonObject,
    ) -> Result<JsonObject, CallFailure> {
        let (noun, key) = (&collection.noun, collection.key.as_str());
        let items = &mut collection.items;
        let argument = self.item.as_deref().unwrap_or(key);
        let wanted = arguments.get(argument);
        let found = items.iter().position(|item| item.get(key) == wanted);
        let is_new = match self.action {
            Action::Add => true,
            Action::Write => found.is_none(),
            _ => false,
        };
        let mut item = match found {
            Some(at) if self.action == Action::Remove => {
                collection.n_removed += 1;
                return Ok(items.remove(at));
            }
            Some(at) => items[at].clone(),
            None if is_new && self.item.is_none() => {
                let mut blank = collection.blank.clone();
                blank.insert(key.into(), (items.len() + collection.n_removed + 1).into());
                blank
            }
            None => {
                let wanted = wanted.cloned().unwrap_or_default();
                let failure = format!("argument {argument}: there is no {noun} {wanted}");
                return Err(CallFailure(failure));
            }
        };
        self.set_fields(&mut item, arguments);
        let same = items.iter().position(|one| one.get(key) == item.get(key));
        let place = if is_new { None } else { found };
        if same.is_some() && same != place {
            let failure = format!("there is a {noun} with this {key} already");
            return Err(CallFailure(failure));
        }
        match place {
            Some(at) => items[at].clone_from(&item),
            None if items.len() == MAX_ITEMS => {
                return Err(CallFailure(format!("limit of {MAX_ITEMS} {noun}s reached")));
            }
            None => items.push(item.clone()),
        }
        Ok(item)
    }

    fn set_fields(&self, item: &mut JsonObject, arguments: &JsonObject) {
        for (field, template) in &self.set {
            let scope = Scope::new(arguments, item);
            let Some(text) = scope.fill(template) else {
                continue;
            };
            match (item.get_mut(field), arguments.get(field)) {
                (Some(Value::Array(list)), Some(Value::Array(new))) => {
                    for one in new {
                        if !list.contains(one) {
                            list.push(one.clone());
                        }
                    }
                }
                (Some(Value::Array(list)), _) => list.push(text.into()),
                _ => {
                    item.insert(field.clone(), text.into());
                }
            }
        }
    }
}
