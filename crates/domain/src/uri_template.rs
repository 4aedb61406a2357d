//! Whether a URI may have been made from a URI template (RFC 6570).

/// The most expressions of a template.
const MAX_EXPRESSIONS: usize = 16;
/// The longest template and the longest URI that are compared, in bytes.
const MAX_LEN: usize = 2_048;

/// Returns whether `uri` begins as `template` does: [`fits`] holds for no other. It costs next to
/// nothing.
#[must_use]
pub fn may_fit(template: &str, uri: &str) -> bool {
    let beginning = template.split('{').next().unwrap_or_default();
    uri.starts_with(beginning)
}

/// Returns whether `uri` fits `template`: the text between the expressions stands in it in the same
/// order. What an expression may expand to is not looked into, except that a simple one (`{x}`)
/// stands for no `/`. What is longer than 2,048 bytes, and a template with more than 16 expressions,
/// fits nothing: both sides may come from somebody who wants the comparison to take long.
#[must_use]
pub fn fits(template: &str, uri: &str) -> bool {
    let is_bounded = template.len().max(uri.len()) <= MAX_LEN
        && template.matches('{').count() <= MAX_EXPRESSIONS;
    is_bounded && fits_wholly(template, uri.as_bytes())
}

fn fits_wholly(template: &str, uri: &[u8]) -> bool {
    // Where in the URI the template so far may end: looked at for all places at once, since trying
    // one after the other doubles the work with every expression.
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

/// Returns where the literal may end that begins at one of `starts`.
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
            // The text behind an expression may begin within what looks like it.
            ("{x}aa", "baaa", true),
        ] {
            assert_eq!(fits(template, uri), expected, "{template} {uri}");
            assert!(may_fit(template, uri) || !expected, "{template} {uri}");
        }
    }

    #[test]
    fn a_template_made_to_be_slow_is_not() {
        let template = "{+a}a".repeat(MAX_EXPRESSIONS);
        let uri = "a".repeat(MAX_LEN - 1) + "b";
        assert!(!fits(&template, &uri));
        assert!(fits(&template, &uri[..MAX_LEN - 1]));
        assert!(!fits("{+a}", &"a".repeat(MAX_LEN + 1)));
    }
}
