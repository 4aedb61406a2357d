//! Conversion of validation errors of the sections into errors with the path of a key.

use std::collections::BTreeMap;

use validator::{ValidationErrors, ValidationErrorsKind};

use super::tree::join;

/// An invalid value of one key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The path of the key, with dots.
    pub(super) key: String,
    /// The expected value.
    pub(super) reason: String,
}

/// Returns the first refusal by the order of the keys.
pub(super) fn first_refusal(errors: &ValidationErrors) -> Option<Refusal> {
    refusals(errors).into_iter().next()
}

/// Returns all refusals, by the order of the keys.
pub(super) fn refusals(errors: &ValidationErrors) -> Vec<Refusal> {
    refusals_under("", errors)
}

fn refusals_under(path: &str, errors: &ValidationErrors) -> Vec<Refusal> {
    let fields: BTreeMap<&str, &ValidationErrorsKind> = errors
        .errors()
        .iter()
        .map(|(field, kind)| (field.as_ref(), kind))
        .collect();
    let refusals = fields.into_iter().flat_map(|(field, kind)| {
        // Rules about a whole section are reported under this name.
        let key = if field == "__all__" {
            path.to_owned()
        } else {
            join(path, field)
        };
        match kind {
            ValidationErrorsKind::Struct(inner) => refusals_under(&key, inner),
            ValidationErrorsKind::List(items) => (items.iter())
                .flat_map(|(position, inner)| refusals_under(&format!("{key}[{position}]"), inner))
                .collect(),
            ValidationErrorsKind::Field(errors) => (errors.iter().take(1))
                .map(|error| Refusal {
                    key: key.clone(),
                    reason: reason_of(error),
                })
                .collect(),
        }
    });
    refusals.collect()
}

fn reason_of(error: &validator::ValidationError) -> String {
    if let Some(message) = &error.message {
        return message.to_string();
    }
    let bound = |name: &str| error.params.get(name).map(ToString::to_string);
    match (bound("min"), bound("max")) {
        (Some(min), Some(max)) => format!("expected a value from {min} to {max}"),
        (Some(min), None) => format!("expected a value of at least {min}"),
        (None, Some(max)) => format!("expected a value of at most {max}"),
        (None, None) => format!("does not pass the check {}", error.code),
    }
}

#[cfg(test)]
mod tests {
    use validator::Validate;

    use super::*;

    #[derive(Validate)]
    struct Outer {
        #[validate(nested)]
        inner: Inner,
    }

    #[derive(Validate)]
    struct Inner {
        #[validate(range(min = 1, max = 9))]
        count: u32,
        #[validate(range(min = 3))]
        size: u32,
    }

    fn refusal(count: u32, size: u32) -> Option<(String, String)> {
        let errors = Outer {
            inner: Inner { count, size },
        }
        .validate()
        .err()?;
        first_refusal(&errors).map(|refusal| (refusal.key, refusal.reason))
    }

    #[test]
    fn a_refusal_names_the_key_and_the_bounds() {
        assert_eq!(
            refusal(10, 1),
            Some(("inner.count".into(), "expected a value from 1 to 9".into()))
        );
        assert_eq!(
            refusal(1, 1),
            Some(("inner.size".into(), "expected a value of at least 3".into()))
        );
        assert_eq!(refusal(1, 3), None);
    }
}
