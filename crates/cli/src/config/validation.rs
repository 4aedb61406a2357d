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
    use riglm_app::safeguards::CallLimitsConfig;
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

    fn read(text: &str) -> Result<CallLimitsConfig, String> {
        let config: CallLimitsConfig =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        match config.validate() {
            Ok(()) => Ok(config),
            Err(errors) => {
                let refusal = first_refusal(&errors).unwrap();
                Err(format!("{}: {}", refusal.key, refusal.reason))
            }
        }
    }

    #[test]
    fn zero_negative_and_absurd_limits_are_refused_by_their_keys() {
        for (wrong, said) in [
            (
                r#"{"max_concurrent":0}"#,
                "max_concurrent: expected a value from 1 to 10000",
            ),
            (r#"{"max_concurrent":10001}"#, "max_concurrent: "),
            (r#"{"max_concurrent":-1}"#, "-1"),
            (r#"{"max_calls_per_context":0}"#, "max_calls_per_context: "),
            (
                r#"{"max_calls_per_context":1001}"#,
                "max_calls_per_context: ",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":0,"per":"1m"}]}"#,
                "rules[0].calls: expected a value from 1 to 1000",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":1001,"per":"1m"}]}"#,
                "rules[0].calls: ",
            ),
            (r#"{"rules":[{"tools":["a"],"calls":-5,"per":"1m"}]}"#, "-5"),
            (
                r#"{"rules":[{"tools":["a"],"calls":1,"per":"999ms"}]}"#,
                "rules[0].per: expected a period from 1s to 1day",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":1,"per":"25h"}]}"#,
                "rules[0].per: ",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":1}]}"#,
                "rules[0]: calls needs per",
            ),
            (
                r#"{"rules":[{"tools":["a"],"per":"1m"}]}"#,
                "rules[0]: per needs calls",
            ),
            (
                r#"{"rules":[{"tools":["a"]}]}"#,
                "rules[0]: expected calls and per",
            ),
            (
                r#"{"rules":[{"tools":[],"max_concurrent":1}]}"#,
                "rules[0].tools: ",
            ),
            (
                r#"{"rules":[{"tools":[" "],"max_concurrent":1}]}"#,
                "rules[0].tools: ",
            ),
            (
                r#"{"rules":[{"tools":["a"],"max_concurrent":0}]}"#,
                "rules[0].max_concurrent: ",
            ),
            (
                r#"{"rules":[{"tools":["a"],"calls":1,"per":"1m","scope":"all"}]}"#,
                "all",
            ),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}
