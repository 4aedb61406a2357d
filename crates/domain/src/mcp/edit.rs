//! Edits of JSON text that keep all other bytes.
//!
//! Like [`scan`](crate::mcp::scan), made for text that was parsed before. A text that is not an object
//! has no members and is not changed.

use std::ops::Range;

use serde_json::Value;

use crate::mcp::scan::{MemberAt, members};

/// The member of `params`, `result` and definitions that carries metadata.
const META: &str = "_meta";

/// Returns the text of the member `key`. Of duplicate members the last one counts, as for parsers.
#[must_use]
pub fn member<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    members(object)
        .filter(|(found, _)| found == key)
        .last()
        .map(|(_, value)| value)
}

/// Returns the object with `value`, which must be JSON text, as its member `key`.
///
/// An existing member is replaced in place; a new one is added after all others. Of duplicate
/// members the last one is replaced and the others are removed: a value in all places could turn
/// megabytes into gigabytes.
#[must_use]
pub fn with_member(object: &str, key: &str, value: &str) -> String {
    let mut places = member_positions(object, key);
    match (places.next(), places.last()) {
        (Some(only), None) => splice(object, &[(only.value_at, value)]),
        // After the earlier members are removed, one is left, which the first arm replaces.
        (_, Some(last)) => {
            let is_earlier = |found: &MemberAt<'_>| found.key == key && *found != last;
            with_member(&without(object, is_earlier), key, value)
        }
        (None, None) => with_new_member(object, key, value),
    }
}

fn with_new_member(object: &str, key: &str, value: &str) -> String {
    let Some(end) = object.rfind('}') else {
        return object.to_owned();
    };
    let is_empty = members(object).next().is_none();
    let comma = if is_empty { "" } else { "," };
    let key = Value::from(key).to_string();
    // The value may have megabytes, so it is copied only once.
    [&object[..end], comma, &key, ":", value, &object[end..]].concat()
}

/// Returns the array with `element`, which must be JSON text, added at the end.
#[must_use]
pub fn with_element(array: &str, element: &str) -> String {
    let Some(end) = array.rfind(']').filter(|_| array.starts_with('[')) else {
        return array.to_owned();
    };
    let is_empty = array[1..end].trim_ascii().is_empty();
    let comma = if is_empty { "" } else { "," };
    [&array[..end], comma, element, &array[end..]].concat()
}

/// Returns the object without its member `key`.
#[must_use]
pub fn without_member(object: &str, key: &str) -> String {
    without(object, |found| found.key == key)
}

/// Returns the object without the members for which `is_cut` holds, in one pass: a peer may repeat
/// a member a hundred thousand times.
fn without(object: &str, is_cut: impl Fn(&MemberAt<'_>) -> bool) -> String {
    let mut cuts: Vec<(Range<usize>, &str)> = Vec::new();
    // The removed members before the first one that stays.
    let mut leading: Option<Range<usize>> = None;
    let mut previous_end = None;
    let mut all = members(object);
    while let Some(found) = all.next_at() {
        let end = found.value_at.end;
        if !is_cut(&found) {
            if let Some(at) = leading.take() {
                // With the comma after it.
                cuts.push((at.start..found.key_at.start, ""));
            }
            previous_end = Some(end);
        } else if let Some(previous_end) = &mut previous_end {
            // With the comma before it.
            cuts.push((*previous_end..end, ""));
            *previous_end = end;
        } else {
            let start = leading.map_or(found.key_at.start, |at| at.start);
            leading = Some(start..end);
        }
    }
    cuts.extend(leading.map(|at| (at, "")));
    splice(object, &cuts)
}

/// Returns the text of the entry `key` of `_meta`.
#[must_use]
pub fn meta<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    member(member(object, META)?, key)
}

/// Returns the object with these entries, whose values must be JSON text, in its `_meta`.
#[must_use]
pub fn with_meta(object: &str, entries: &[(&str, &str)]) -> String {
    let old = member(object, META).filter(|meta| meta.starts_with('{'));
    let new = entries
        .iter()
        .fold(old.unwrap_or("{}").to_owned(), |meta, (key, value)| {
            with_member(&meta, key, value)
        });
    with_member(object, META, &new)
}

/// Returns the object without the entry `key` of `_meta`. A `_meta` that becomes empty is removed
/// too.
#[must_use]
pub fn without_meta(object: &str, key: &str) -> String {
    let Some(old) = member(object, META) else {
        return object.to_owned();
    };
    let new = without_member(old, key);
    if members(&new).next().is_none() {
        without_member(object, META)
    } else {
        with_member(object, META, &new)
    }
}

/// Returns `text` with each range replaced. The ranges must be in order and must not overlap.
#[must_use]
pub fn splice(text: &str, edits: &[(Range<usize>, &str)]) -> String {
    let added: usize = edits.iter().map(|(_, with)| with.len()).sum();
    let mut new = String::with_capacity(text.len() + added);
    let mut at = 0;
    for (range, with) in edits {
        new.push_str(&text[at..range.start]);
        new.push_str(with);
        at = range.end;
    }
    new.push_str(&text[at..]);
    new
}

fn member_positions<'a>(object: &'a str, key: &str) -> impl Iterator<Item = MemberAt<'a>> {
    let mut all = members(object);
    std::iter::from_fn(move || all.next_at()).filter(move |found| found.key == key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_member_is_replaced_in_place_or_added_at_the_end() {
        assert_eq!(
            with_member(r#"{ "a": 1.0, "b":2 }"#, "a", "[3]"),
            r#"{ "a": [3], "b":2 }"#
        );
        assert_eq!(with_member("{}", "a", "1"), r#"{"a":1}"#);
        assert_eq!(with_member(r#"{"a":1}"#, "b", "2"), r#"{"a":1,"b":2}"#);
        assert_eq!(with_member(r#"{"a":1,"a":2}"#, "a", "3"), r#"{"a":3}"#);
        assert_eq!(
            with_member(r#"{"a":1, "b":0,"\u0061":2 , "c":4}"#, "a", "3"),
            r#"{"b":0,"\u0061":3 , "c":4}"#
        );
        assert_eq!(with_member("[1]", "a", "3"), "[1]");
    }

    #[test]
    fn an_element_is_added_at_the_end() {
        assert_eq!(with_element("[]", "1"), "[1]");
        assert_eq!(with_element("[ \n]", "1"), "[ \n1]");
        assert_eq!(
            with_element(r#"[1.0, {"a":[]} ]"#, "2"),
            r#"[1.0, {"a":[]} ,2]"#
        );
        assert_eq!(with_element("{}", "1"), "{}");
    }

    #[test]
    fn a_member_is_removed_with_its_comma() {
        for (object, expected) in [
            (r#"{"a":1}"#, "{}"),
            (r#"{"a":1,"b":2}"#, r#"{"b":2}"#),
            (r#"{"b":2 , "a":1}"#, r#"{"b":2}"#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"b":2}"#),
            (
                r#"{"a":1, "a":2 , "b":2,"c":3 ,"a":3,"a":4}"#,
                r#"{"b":2,"c":3}"#,
            ),
            (r#"{ "a":1, "a":2 }"#, "{  }"),
            (r#"{"b":{"a":1}}"#, r#"{"b":{"a":1}}"#),
        ] {
            assert_eq!(without_member(object, "a"), expected);
        }
    }

    #[test]
    fn a_member_repeated_many_times_is_edited_in_one_pass() {
        let n = 250_000;
        let object = format!(r#"{{{}"b":1}}"#, r#""a":0,"#.repeat(n));
        assert_eq!(without_member(&object, "a"), r#"{"b":1}"#);
        let value = format!("[{}]", "1,".repeat(n) + "1");
        let expected = format!(r#"{{"a":{value},"b":1}}"#);
        assert_eq!(with_member(&object, "a", &value), expected);
    }

    #[test]
    fn entries_of_meta_are_added_and_removed() {
        let with = with_meta(r#"{"name":"n"}"#, &[("x/y", "1"), ("z", "2")]);
        assert_eq!(with, r#"{"name":"n","_meta":{"x/y":1,"z":2}}"#);
        assert_eq!(meta(&with, "x/y"), Some("1"));
        let without = without_meta(&without_meta(&with, "z"), "x/y");
        assert_eq!(without, r#"{"name":"n"}"#);
    }

    proptest! {
        #[test]
        fn edits_agree_with_a_parser(
            entries in proptest::collection::vec(("[a-d]{1,2}", any::<i32>()), 0..6),
            key in "[a-d]{1,2}",
        ) {
            let mut object: serde_json::Map<String, Value> = entries
                .into_iter()
                .map(|(key, number)| (key, Value::from(number)))
                .collect();
            let text = serde_json::to_string_pretty(&object).unwrap();
            let parse = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
            let with = parse(&with_member(&text, &key, "true"));
            let without = parse(&without_member(&text, &key));
            object.insert(key.clone(), Value::Bool(true));
            prop_assert_eq!(with, object.clone());
            object.remove(&key);
            prop_assert_eq!(without, object);
        }
    }
}
