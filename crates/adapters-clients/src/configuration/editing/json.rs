//! Entries of JSON documents, changed in the text.
//!
//! Everything outside the entry keeps its bytes: comments, order, indentation, line ends and
//! commas.

mod rendering;

use serde_json::Value;

use self::rendering::{Collection, Layout, item_text, render};
pub(super) use self::rendering::{ItemPlace, NewItem};
use super::text::{Splice, indentation, is_first_in_line, newline, splice};
use super::{ContainerBefore, EditError};
use crate::configuration::document::json::{Item, Node, NodeKind, scan};

/// Adds an item, and returns the new text and the state of the collection before.
pub(super) fn insert(
    text: &str,
    place: ItemPlace<'_>,
    item: NewItem<'_>,
) -> Result<(String, ContainerBefore), EditError> {
    let unit = indent_unit(text);
    let newline = newline(text);
    let Some(root) = scan(text)? else {
        return Ok(insert_into_blank(text, place, item));
    };
    if !root.is_object() {
        return Err(EditError::NoObject);
    }
    let container = root.member(place.container).map(|item| &item.value);
    let Some(container) = container else {
        let is_empty = root.items().is_empty();
        let inner = Collection { place, item };
        let member = |layout: Layout<'_>| inner.member(layout);
        let before = if is_empty {
            ContainerBefore::AbsentInEmpty {
                text: text[root.span.clone()].to_owned(),
            }
        } else {
            ContainerBefore::Absent
        };
        let edited = add_item(
            text,
            &root,
            &Style {
                newline,
                unit: &unit,
            },
            &member,
        );
        return Ok((edited, before));
    };
    let expected_object = place.key.is_some();
    let style = Style {
        newline,
        unit: &unit,
    };
    match &container.kind {
        NodeKind::Null => {
            let whole = text[container.span.clone()].to_owned();
            let inner = Collection { place, item };
            let indent = indentation(text, container.span.start);
            let layout = if text.trim_end().contains('\n') {
                Layout::Lines {
                    newline,
                    unit: &unit,
                    indent,
                }
            } else {
                Layout::Line
            };
            let splices = vec![Splice {
                range: container.span.clone(),
                text: inner.value(layout),
            }];
            Ok((
                splice(text, splices),
                ContainerBefore::Empty { text: whole },
            ))
        }
        NodeKind::Object(items) | NodeKind::Array(items)
            if container.is_object() == expected_object =>
        {
            let before = if items.is_empty() {
                ContainerBefore::Empty {
                    text: text[container.span.clone()].to_owned(),
                }
            } else {
                ContainerBefore::Filled
            };
            let item_in = |layout: Layout<'_>| item_text(place.key, item, layout);
            Ok((add_item(text, container, &style, &item_in), before))
        }
        _ => Err(EditError::WrongKind {
            key: place.container.to_owned(),
            expected: if expected_object {
                "an object"
            } else {
                "a list"
            },
        }),
    }
}

/// Adds an item of another version of the text, with its very bytes.
pub(super) fn restore(
    text: &str,
    source: &str,
    place: ItemPlace<'_>,
    is_it: impl Fn(&Item) -> bool,
) -> Result<String, EditError> {
    let root = scan(source)?;
    let container = root.as_ref().and_then(|root| root.member(place.container));
    let items = container.map_or(&[][..], |container| container.value.items());
    let Some(item) = items.iter().rfind(|item| is_it(item)) else {
        return Ok(text.to_owned());
    };
    let bytes = &source[item.start..item.value.span.end];
    let (edited, _) = insert(text, place, NewItem::Text(bytes))?;
    Ok(edited)
}

/// Replaces the value of an item.
pub(super) fn replace(text: &str, item: &Item, value: &Value) -> String {
    let unit = indent_unit(text);
    let layout = if is_first_in_line(text, item.start) {
        Layout::Lines {
            newline: newline(text),
            unit: &unit,
            indent: indentation(text, item.start),
        }
    } else {
        Layout::Line
    };
    let splices = vec![Splice {
        range: item.value.span.clone(),
        text: render(value, layout),
    }];
    splice(text, splices)
}

/// Removes an item. The collection is left as it was before, if that is known.
pub(super) fn remove(
    text: &str,
    container_key: &str,
    before: Option<&ContainerBefore>,
    is_it: impl Fn(&Item) -> bool,
) -> Result<String, EditError> {
    let Some(root) = scan(text)? else {
        return Ok(text.to_owned());
    };
    let Some(container) = root.member(container_key) else {
        return Ok(text.to_owned());
    };
    let Some(index) = container.value.items().iter().rposition(is_it) else {
        return Ok(text.to_owned());
    };
    let removal = removal(text, &container.value, index);
    // The rest between the brackets decides whether the collection was only for the entry.
    let rest = interior_without(text, &container.value, &removal);
    let rest = rest.trim();
    if let Some(ContainerBefore::Empty { text: whole }) = before
        && is_same_interior(rest, whole)
    {
        let range = container.value.span.clone();
        let text_before = whole.clone();
        return Ok(splice(
            text,
            vec![Splice {
                range,
                text: text_before,
            }],
        ));
    }
    if !rest.is_empty() {
        return Ok(splice(text, removal));
    }
    let was_absent = !matches!(
        before,
        None | Some(ContainerBefore::Filled | ContainerBefore::Empty { .. })
    );
    if !was_absent {
        let empty = if container.value.is_object() {
            "{}"
        } else {
            "[]"
        };
        let range = container.value.span.clone();
        let empty = empty.to_owned();
        return Ok(splice(text, vec![Splice { range, text: empty }]));
    }
    let is_container = |item: &Item| item.start == container.start;
    let index = root.items().iter().position(is_container).unwrap_or(0);
    let removal = self::removal(text, &root, index);
    let root_rest = interior_without(text, &root, &removal);
    match before {
        Some(ContainerBefore::AbsentInEmpty { text: whole })
            if is_same_interior(root_rest.trim(), whole) =>
        {
            let (range, whole) = (root.span.clone(), whole.clone());
            Ok(splice(text, vec![Splice { range, text: whole }]))
        }
        Some(ContainerBefore::Blank { text: whole })
            if root_rest.trim().is_empty()
                && text[..root.span.start].trim() == whole.trim()
                && text[root.span.end..].trim().is_empty() =>
        {
            Ok(whole.clone())
        }
        _ => Ok(splice(text, removal)),
    }
}

/// The line ends and the indentation of a document.
struct Style<'a> {
    newline: &'a str,
    unit: &'a str,
}

fn insert_into_blank(
    text: &str,
    place: ItemPlace<'_>,
    item: NewItem<'_>,
) -> (String, ContainerBefore) {
    let newline = newline(text);
    let layout = Layout::Lines {
        newline,
        unit: "  ",
        indent: "  ",
    };
    let member = Collection { place, item }.member(layout);
    let visible = text.trim_start_matches('\u{feff}');
    let gap = if visible.is_empty() || visible.ends_with('\n') {
        ""
    } else {
        newline
    };
    let edited = format!("{text}{gap}{{{newline}  {member}{newline}}}{newline}");
    let before = ContainerBefore::Blank {
        text: text.to_owned(),
    };
    (edited, before)
}

/// Adds an item at the end of a collection.
fn add_item(
    text: &str,
    container: &Node,
    style: &Style<'_>,
    item: &dyn Fn(Layout<'_>) -> String,
) -> String {
    let Style { newline, unit } = *style;
    let base = indentation(text, container.span.start);
    let close = container.span.end - 1;
    let Some(last) = container.items().last() else {
        let open = container.span.start + 1;
        let interior = &text[open..close];
        let inner = format!("{base}{unit}");
        let is_line = !text.trim_end().contains('\n') && !base_is_root(text, container);
        let addition = if is_line && interior.trim().is_empty() {
            item(Layout::Tight)
        } else {
            let layout = Layout::Lines {
                newline,
                unit,
                indent: &inner,
            };
            let comments = interior.trim_end();
            let tail = &interior[comments.len()..];
            let tail = if comments.is_empty() || !tail.contains('\n') {
                format!("{newline}{base}")
            } else {
                tail.to_owned()
            };
            format!("{comments}{newline}{inner}{}{tail}", item(layout))
        };
        let splices = vec![Splice {
            range: open..close,
            text: addition,
        }];
        return splice(text, splices);
    };
    if !is_first_in_line(text, last.start) {
        let is_tight = !text[container.span.clone()].contains(": ");
        let (layout, gap) = if is_tight {
            (Layout::Tight, "")
        } else {
            (Layout::Line, " ")
        };
        let item = item(layout);
        let splices = match last.comma {
            Some(comma) => vec![insertion(comma + 1, format!("{gap}{item},"))],
            None => vec![insertion(last.value.span.end, format!(",{gap}{item}"))],
        };
        return splice(text, splices);
    }
    let indent = indentation(text, last.start);
    let item = item(Layout::Lines {
        newline,
        unit,
        indent,
    });
    let end = last.comma.map_or(last.value.span.end, |comma| comma + 1);
    let anchor = after_comment(text, end).min(close);
    let splices = match last.comma {
        Some(_) => vec![insertion(anchor, format!("{newline}{indent}{item},"))],
        None => vec![
            insertion(end, ",".to_owned()),
            insertion(anchor, format!("{newline}{indent}{item}")),
        ],
    };
    splice(text, splices)
}

fn insertion(at: usize, text: String) -> Splice {
    Splice {
        range: at..at,
        text,
    }
}

/// Returns whether a collection is the whole document.
fn base_is_root(text: &str, container: &Node) -> bool {
    let before = text[..container.span.start].trim_start_matches('\u{feff}');
    before.trim().is_empty() && text[container.span.end..].trim().is_empty()
}

/// Returns the end of the comments that follow in the same line; the same byte if there are none.
fn after_comment(text: &str, at: usize) -> usize {
    let mut end = at;
    loop {
        let rest = &text[end..];
        let comment = rest.trim_start_matches([' ', '\t']);
        let start = end + rest.len() - comment.len();
        if comment.starts_with("//") {
            let length = comment.find('\n').unwrap_or(comment.len());
            let line = comment[..length].trim_end_matches('\r');
            return start + line.len();
        }
        let block = comment
            .strip_prefix("/*")
            .and_then(|it| it.split_once("*/"));
        match block {
            Some((inside, _)) if !inside.contains('\n') => end = start + inside.len() + 4,
            _ => return end,
        }
    }
}

/// Returns the parts to remove for an item, with the white space before it and one comma.
fn removal(text: &str, container: &Node, index: usize) -> Vec<Splice> {
    let items = container.items();
    let item = &items[index];
    let before = &text[..item.start];
    let blank = &before[before.trim_end_matches([' ', '\t', '\r', '\n']).len()..];
    let start = match blank.rfind('\n') {
        Some(at) => {
            let at = item.start - blank.len() + at;
            if text[..at].ends_with('\r') {
                at - 1
            } else {
                at
            }
        }
        None => item.start - blank.len(),
    };
    let mut splices = Vec::new();
    let end = item.comma.map_or(item.value.span.end, |comma| comma + 1);
    if item.comma.is_none()
        && index > 0
        && let Some(comma) = items[index - 1].comma
    {
        splices.push(Splice {
            range: comma..comma + 1,
            text: String::new(),
        });
        // The comma may touch the item.
        splices.push(Splice {
            range: start.max(comma + 1)..end,
            text: String::new(),
        });
        return splices;
    }
    splices.push(Splice {
        range: start..end,
        text: String::new(),
    });
    splices
}

/// Returns the text between the brackets of a collection after a removal.
fn interior_without(text: &str, container: &Node, removal: &[Splice]) -> String {
    let (open, close) = (container.span.start + 1, container.span.end - 1);
    let moved = removal.iter().map(|splice| Splice {
        range: splice.range.start - open..splice.range.end - open,
        text: String::new(),
    });
    splice(&text[open..close], moved.collect())
}

/// Returns whether a text is what was between the brackets of a collection.
fn is_same_interior(rest: &str, whole: &str) -> bool {
    let inside = whole.get(1..whole.len().saturating_sub(1));
    // For null there was nothing.
    let inside = inside.filter(|_| whole.starts_with(['{', '[']));
    inside.unwrap_or_default().trim() == rest
}

/// Returns one step of the indentation of a document.
fn indent_unit(text: &str) -> String {
    let Ok(Some(root)) = scan(text) else {
        return "  ".to_owned();
    };
    let base = indentation(text, root.span.start).len();
    let first = root.items().first();
    let indent = first
        .filter(|item| is_first_in_line(text, item.start))
        .map(|item| indentation(text, item.start))
        .and_then(|indent| indent.get(base..));
    match indent {
        Some(indent) if !indent.is_empty() => indent.to_owned(),
        _ => "  ".to_owned(),
    }
}
