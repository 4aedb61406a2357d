//! Matching of URIs with URI templates (RFC 6570).

/// The maximum number of expressions in a template.
const MAX_EXPRESSIONS: usize = 16;
/// The maximum length of a compared template or URI, in bytes.
const MAX_LEN: usize = 2_048;

/// Returns whether `uri` begins like `template`. [`matches_template`] holds for no other URI. This check has
/// almost no cost.
#[must_use]
pub fn may_match(template: &str, uri: &str) -> bool {
    let beginning = template.split('{').next().unwrap_or_default();
    uri.starts_with(beginning)
}

/// Returns whether `uri` fits `template`: it contains the text between the expressions in the same
/// order.
///
/// The expansion of an expression is not checked, except that a simple one (`{x}`) contains no `/`.
/// Nothing fits if it is longer than 2,048 bytes, or if the template has more than 16 expressions:
/// both may come from an attacker who wants the comparison to take long.
#[must_use]
pub fn matches_template(template: &str, uri: &str) -> bool {
    let is_bounded = template.len().max(uri.len()) <= MAX_LEN
        && template.matches('{').count() <= MAX_EXPRESSIONS;
    is_bounded && matches_fully(template, uri.as_bytes())
}

fn matches_fully(template: &str, uri: &[u8]) -> bool {
    // The positions in the URI at which the template so far may end. All positions are tracked at
    // once, since trying one after the other doubles the work with every expression.
    let mut ends = vec![false; uri.len() + 1];
    ends[0] = true;
    let mut rest = template;
    loop {
        let (literal, behind) = match rest.split_once('{') {
            Some((literal, behind)) => (literal, Some(behind)),
            None => (rest, None),
        };
        if !literal.is_empty() {
            ends = ends_after(&ends, literal.as_bytes(), uri);
        }
        let Some(behind) = behind else {
            return ends.last() == Some(&true);
        };
        let Some((expression, behind)) = behind.split_once('}') else {
            return false;
        };
        let is_simple = !expression.starts_with(['+', '#', '/', ';', '?', '&', '.']);
        for (at, byte) in uri.iter().enumerate() {
            ends[at + 1] |= ends[at] && !(is_simple && *byte == b'/');
        }
        rest = behind;
    }
}

/// Returns the positions at which the literal may end if it begins at one of `starts`.
fn ends_after(starts: &[bool], literal: &[u8], uri: &[u8]) -> Vec<bool> {
    let mut ends = vec![false; starts.len()];
    for (at, is_start) in starts.iter().enumerate() {
        if *is_start && uri[at..].starts_with(literal) {
            ends[at + literal.len()] = true;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_fits_the_text_around_the_expressions() {
        for (template, uri, expected) in [
            ("demo://a", "demo://a", true),
            ("demo://a", "demo://b", false),
            ("demo://note/{id}", "demo://note/7", true),
            ("demo://note/{id}", "demo://note/7/8", false),
            ("demo://note/{+path}", "demo://note/7/8", true),
            ("demo://{a}/x/{b}", "demo://1/x/2", true),
            ("demo://{a}/x/{b}", "demo://1/y/2", false),
            ("file://{+path}/end", "file:///a/end/b/end", true),
            ("demo://s{?q}", "demo://s?q=1", true),
            ("demo://{broken", "demo://x", false),
            ("{a}{b}/{c}", "x/y", true),
            ("{a}{b}", "x/y", false),
            // The text after an expression may begin inside of a similar text.
            ("{x}aa", "baaa", true),
        ] {
            assert_eq!(
                matches_template(template, uri),
                expected,
                "{template} {uri}"
            );
            assert!(may_match(template, uri) || !expected, "{template} {uri}");
        }
    }

    #[test]
    fn adversarial_templates_are_matched_quickly() {
        let template = "{+a}a".repeat(MAX_EXPRESSIONS);
        let uri = "a".repeat(MAX_LEN - 1) + "b";
        assert!(!matches_template(&template, &uri));
        assert!(matches_template(&template, &uri[..MAX_LEN - 1]));
        assert!(!matches_template("{+a}", &"a".repeat(MAX_LEN + 1)));
    }
}
