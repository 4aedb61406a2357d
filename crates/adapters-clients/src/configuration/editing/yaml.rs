//! Entries of YAML documents, added and removed by whole lines.
//!
//! No other line changes, so comments, anchors and styles stay. The caller checks by parsing that
//! everything else is equal.

mod restoring;

use serde_json::Value;

pub(super) use self::restoring::restore;
use super::text::newline;
use super::toml::EntryPlace;
use super::{ContainerBefore, EditError};
use crate::configuration::client::MapShape;
use crate::configuration::document::yaml::{Node, NodeKind, scan};

/// The lines of a text, each with its line end.
struct Lines<'a> {
    lines: Vec<&'a str>,
    newline: &'static str,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            lines: text.split_inclusive('\n').collect(),
            newline: newline(text),
        }
    }

    /// Returns the indentation of a line in characters; `None` for a blank line.
    fn indent(&self, number: usize) -> Option<usize> {
        let line = self.lines.get(number)?;
        let rest = line.trim_start_matches(' ');
        (!rest.trim().is_empty()).then(|| line.len() - rest.len())
    }

    /// Returns the column of the dash that a line begins with.
    fn dash(&self, number: usize) -> Option<usize> {
        let indent = self.indent(number)?;
        self.lines[number][indent..]
            .starts_with("- ")
            .then_some(indent)
    }

    fn is_comment(&self, number: usize) -> bool {
        let line = self.lines.get(number);
        line.is_some_and(|line| line.trim_start().starts_with('#'))
    }

    /// Returns the number of the line after a block whose first line has an indentation.
    fn block_end(&self, first: usize, indent: usize) -> usize {
        let mut end = first + 1;
        for number in first + 1..self.lines.len() {
            match self.indent(number) {
                None => {}
                Some(inner) if inner > indent => end = number + 1,
                // A comment says nothing about the end.
                Some(_) if self.is_comment(number) => {}
                Some(_) => break,
            }
        }
        end
    }

    /// Returns the text with lines replaced.
    fn replace(&self, range: std::ops::Range<usize>, lines: &[String]) -> String {
        let mut text: String = self.lines[..range.start].concat();
        let rest = &self.lines[range.end..];
        // The missing end of the last line is mirrored.
        let is_open = rest.is_empty() && self.lines.last().is_some_and(|it| !it.ends_with('\n'));
        if is_open && lines.is_empty() && text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        } else if is_open && !text.is_empty() && !text.ends_with('\n') {
            text.push_str(self.newline);
        }
        text.push_str(&lines.join(self.newline));
        if !is_open && !lines.is_empty() {
            text.push_str(self.newline);
        }
        text + &rest.concat()
    }
}

/// Adds an entry, and returns the new text and the state of the collection before.
pub(super) fn insert(
    text: &str,
    place: EntryPlace<'_>,
    value: &Value,
) -> Result<(String, ContainerBefore), EditError> {
    insert_lines(text, place, &|column| entry_lines(place, value, column))
}

/// Adds the lines of an entry, which depend on its column.
fn insert_lines(
    text: &str,
    place: EntryPlace<'_>,
    lines_at: &dyn Fn(usize) -> Vec<String>,
) -> Result<(String, ContainerBefore), EditError> {
    let lines = Lines::of(text);
    let root = scan(text)?;
    let is_braces = is_braces(text);
    let Some(root) = root.filter(|root| !is_null(root) && !is_braces) else {
        let mut block = vec![format!("{}:", key_text(place.container))];
        block.extend(lines_at(2));
        let end = lines.lines.len();
        let start = if is_braces { 0 } else { end };
        let edited = lines.replace(start..end, &block);
        let before = ContainerBefore::Blank {
            text: text.to_owned(),
        };
        return Ok((edited, before));
    };
    if !matches!(root.kind, NodeKind::Mapping(_)) {
        return Err(EditError::NoObject);
    }
    let layout = || EditError::Layout {
        key: place.container.to_owned(),
    };
    if text.trim_start().starts_with('{') || text.lines().any(|line| line.trim_end() == "...") {
        return Err(layout());
    }
    let Some(container) = root.entry(place.container) else {
        let mut block = vec![format!("{}:", key_text(place.container))];
        block.extend(lines_at(2));
        let end = lines.lines.len();
        return Ok((lines.replace(end..end, &block), ContainerBefore::Absent));
    };
    let (key_line, key_column) = (container.key.line, container.key.column);
    if is_empty(&container.value) {
        // `key: {}` and `key:` become a block, and a comment in the line stays.
        let line = lines.lines.get(key_line).ok_or_else(layout)?;
        let bare = line.trim_end_matches(['\r', '\n']);
        let opened = opened_line(bare).ok_or_else(layout)?;
        let mut block = vec![opened];
        block.extend(lines_at(key_column + 2));
        let before = ContainerBefore::Empty {
            text: bare.to_owned(),
        };
        return Ok((lines.replace(key_line..key_line + 1, &block), before));
    }
    let children = children(&container.value, place, &lines)?;
    let first = children.first().ok_or_else(layout)?;
    if first.line <= key_line || lines.indent(first.line) != Some(first.column) {
        return Err(layout());
    }
    let last = children.last().ok_or_else(layout)?;
    let end = lines.block_end(last.line, last.column);
    // Comments that are indented like the entries belong to them.
    let end = (end..lines.lines.len())
        .take_while(|number| {
            let indent = lines.indent(*number);
            indent.is_none() || (lines.is_comment(*number) && indent >= Some(first.column))
        })
        .filter(|number| lines.is_comment(*number) && first.column > key_column)
        .last()
        .map_or(end, |number| number + 1);
    let block = lines_at(first.column);
    Ok((lines.replace(end..end, &block), ContainerBefore::Filled))
}

/// Replaces an entry at its place.
pub(super) fn replace(
    text: &str,
    place: EntryPlace<'_>,
    value: &Value,
) -> Result<String, EditError> {
    let lines = Lines::of(text);
    let Some(found) = find(text, &lines, place)? else {
        return Ok(text.to_owned());
    };
    let block = entry_lines(place, value, found.column);
    Ok(lines.replace(found.range, &block))
}

/// Removes an entry. The collection is left as it was before, if that is known.
pub(super) fn remove(
    text: &str,
    place: EntryPlace<'_>,
    before: Option<&ContainerBefore>,
) -> Result<String, EditError> {
    let lines = Lines::of(text);
    let Some(found) = find(text, &lines, place)? else {
        return Ok(text.to_owned());
    };
    if !found.is_alone {
        return Ok(lines.replace(found.range, &[]));
    }
    let collection = found.key_line..found.range.end;
    let between: Vec<String> = (lines.lines[found.key_line + 1..found.range.start].iter())
        .map(|line| line.trim_end_matches(['\r', '\n']).to_owned())
        .collect();
    // Comments that somebody has written above the entry stay, and so does the key.
    let before = before.filter(|_| between.iter().all(|line| line.trim().is_empty()));
    match before {
        Some(ContainerBefore::Blank { text: whole }) => {
            let rest = lines.replace(collection, &[]);
            let is_restored = rest.trim() == whole.trim() || (rest.is_empty() && is_braces(whole));
            Ok(if is_restored { whole.clone() } else { rest })
        }
        Some(ContainerBefore::Absent) => Ok(lines.replace(collection, &[])),
        Some(ContainerBefore::Empty { text: line }) => {
            Ok(lines.replace(collection, std::slice::from_ref(line)))
        }
        _ => {
            let line = lines.lines[found.key_line].trim_end();
            let empty = match place.shape {
                MapShape::Map => " {}",
                MapShape::List => " []",
            };
            // A comment after the key stays.
            let line = match line.split_once(": ").or_else(|| line.split_once(":\t")) {
                Some((key, comment)) => format!("{key}:{empty} {comment}"),
                None => format!("{line}{empty}"),
            };
            let mut rest = vec![line];
            rest.extend(between);
            Ok(lines.replace(collection, &rest))
        }
    }
}

/// An entry in the lines of a text.
struct EntryLines {
    range: std::ops::Range<usize>,
    column: usize,
    key_line: usize,
    /// Whether the collection has no other entry.
    is_alone: bool,
}

fn find(
    text: &str,
    lines: &Lines<'_>,
    place: EntryPlace<'_>,
) -> Result<Option<EntryLines>, EditError> {
    let Some(root) = scan(text)? else {
        return Ok(None);
    };
    let Some(container) = root.entry(place.container) else {
        return Ok(None);
    };
    let children = children(&container.value, place, lines)?;
    let is_it = |child: &Child| child.name == place.name;
    let Some(child) = children.iter().rfind(|child| is_it(child)) else {
        return Ok(None);
    };
    if child.line <= container.key.line || lines.indent(child.line) != Some(child.column) {
        return Err(EditError::Layout {
            key: place.container.to_owned(),
        });
    }
    Ok(Some(EntryLines {
        range: child.line..lines.block_end(child.line, child.column),
        column: child.column,
        key_line: container.key.line,
        is_alone: children.len() == 1,
    }))
}

/// An entry of a collection.
struct Child {
    name: String,
    line: usize,
    column: usize,
}

fn children(
    value: &Node,
    place: EntryPlace<'_>,
    lines: &Lines<'_>,
) -> Result<Vec<Child>, EditError> {
    match (&value.kind, place.shape) {
        (NodeKind::Mapping(entries), MapShape::Map) => {
            let children = entries.iter().map(|entry| Child {
                name: entry.key.text(),
                line: entry.key.line,
                column: entry.key.column,
            });
            Ok(children.collect())
        }
        (NodeKind::Sequence(nodes), MapShape::List) => {
            let children = nodes.iter().map(|node| Child {
                name: node
                    .entry("name")
                    .map(|it| it.value.text())
                    .unwrap_or_default(),
                line: node.line,
                // The dash; the node itself begins after it.
                column: lines.dash(node.line).unwrap_or(usize::MAX),
            });
            Ok(children.collect())
        }
        _ if is_empty(value) => Ok(Vec::new()),
        _ => Err(EditError::WrongKind {
            key: place.container.to_owned(),
            expected: match place.shape {
                MapShape::Map => "a mapping",
                MapShape::List => "a list",
            },
        }),
    }
}

/// Returns whether a text is an empty mapping and nothing else.
fn is_braces(text: &str) -> bool {
    text.trim() == "{}"
}

fn is_null(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Scalar(Value::Null))
}

fn is_empty(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Scalar(value) => value.is_null(),
        NodeKind::Sequence(nodes) => nodes.is_empty(),
        NodeKind::Mapping(entries) => entries.is_empty(),
    }
}

/// Returns a line `key: {}` or `key:` without the empty value.
fn opened_line(line: &str) -> Option<String> {
    let colon = line.find(':')? + 1;
    let (key, rest) = line.split_at(colon);
    let value = rest.trim_start();
    let comment = ["{}", "[]", "null", "~", ""]
        .iter()
        .find_map(|empty| value.strip_prefix(empty))?;
    let comment = comment.trim();
    if comment.is_empty() {
        Some(key.to_owned())
    } else if comment.starts_with('#') {
        Some(format!("{key} {comment}"))
    } else {
        None
    }
}

/// Returns the lines of an entry.
fn entry_lines(place: EntryPlace<'_>, value: &Value, column: usize) -> Vec<String> {
    let indent = " ".repeat(column);
    let members = value.as_object().into_iter().flatten();
    let mut lines: Vec<String> = Vec::new();
    match place.shape {
        MapShape::Map => {
            lines.push(format!("{indent}{}:", key_text(place.name)));
            for (key, value) in members {
                push_member(&mut lines, key, value, column + 2);
            }
        }
        MapShape::List => {
            for (key, value) in members {
                push_member(&mut lines, key, value, column + 2);
            }
            if let Some(first) = lines.first_mut() {
                first.replace_range(column..=column, "-");
            }
        }
    }
    lines
}

fn push_member(lines: &mut Vec<String>, key: &str, value: &Value, column: usize) {
    let indent = " ".repeat(column);
    let key = key_text(key);
    match value {
        Value::Object(members) if !members.is_empty() => {
            lines.push(format!("{indent}{key}:"));
            for (key, value) in members {
                push_member(lines, key, value, column + 2);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            lines.push(format!("{indent}{key}:"));
            for value in values {
                lines.push(format!("{indent}- {}", scalar_text(value)));
            }
        }
        value => lines.push(format!("{indent}{key}: {}", scalar_text(value))),
    }
}

fn key_text(key: &str) -> String {
    scalar_text(&Value::from(key))
}

/// Returns a scalar; a text that could be read as something else is in quotes.
fn scalar_text(value: &Value) -> String {
    let Value::String(text) = value else {
        return value.to_string();
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.' | ':');
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_word = words.contains(&text.to_ascii_lowercase().as_str());
    if starts_plain && text.chars().all(is_plain) && !text.ends_with(':') && !is_word {
        text.clone()
    } else {
        // JSON strings are YAML strings.
        value.to_string()
    }
}
