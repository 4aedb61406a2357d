//! `${VARIABLE}` references in the values of a file.
//!
//! `${NAME}` is replaced by the value of an environment variable, and `${NAME:-text}` by `text` if
//! the variable is unset or empty. `$${` is an escape for the characters `${`. Replaced text is not
//! interpolated again.

use std::collections::BTreeSet;

use super::Environment;

/// The reason why a text cannot be interpolated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterpolationError {
    /// The variable is unset, and the reference has no default.
    #[error("the variable {0} is not set")]
    NotSet(String),
    /// A `${` is not followed by a name and `}`.
    #[error("a `${{` is not followed by the name of a variable and `}}`")]
    Malformed,
}

/// Returns `text` with every reference replaced.
///
/// # Errors
///
/// Returns [`InterpolationError`] for the first reference without a value.
pub(super) fn interpolate(
    text: &str,
    environment: &Environment,
) -> Result<String, InterpolationError> {
    replace(text, |reference| value_of(reference, environment))
}

/// Returns all variables without a value that `text` refers to; up to the error in a malformed text.
pub(super) fn unset_variables(text: &str, environment: &Environment) -> BTreeSet<String> {
    let mut unset = BTreeSet::new();
    // Only the names are wanted, not the text.
    let _ = replace(text, |reference| match value_of(reference, environment) {
        Err(InterpolationError::NotSet(name)) => {
            unset.insert(name);
            Ok("")
        }
        value => value,
    });
    unset
}

/// Returns `text` with every reference replaced by its value. `value` returns the value of what
/// stands between the braces.
fn replace<'a>(
    text: &'a str,
    mut value: impl FnMut(&'a str) -> Result<&'a str, InterpolationError>,
) -> Result<String, InterpolationError> {
    let mut complete = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        complete.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$${") {
            complete.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let (reference, after) = after.split_once('}').ok_or(InterpolationError::Malformed)?;
            complete.push_str(value(reference)?);
            rest = after;
        } else {
            complete.push('$');
            rest = &rest[1..];
        }
    }
    complete.push_str(rest);
    Ok(complete)
}

fn value_of<'a>(
    reference: &'a str,
    environment: &'a Environment,
) -> Result<&'a str, InterpolationError> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    if !is_variable_name(name) {
        return Err(InterpolationError::Malformed);
    }
    environment
        .value(name)
        .or(default)
        .ok_or_else(|| InterpolationError::NotSet(name.into()))
}

/// Returns whether a reference can have this name.
pub(crate) fn is_variable_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && (name.bytes()).all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(text: &str) -> Result<String, InterpolationError> {
        let environment = Environment::from_iter([("KEY", "k"), ("EMPTY", ""), ("TRAP", "${KEY}")]);
        interpolate(text, &environment)
    }

    #[test]
    fn references_are_replaced_and_the_rest_stays() {
        assert_eq!(complete("a ${KEY}${KEY} b"), Ok("a kk b".into()));
        assert_eq!(complete("${NONE:-x:-y}${EMPTY:-}"), Ok("x:-y".into()));
        assert_eq!(complete("$${KEY} $ $5 $$ é"), Ok("${KEY} $ $5 $$ é".into()));
        assert_eq!(complete("${TRAP}"), Ok("${KEY}".into()));
    }

    #[test]
    fn all_variables_without_a_value_are_named() {
        let environment = Environment::from_iter([("KEY", "k"), ("EMPTY", "")]);
        let unset = |text: &str| -> Vec<String> {
            unset_variables(text, &environment).into_iter().collect()
        };
        let text = "${NONE}${KEY}:${EMPTY}@${OTHER:-x}$${TEXT}${NONE}${LAST}";
        assert_eq!(unset(text), ["EMPTY", "LAST", "NONE"]);
        assert_eq!(unset("${NONE}${"), ["NONE"]);
        assert!(unset("${KEY}").is_empty());
    }

    #[test]
    fn references_without_a_value_are_refused() {
        assert_eq!(
            complete("${NONE}"),
            Err(InterpolationError::NotSet("NONE".into()))
        );
        assert_eq!(
            complete("${EMPTY}"),
            Err(InterpolationError::NotSet("EMPTY".into()))
        );
        for text in ["${KEY", "${}", "${A B}", "${1A}", "${:-x}"] {
            assert_eq!(complete(text), Err(InterpolationError::Malformed), "{text}");
        }
    }
}
