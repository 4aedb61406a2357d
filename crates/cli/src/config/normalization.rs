//! Alternative notations: addresses with host names, and commands as other MCP programs write them.

use std::net::{SocketAddr, ToSocketAddrs as _};

use config::{Map, Value, ValueKind};

use super::{ConfigError, WrongValue, is_variable_name};

/// Characters with a meaning in a shell. No shell is used, so they are refused.
const SHELL_CHARACTERS: &str = "|&;<>()`";

/// Replaces alternative notations by the standard one: addresses by numbers in `listen` and
/// `control`, and `command` by a list with the program and its arguments. Returns the errors; wrong
/// values stay as they are.
pub(super) fn normalize(tree: &mut Map<String, Value>) -> Vec<WrongValue> {
    let mut wrong = Vec::new();
    for section in ["listen", "control"] {
        if let Some(ValueKind::Table(table)) = tree.get_mut(section).map(|value| &mut value.kind)
            && let Some(address) = table.get_mut("address")
        {
            let path = [section, "address"].map(str::to_owned).to_vec();
            wrong.extend(resolve_address(path, address));
        }
    }
    for (path, upstream) in upstreams_of(tree) {
        wrong.extend(merge_args(&path, upstream));
    }
    wrong
}

/// Splits the commands of a file that are one text. This happens before references to variables are
/// replaced, so that the value of a variable stays within one word. Commands with `args` are
/// skipped, and those that `above` replaces or has arguments for. Returns the errors; wrong values
/// stay as they are.
pub(super) fn split_commands(
    file: &mut Map<String, Value>,
    above: &Map<String, Value>,
) -> Vec<WrongValue> {
    let mut wrong = Vec::new();
    for (path, upstream) in upstreams_of(file) {
        if upstream.contains_key("args") || has_any(above, &path, &["args", "command"]) {
            continue;
        }
        if let Some(command) = upstream.get_mut("command") {
            wrong.extend(split(&path, command, CommandText::Template));
        }
    }
    wrong
}

/// Returns the sections of upstreams with their paths, in the order of their names.
fn upstreams_of(tree: &mut Map<String, Value>) -> Vec<(Vec<String>, &mut Map<String, Value>)> {
    let mut found = Vec::new();
    for (section, value) in tree {
        let ValueKind::Table(table) = &mut value.kind else {
            continue;
        };
        if section == "upstream" {
            found.push((vec![section.clone()], table));
        } else if section == "upstreams" {
            for (name, upstream) in table {
                if let ValueKind::Table(upstream) = &mut upstream.kind {
                    found.push((vec![section.clone(), name.clone()], upstream));
                }
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

/// Returns whether a layer has one of these keys in a section.
fn has_any(layer: &Map<String, Value>, path: &[String], keys: &[&str]) -> bool {
    match path {
        [] => keys.iter().any(|key| layer.contains_key(*key)),
        [first, rest @ ..] => match layer.get(first).map(|value| &value.kind) {
            Some(ValueKind::Table(inner)) => has_any(inner, rest, keys),
            _ => false,
        },
    }
}

/// The reason why a text is not an address.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The text has another form.
    #[error("expected an address and a port, such as 127.0.0.1:8642 or localhost:8642")]
    Form,
    /// The resolver fails.
    #[error("the name in {text} cannot be resolved: {error}")]
    Unresolved {
        /// The text.
        text: String,
        /// The error of the resolver. It is part of the text, because not every reader of the
        /// error prints its causes.
        error: std::io::Error,
    },
    /// The name exists, but has no address.
    #[error("the name in {0} has no address")]
    NoAddress(String),
}

/// Parses an address, and resolves a host name in it. IPv4 addresses are preferred.
///
/// # Errors
///
/// Returns [`AddressError`] for another format, and if the name cannot be resolved.
pub fn address(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if !is_named(text) {
        return Err(AddressError::Form);
    }
    let found: Vec<SocketAddr> = text
        .to_socket_addrs()
        .map_err(|error| AddressError::Unresolved {
            text: text.to_owned(),
            error,
        })?
        .collect();
    let fourth = found.iter().find(|address| address.is_ipv4());
    fourth
        .or(found.first())
        .copied()
        .ok_or_else(|| AddressError::NoAddress(text.to_owned()))
}

/// Returns whether a text is a name and a port.
fn is_named(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(name, port)| {
        !name.is_empty() && !name.contains(':') && port.parse::<u16>().is_ok()
    })
}

fn resolve_address(path: Vec<String>, address_value: &mut Value) -> Option<WrongValue> {
    let ValueKind::String(text) = &address_value.kind else {
        return None;
    };
    // Other invalid addresses are refused when the section is deserialized.
    if text.parse::<SocketAddr>().is_ok() || text.contains("${") || !is_named(text) {
        return None;
    }
    match address(text) {
        Ok(found) => {
            address_value.kind = ValueKind::String(found.to_string());
            None
        }
        Err(error) => Some(wrong_value(address_value, path, error.to_string())),
    }
}

/// Merges `command` and `args` into one list.
fn merge_args(section: &[String], upstream: &mut Map<String, Value>) -> Option<WrongValue> {
    let args = upstream.remove("args");
    let path = |key: &str| [section, &[key.to_owned()]].concat();
    let Some(command) = upstream.get_mut("command") else {
        let reason = "arguments need a command".into();
        return args.map(|args| wrong_value(&args, path("args"), reason));
    };
    let Some(args) = args else {
        return split(section, command, CommandText::Plain);
    };
    if let ValueKind::String(text) = &command.kind {
        let text = text.clone();
        if let Err(error) = check_program(&text) {
            return Some(wrong_value(command, path("command"), error.to_string()));
        }
        command.kind = ValueKind::Array(vec![with_origin_of(command, text)]);
    }
    // A wrong command is reported when the section is deserialized.
    let ValueKind::Array(all) = &mut command.kind else {
        return None;
    };
    let ValueKind::Array(items) = &args.kind else {
        return Some(wrong_value(&args, path("args"), "expected a list".into()));
    };
    all.extend(items.iter().cloned());
    None
}

/// Replaces a command that is one text by a list.
fn split(section: &[String], command: &mut Value, kind: CommandText) -> Option<WrongValue> {
    let ValueKind::String(text) = &command.kind else {
        return None;
    };
    let words = words(text, kind).and_then(|words| {
        check_program(words.first().map_or("", String::as_str))?;
        Ok(words)
    });
    match words {
        Ok(words) => {
            let items = words.into_iter().map(|word| with_origin_of(command, word));
            command.kind = ValueKind::Array(items.collect());
            None
        }
        Err(error) => {
            let path = [section, &["command".to_owned()]].concat();
            Some(wrong_value(command, path, error.to_string()))
        }
    }
}

/// Returns a value with this text and the origin of another value.
fn with_origin_of(value: &Value, text: String) -> Value {
    let origin = value.origin().map(str::to_owned);
    Value::new(origin.as_ref(), ValueKind::String(text))
}

fn wrong_value(value: &Value, path: Vec<String>, reason: String) -> WrongValue {
    let error = ConfigError::Value {
        origin: value.origin().unwrap_or("configuration").into(),
        key: path.join("."),
        reason,
    };
    WrongValue { path, error }
}

/// The reason why a command cannot be used without a shell.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    /// The program begins with `~`.
    #[error("~ is special in a shell, but no shell is used: write the full path, or ${{HOME}}")]
    Home,
    /// The command begins with a variable assignment.
    #[error(
        "{0}=... sets a variable in a shell, but no shell is used: put it in env, and start with \
         the program"
    )]
    Assignment(String),
    /// A character has a meaning in a shell.
    #[error(
        "{0} is special in a shell, but no shell is used: put it in quotes, write a list with \
         program and arguments, or [\"sh\", \"-c\", \"...\"]"
    )]
    ShellCharacter(char),
    /// A quote is not closed.
    #[error("the quote {0} is not closed")]
    OpenQuote(char),
    /// Nothing follows the last backslash.
    #[error("the command ends with a backslash")]
    LastBackslash,
}

/// Refuses a command that only a shell could interpret: it begins with `~` or a variable
/// assignment.
fn check_program(program: &str) -> Result<(), CommandError> {
    if program.starts_with('~') {
        return Err(CommandError::Home);
    }
    let variable = program.split_once('=').map(|(name, _)| name);
    match variable.filter(|name| is_variable_name(name)) {
        Some(name) => Err(CommandError::Assignment(name.to_owned())),
        None => Ok(()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandText {
    /// A text with references to variables, which are replaced in each word afterwards.
    Template,
    /// A text without references.
    Plain,
}

/// A piece of a command text.
#[derive(Clone, Copy, Debug)]
enum Piece<'a> {
    /// A character, which may be special.
    Character(char),
    /// A part of a word, without special characters.
    Whole(&'a str),
}

impl CommandText {
    fn pieces(self, line: &str) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let mut rest = line;
        while let Some(character) = rest.chars().next() {
            let length = match self {
                Self::Template if rest.starts_with("$${") => Some(3),
                Self::Template if rest.starts_with("${") => rest.find('}').map(|end| end + 1),
                _ => None,
            };
            // An invalid reference is reported when references are replaced.
            let length = length.or_else(|| rest.starts_with("${").then_some(2));
            let (piece, length) = match length {
                Some(length) => (Piece::Whole(&rest[..length]), length),
                None => (Piece::Character(character), character.len_utf8()),
            };
            pieces.push(piece);
            rest = &rest[length..];
        }
        pieces
    }

    /// Adds a piece to a word literally. In a template, a reference is escaped.
    fn add_literally(self, piece: Piece<'_>, word: &mut String) {
        match piece {
            Piece::Character(character) => word.push(character),
            Piece::Whole(text) => {
                if self == Self::Template {
                    word.push('$');
                }
                word.push_str(text);
            }
        }
    }
}

/// Splits a command line into words, with quotes and backslashes as in shells.
fn words(line: &str, kind: CommandText) -> Result<Vec<String>, CommandError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = kind.pieces(line).into_iter().peekable();
    while let Some(piece) = rest.next() {
        let character = match piece {
            Piece::Whole(text) => {
                word.get_or_insert_default().push_str(text);
                continue;
            }
            Piece::Character(character) => character,
        };
        match character {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                read_quoted(character, kind, &mut rest, word)?;
            }
            '\\' => {
                let next = rest.next().ok_or(CommandError::LastBackslash)?;
                kind.add_literally(next, word.get_or_insert_default());
            }
            _ if character.is_whitespace() => words.extend(word.take()),
            _ if character == '$' || SHELL_CHARACTERS.contains(character) => {
                return Err(CommandError::ShellCharacter(character));
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Adds the text up to the closing quote to a word.
fn read_quoted(
    quote: char,
    kind: CommandText,
    rest: &mut std::iter::Peekable<std::vec::IntoIter<Piece<'_>>>,
    word: &mut String,
) -> Result<(), CommandError> {
    while let Some(piece) = rest.next() {
        match piece {
            Piece::Whole(text) => word.push_str(text),
            Piece::Character(character) if character == quote => return Ok(()),
            Piece::Character('\\') if quote == '"' => {
                let is_escaped = |next: &Piece<'_>| match next {
                    Piece::Character(next) => "\"\\$`".contains(*next),
                    Piece::Whole(_) => true,
                };
                match rest.next_if(is_escaped) {
                    Some(next) => kind.add_literally(next, word),
                    None => word.push('\\'),
                }
            }
            Piece::Character(character) => word.push(character),
        }
    }
    Err(CommandError::OpenQuote(quote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        for (line, expected) in [
            ("npx -y  server", vec!["npx", "-y", "server"]),
            (
                r#"a 'b c' "d \"e\" \n" f\ g"#,
                vec!["a", "b c", r#"d "e" \n"#, "f g"],
            ),
            ("a '' \"|\"", vec!["a", "", "|"]),
            ("a ${HOME}/x", vec!["a", "${HOME}/x"]),
            ("  ", vec![]),
        ] {
            for kind in [CommandText::Template, CommandText::Plain] {
                assert_eq!(words(line, kind).unwrap(), expected, "{line}");
            }
        }
        for line in ["a | b", "a > b", "a $HOME", "a; b", "a `b`", "a 'b", "a \\"] {
            assert!(words(line, CommandText::Template).is_err(), "{line}");
        }
    }

    #[test]
    fn references_are_parts_of_words_and_stay_unchanged() {
        for (line, expected) in [
            ("a ${X:-b c}d 'e ${Y}'", vec!["a", "${X:-b c}d", "e ${Y}"]),
            (r#"a "$${X}" $${Y} ${"#, vec!["a", "$${X}", "$${Y}", "${"]),
            // An escaped reference stays literal when references are replaced.
            (r#"a \${X} "\${Y}""#, vec!["a", "$${X}", "$${Y}"]),
        ] {
            assert_eq!(
                words(line, CommandText::Template).unwrap(),
                expected,
                "{line}"
            );
        }
        assert_eq!(
            words(r"a \${X}", CommandText::Plain).unwrap(),
            ["a", "${X}"]
        );
    }

    #[test]
    fn addresses_may_have_names() {
        assert!(address("localhost:8642").unwrap().ip().is_loopback());
        assert_eq!(address("[::1]:1").unwrap().to_string(), "[::1]:1");
        for wrong in ["8642", "localhost", ":1", "localhost:x", "::1:1x"] {
            let error = address(wrong).unwrap_err();
            assert!(matches!(error, AddressError::Form), "{wrong}: {error}");
        }
    }
}
