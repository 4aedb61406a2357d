//! Secrets of imported servers, which become references to variables.

use std::collections::{BTreeMap, BTreeSet};

use riglm_domain::privacy::redaction::{is_credential, is_secret_name};

use crate::config::is_variable_name;

/// Names of values that are secrets, in addition to those that suggest one anywhere.
const MORE_SECRET_NAMES: [&str; 8] = ["key", "auth", "pass", "pwd", "pat", "sig", "code", "pw"];
/// The length from which a word of letters and digits may be a secret.
const MIN_RANDOM_CHARS: usize = 20;
/// The number of digits, and of letters, from which such a word may be one.
const MIN_OF_EACH: usize = 3;

/// The way in which secrets are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrets {
    /// As references to variables.
    Referred,
    /// With their values.
    Printed,
}

/// Writes the values of one server, as text in which references are replaced.
pub(super) struct SecretWriter<'a> {
    pub(super) server: &'a str,
    pub(super) secrets: Secrets,
    /// The variables of all servers, each with the place of its value if its name does not say it.
    pub(super) variables: &'a mut BTreeMap<String, Option<String>>,
    /// The values of these variables.
    pub(super) values: &'a mut BTreeMap<String, String>,
    /// The variables that have another use.
    pub(super) references: &'a BTreeSet<String>,
    /// Receives sentences about possible secrets.
    pub(super) notes: &'a mut Vec<String>,
}

impl SecretWriter<'_> {
    /// Returns a value that may be a secret.
    pub(super) fn value(&mut self, name: &str, value: &str) -> String {
        if self.secrets == Secrets::Printed {
            return literal(value);
        }
        self.refer(name, value, None)
    }

    /// Returns a value of an environment or a header. Only what looks like a secret is referred to.
    pub(super) fn setting(&mut self, name: &str, value: &str) -> String {
        let has_secret = || value.split_whitespace().any(is_credential);
        if !value.is_empty() && (names_secret(name) || has_secret()) {
            return self.value(name, value);
        }
        if value.contains("://") {
            return self.address(value, name);
        }
        self.check_random(value, name);
        literal(value)
    }

    /// Returns a value in which the gateway replaces references to variables. They stay.
    pub(super) fn template(&mut self, name: &str, value: &str) -> String {
        let has_references = references(value).next().is_some();
        let has_secret = || {
            let rest = split_references(value).filter_map(Result::err);
            rest.flat_map(str::split_whitespace).any(is_credential)
        };
        let is_secret = self.secrets == Secrets::Referred && has_secret();
        if !has_references || is_secret {
            return self.value(name, value);
        }
        let parts = split_references(value).map(|part| match part {
            Ok(name) => format!("${{{name}}}"),
            Err(text) => literal(text),
        });
        parts.collect()
    }

    pub(super) fn arguments(&mut self, arguments: &[String]) -> Vec<String> {
        let mut written = Vec::with_capacity(arguments.len());
        // The flag that gives the next argument its name.
        let mut flag: Option<&str> = None;
        for (argument, number) in arguments.iter().zip(1_usize..) {
            let place = format!("argument {number}");
            let name = flag.filter(|_| !argument.starts_with('-'));
            let text = match name {
                _ if self.secrets == Secrets::Printed => literal(argument),
                Some(name) => self.refer(name, argument, Some(&place)),
                None => self.argument(argument, number, &place),
            };
            written.push(text);
            let is_flag = argument.starts_with('-') && !argument.contains(['=', ' ']);
            flag = Some(argument.as_str()).filter(|flag| is_flag && names_secret(flag));
        }
        written
    }

    fn argument(&mut self, argument: &str, number: usize, place: &str) -> String {
        if let Some((name, separator, value)) = assignment(argument) {
            let value = if names_secret(name) {
                self.refer(name, value, Some(place))
            } else {
                self.word(value, &format!("arg {number}"), place)
            };
            return format!("{}{separator}{value}", literal(name));
        }
        self.word(argument, &format!("arg {number}"), place)
    }

    /// Returns a word without its secrets; `name` is for its variable.
    fn word(&mut self, word: &str, name: &str, place: &str) -> String {
        if word.contains("://") {
            return self.address(word, place);
        }
        if is_credential(word) {
            return self.refer(name, word, Some(place));
        }
        self.check_random(word, place);
        literal(word)
    }

    /// Returns a URL without its secrets.
    pub(super) fn address(&mut self, url: &str, place: &str) -> String {
        let Some((scheme, rest)) = url.split_once("://") else {
            return literal(url);
        };
        if self.secrets == Secrets::Printed {
            return literal(url);
        }
        let (rest, fragment) = split_before(rest, '#');
        let (rest, query) = split_before(rest, '?');
        let (authority, path) = split_before(rest, '/');
        let authority = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = if let Some((user, password)) = user.split_once(':') {
                    let password = self.refer("password", password, Some(place));
                    format!("{}:{password}", literal(user))
                } else {
                    self.word(user, "user", place)
                };
                format!("{user}@{}", literal(host))
            }
            None => literal(authority),
        };
        let path = path.split('/').map(|part| self.word(part, "path", place));
        let path: Vec<String> = path.collect();
        let parameters = query.split('&').map(|parameter| {
            let named = parameter.split_once('=');
            named.map_or_else(
                || literal(parameter),
                |(name, value)| {
                    let key = name.trim_start_matches('?');
                    let value = if names_secret(key) && !value.is_empty() {
                        self.refer(key, value, Some(place))
                    } else {
                        self.word(value, key, place)
                    };
                    format!("{}={value}", literal(name))
                },
            )
        });
        let parameters: Vec<String> = parameters.collect();
        let (path, query) = (path.join("/"), parameters.join("&"));
        format!(
            "{}://{authority}{path}{query}{}",
            literal(scheme),
            literal(fragment)
        )
    }

    /// Notes a word that may be a secret.
    fn check_random(&mut self, word: &str, place: &str) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '=' | '+');
        let n_digits = word.chars().filter(char::is_ascii_digit).count();
        let n_letters = word.chars().filter(char::is_ascii_alphabetic).count();
        let is_random = word.len() >= MIN_RANDOM_CHARS
            && word.chars().all(is_plain)
            && n_digits.min(n_letters) >= MIN_OF_EACH;
        let text = format!(
            "{place} of {:?} may have a secret, and is printed as it is",
            self.server
        );
        if is_random && !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Returns a reference to a new variable for a value; `place` is where the value is in the export.
    fn refer(&mut self, name: &str, value: &str, place: Option<&str>) -> String {
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let base = format!("{}_{}", upper(self.server), upper(name));
        // Variables that begin with RIGLM_ are for riglm itself.
        let base = if is_variable_name(&base) && !base.starts_with("RIGLM_") {
            base
        } else {
            format!("SERVER_{base}")
        };
        let others = (2_usize..).map(|number| format!("{base}_{number}"));
        let is_free =
            |name: &String| !self.variables.contains_key(name) && !self.references.contains(name);
        let free = std::iter::once(base.clone()).chain(others).find(is_free);
        // The numbers do not end.
        let variable = free.unwrap_or(base);
        let reference = format!("${{{variable}}}");
        let place = place.map(|place| format!("{place} of {:?}", self.server));
        self.values.insert(variable.clone(), value.to_owned());
        self.variables.insert(variable, place);
        reference
    }
}

/// Returns the name, the separator and the value of an argument such as `--name=value` or
/// `Name: value`.
fn assignment(argument: &str) -> Option<(&str, &str, &str)> {
    let at = argument.find(['=', ':'])?;
    let (name, rest) = argument.split_at(at);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let separator = match rest.strip_prefix(':') {
        // A URL, a path or a time has no space after the colon.
        Some(after) if !after.starts_with(' ') && !names_secret(name) => return None,
        Some(after) => &rest[..=after.len() - after.trim_start().len()],
        None => "=",
    };
    let value = &rest[separator.len()..];
    (!name.is_empty() && name.chars().all(is_name) && !value.is_empty())
        .then_some((name, separator, value))
}

/// Returns whether the name of a value, such as a flag, suggests a secret.
fn names_secret(name: &str) -> bool {
    let bare = name.trim_start_matches('-').to_ascii_lowercase();
    is_secret_name(&bare) || MORE_SECRET_NAMES.contains(&bare.as_str())
}

/// Returns the part before a separator, and the rest with the separator.
fn split_before(text: &str, separator: char) -> (&str, &str) {
    text.split_at(text.find(separator).unwrap_or(text.len()))
}

fn upper(text: &str) -> String {
    let upper = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    text.chars().map(upper).collect()
}

/// Returns the names of the variables that a text refers to.
pub(super) fn references(text: &str) -> impl Iterator<Item = &str> {
    split_references(text).filter_map(Result::ok)
}

/// Splits a text into the names of variables that it refers to, and the texts between them.
fn split_references(text: &str) -> impl Iterator<Item = Result<&str, &str>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let named = |text: &'_ str| {
            let (name, after) = text.strip_prefix("${")?.split_once('}')?;
            is_variable_name(name).then_some((name.len(), after.len()))
        };
        if let Some((n_name, n_after)) = named(rest) {
            let name = &rest[2..2 + n_name];
            rest = &rest[rest.len() - n_after..];
            return Some(Ok(name));
        }
        let places = rest.match_indices("${").map(|(at, _)| at);
        let next = places
            .filter(|at| *at > 0)
            .find(|at| named(&rest[*at..]).is_some());
        let (before, after) = rest.split_at(next.unwrap_or(rest.len()));
        rest = after;
        Some(Err(before))
    })
}

/// Returns a value that has no references to variables.
pub(super) fn literal(value: &str) -> String {
    value.replace("${", "$${")
}
