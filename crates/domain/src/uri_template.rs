//! Whether a URI may have been made from a URI template (RFC 6570).

/// The most expressions of a template.
const MAX_EXPRESSIONS: usize = 16;

/// Returns whether `uri` fits `template`: the text between the expressions stands in it in the same
/// order. What an expression may expand to is not looked into, except that a simple one (`{x}`)
/// stands for no `/`. A template with more than 16 expressions fits nothing: each one more can double
/// the work.
#[must_use]
pub fn fits(template: &str, uri: &str) -> bool {
    template.matches('{').count() <= MAX_EXPRESSIONS && fits_from(template, uri)
}

fn fits_from(template: &str, uri: &str) -> bool {
    let Some((literal, rest)) = template.split_once('{') else {
        return template == uri;
    };
    let Some(after) = uri.strip_prefix(literal) else {
        return false;
    };
    let Some((expression, rest)) = rest.split_once('}') else {
        return false;
    };
    let is_simple = !expression.starts_with(['+', '#', '/', ';', '?', '&', '.']);
    let longest = if is_simple {
        after.find('/').unwrap_or(after.len())
    } else {
        after.len()
    };
    // The text up to the next expression tells where this one may end.
    let next = rest.split('{').next().unwrap_or_default();
    if next.is_empty() {
        return if rest.is_empty() {
            longest == after.len()
        } else {
            fits_from(rest, &after[longest..]) || fits_from(rest, after)
        };
    }
    after
        .match_indices(next)
        .take_while(|(at, _)| *at <= longest)
        .any(|(at, _)| fits_from(rest, &after[at..]))
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
        ] {
            assert_eq!(fits(template, uri), expected, "{template} {uri}");
        }
    }
}
