//! Text of new items, in the layout of the document.

use serde_json::Value;

/// A place for an item: a member `key` of the object or list under `container`.
#[derive(Clone, Copy, Debug)]
pub(in crate::configuration::editing) struct ItemPlace<'a> {
    /// The key of the collection at the top of the document.
    pub(in crate::configuration::editing) container: &'a str,
    /// The key of the member; none for an element of a list.
    pub(in crate::configuration::editing) key: Option<&'a str>,
}

/// An item that is added.
#[derive(Clone, Copy, Debug)]
pub(in crate::configuration::editing) enum NewItem<'a> {
    /// A value, in the layout of the document.
    Value(&'a Value),
    /// The very text of an item of another version of the document, with its key if it has one.
    Text(&'a str),
}

/// The layout of text that is added.
#[derive(Clone, Copy, Debug)]
pub(in crate::configuration::editing) enum Layout<'a> {
    /// One member a line.
    Lines {
        newline: &'a str,
        unit: &'a str,
        indent: &'a str,
    },
    /// All in one line, with spaces.
    Line,
    /// All in one line, without spaces.
    Tight,
}

/// A new collection with one item.
pub(in crate::configuration::editing) struct Collection<'a> {
    pub(super) place: ItemPlace<'a>,
    pub(super) item: NewItem<'a>,
}

impl Collection<'_> {
    /// Returns the collection as a member of the document.
    pub(super) fn member(&self, layout: Layout<'_>) -> String {
        let separator = if matches!(layout, Layout::Tight) {
            ":"
        } else {
            ": "
        };
        let key = Value::from(self.place.container);
        format!("{key}{separator}{}", self.value(layout))
    }

    /// Returns the collection.
    pub(super) fn value(&self, layout: Layout<'_>) -> String {
        let (open, close) = match self.place.key {
            Some(_) => ("{", "}"),
            None => ("[", "]"),
        };
        match layout {
            Layout::Lines {
                newline,
                unit,
                indent,
            } => {
                let inner = format!("{indent}{unit}");
                let layout = Layout::Lines {
                    newline,
                    unit,
                    indent: &inner,
                };
                let item = item_text(self.place.key, self.item, layout);
                format!("{open}{newline}{inner}{item}{newline}{indent}{close}")
            }
            layout => {
                let item = item_text(self.place.key, self.item, layout);
                format!("{open}{item}{close}")
            }
        }
    }
}

/// Returns a member or an element.
pub(super) fn item_text(key: Option<&str>, item: NewItem<'_>, layout: Layout<'_>) -> String {
    let value = match item {
        NewItem::Value(value) => render(value, layout),
        NewItem::Text(text) => return text.to_owned(),
    };
    match key {
        Some(key) if matches!(layout, Layout::Tight) => format!("{}:{value}", Value::from(key)),
        Some(key) => format!("{}: {value}", Value::from(key)),
        None => value,
    }
}

/// Returns a value as text. Lists of plain values stay in one line.
pub(super) fn render(value: &Value, layout: Layout<'_>) -> String {
    let (separator, colon) = match layout {
        Layout::Tight => (",", ":"),
        _ => (", ", ": "),
    };
    match (value, layout) {
        (
            Value::Object(members),
            Layout::Lines {
                newline,
                unit,
                indent,
            },
        ) if !members.is_empty() => {
            let inner = format!("{indent}{unit}");
            let layout = Layout::Lines {
                newline,
                unit,
                indent: &inner,
            };
            let members = members.iter().map(|(key, value)| {
                let key = Value::from(key.as_str());
                format!("{newline}{inner}{key}: {}", render(value, layout))
            });
            let members: Vec<String> = members.collect();
            format!("{{{}{newline}{indent}}}", members.join(","))
        }
        (Value::Object(members), _) => {
            let members = members.iter().map(|(key, value)| {
                let key = Value::from(key.as_str());
                format!("{key}{colon}{}", render(value, layout))
            });
            let members: Vec<String> = members.collect();
            format!("{{{}}}", members.join(separator))
        }
        (Value::Array(values), _) => {
            let inner = match layout {
                Layout::Tight => Layout::Tight,
                _ => Layout::Line,
            };
            let values = values.iter().map(|value| render(value, inner));
            let values: Vec<String> = values.collect();
            format!("[{}]", values.join(separator))
        }
        (value, _) => value.to_string(),
    }
}
