//! YAML documents as values, with the lines and columns of their nodes.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use yaml_rust2::Yaml;
use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};

use super::{DocumentError, Position};

/// The maximum depth of nested values.
const MAX_DEPTH: usize = 128;
/// The maximum number of values, with those that aliases repeat.
const MAX_NODES: usize = 500_000;

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The line of the first character, from 0.
    pub(crate) line: usize,
    /// The column of the first character, from 0, in characters.
    pub(crate) column: usize,
    pub(crate) kind: NodeKind,
}

/// The kind of a value.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Scalar(Value),
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// An entry of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Node,
    pub(crate) value: Node,
}

impl Node {
    /// Returns the entry for a key, if this is a mapping.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        let NodeKind::Mapping(entries) = &self.kind else {
            return None;
        };
        entries.iter().rfind(|entry| entry.key.text() == key)
    }

    /// Returns the text of a scalar; empty for anything else.
    pub(crate) fn text(&self) -> String {
        match &self.kind {
            NodeKind::Scalar(Value::String(text)) => text.clone(),
            NodeKind::Scalar(value) => value.to_string(),
            _ => String::new(),
        }
    }

    /// Returns the value without places.
    pub(crate) fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar(value) => value.clone(),
            NodeKind::Sequence(nodes) => Value::Array(nodes.iter().map(Self::to_value).collect()),
            NodeKind::Mapping(entries) => {
                let members = entries
                    .iter()
                    .map(|entry| (entry.key.text(), entry.value.to_value()));
                Value::Object(members.collect::<Map<String, Value>>())
            }
        }
    }

    fn n_nodes(&self) -> usize {
        1 + match &self.kind {
            NodeKind::Scalar(_) => 0,
            NodeKind::Sequence(nodes) => nodes.iter().map(Self::n_nodes).sum(),
            NodeKind::Mapping(entries) => entries
                .iter()
                .map(|entry| entry.key.n_nodes() + entry.value.n_nodes())
                .sum(),
        }
    }
}

/// A collection that is being read.
struct Collection {
    node: Node,
    anchor: usize,
    /// The key that waits for its value.
    key: Option<Node>,
}

/// Reads a document. A text without one has no value.
///
/// # Errors
///
/// Returns [`DocumentError`] for malformed text, for several documents, and for too many values.
pub(crate) fn scan(text: &str) -> Result<Option<Node>, DocumentError> {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::default();
    let mut n_documents = 0_usize;
    loop {
        let (event, marker) = parser.next_token().map_err(|error| DocumentError::Syntax {
            position: position(error.marker()),
            problem: "it is not valid YAML",
        })?;
        match event {
            Event::StreamEnd => return Ok(builder.root),
            Event::DocumentStart => n_documents += 1,
            event => builder.take(event, marker)?,
        }
        if n_documents > 1 {
            return Err(DocumentError::SeveralDocuments);
        }
    }
}

fn position(marker: &Marker) -> Position {
    Position {
        line: marker.line(),
        column: marker.col() + 1,
    }
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    stack: Vec<Collection>,
    anchors: BTreeMap<usize, Node>,
    n_nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event, marker: Marker) -> Result<(), DocumentError> {
        let node = |kind| Node {
            line: marker.line().saturating_sub(1),
            column: marker.col(),
            kind,
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                // A tag such as `!!str` says that the text is no number.
                let value = if style == TScalarStyle::Plain && tag.is_none() {
                    plain_value(text)
                } else {
                    Value::String(text)
                };
                self.add(node(NodeKind::Scalar(value)), anchor)?;
            }
            Event::Alias(anchor) => {
                let unknown = || DocumentError::Syntax {
                    position: position(&marker),
                    problem: "an alias without an anchor",
                };
                let target = self.anchors.get(&anchor).ok_or_else(unknown)?;
                self.n_nodes += target.n_nodes();
                if self.n_nodes > MAX_NODES {
                    return Err(DocumentError::TooManyValues);
                }
                let alias = node(target.kind.clone());
                self.add(alias, 0)?;
            }
            Event::SequenceStart(anchor, _) => {
                self.open(node(NodeKind::Sequence(Vec::new())), anchor, &marker)?;
            }
            Event::MappingStart(anchor, _) => {
                self.open(node(NodeKind::Mapping(Vec::new())), anchor, &marker)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(collection) = self.stack.pop() {
                    self.add(collection.node, collection.anchor)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, node: Node, anchor: usize, marker: &Marker) -> Result<(), DocumentError> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(DocumentError::Syntax {
                position: position(marker),
                problem: "values are nested too deeply",
            });
        }
        self.stack.push(Collection {
            node,
            anchor,
            key: None,
        });
        Ok(())
    }

    fn add(&mut self, node: Node, anchor: usize) -> Result<(), DocumentError> {
        self.n_nodes += 1;
        if self.n_nodes > MAX_NODES {
            return Err(DocumentError::TooManyValues);
        }
        if anchor > 0 {
            self.n_nodes += node.n_nodes();
            self.anchors.insert(anchor, node.clone());
        }
        let Some(collection) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut collection.node.kind {
            NodeKind::Sequence(nodes) => nodes.push(node),
            NodeKind::Mapping(entries) => match collection.key.take() {
                None => collection.key = Some(node),
                Some(key) => entries.push(Entry { key, value: node }),
            },
            NodeKind::Scalar(_) => {}
        }
        Ok(())
    }
}

fn plain_value(text: String) -> Value {
    match Yaml::from_str(&text) {
        Yaml::Null | Yaml::BadValue => Value::Null,
        Yaml::Boolean(value) => Value::Bool(value),
        Yaml::Integer(number) => Value::from(number),
        Yaml::Real(number) => number
            .parse()
            .ok()
            .and_then(Number::from_f64)
            .map_or(Value::String(text), Value::Number),
        _ => Value::String(text),
    }
}
