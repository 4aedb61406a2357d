//! Other ways to write the same: addresses with names, and programs as other MCP programs write them.

use std::net::{SocketAddr, ToSocketAddrs as _};

use config::{Map, Value, ValueKind};

use super::{ConfigError, Wrong};

/// Characters that mean something to a shell, which is not involved.
const OF_SHELLS: &str = "|&;<>()`";

/// Puts the usual form in the place of the others: addresses by numbers in `listen` and `control`, and
/// a `command` of a list with program and arguments. Returns what cannot be understood, which stays as
/// it is.
pub(super) fn usual(tree: &mut Map<String, Value>) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for section in ["listen", "control"] {
        if let Some(ValueKind::Table(table)) = tree.get_mut(section).map(|value| &mut value.kind)
            && let Some(address) = table.get_mut("address")
        {
            let path = [section, "address"].map(str::to_owned).to_vec();
            wrong.extend(number_of(path, address));
        }
    }
    for (path, upstream) in upstreams_of(tree) {
        wrong.extend(one_list(&path, upstream));
    }
    wrong
}

/// Takes the commands of a file apart that are one text each, before references to variables are replaced
/// in them: what a variable holds is a part of a word, whatever its characters. Left alone are those
/// with arguments of their own, and those that `above` has arguments for or replaces. Returns what
/// cannot be understood, which stays as it is.
pub(super) fn split_commands(
    file: &mut Map<String, Value>,
    above: &Map<String, Value>,
) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for (path, upstream) in upstreams_of(file) {
        if upstream.contains_key("args") || has_any(above, &path, &["args", "command"]) {
            continue;
        }
        if let Some(command) = upstream.get_mut("command") {
            wrong.extend(split(&path, command, Text::Template));
        }
    }
    wrong
}

/// Returns the sections of upstreams with their paths, in the order of the names.
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

/// Returns the address that a text names: with a name in the place of a number it is that which the
/// name stands for, of the fourth version of IP where there is one.
///
/// # Errors
///
/// Returns what is expected, or why the name cannot be resolved.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if !is_named(text) {
        return Err(
            "expected an address and a port, such as 127.0.0.1:8642 or localhost:8642".into(),
        );
    }
    let found: Vec<SocketAddr> = text
        .to_socket_addrs()
        .map_err(|error| format!("the name in {text} cannot be resolved: {error}"))?
        .collect();
    let fourth = found.iter().find(|address| address.is_ipv4());
    fourth
        .or(found.first())
        .copied()
        .ok_or_else(|| format!("the name in {text} stands for no address"))
}

/// Returns whether a text is a name and a port.
fn is_named(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(name, port)| {
        !name.is_empty() && !name.contains(':') && port.parse::<u16>().is_ok()
    })
}

fn number_of(path: Vec<String>, address_value: &mut Value) -> Option<Wrong> {
    let ValueKind::String(text) = &address_value.kind else {
        return None;
    };
    // What is no address at all is refused where the section is read.
    if text.parse::<SocketAddr>().is_ok() || text.contains("${") || !is_named(text) {
        return None;
    }
    match address(text) {
        Ok(found) => {
            address_value.kind = ValueKind::String(found.to_string());
            None
        }
        Err(reason) => Some(refused(address_value, path, reason)),
    }
}

/// Makes one list of `command` and `args`.
fn one_list(section: &[String], upstream: &mut Map<String, Value>) -> Option<Wrong> {
    let args = upstream.remove("args");
    let path = |key: &str| [section, &[key.to_owned()]].concat();
    let Some(command) = upstream.get_mut("command") else {
        let reason = "arguments need a command".into();
        return args.map(|args| refused(&args, path("args"), reason));
    };
    let Some(args) = args else {
        return split(section, command, Text::Plain);
    };
    if let ValueKind::String(text) = &command.kind {
        let text = text.clone();
        if let Err(reason) = check_program(&text) {
            return Some(refused(command, path("command"), reason));
        }
        command.kind = ValueKind::Array(vec![like(command, text)]);
    }
    // What is wrong with the command is said when it is read.
    let ValueKind::Array(all) = &mut command.kind else {
        return None;
    };
    let ValueKind::Array(items) = &args.kind else {
        return Some(refused(&args, path("args"), "expected a list".into()));
    };
    all.extend(items.iter().cloned());
    None
}

/// Puts a list in the place of a command that is one text.
fn split(section: &[String], command: &mut Value, kind: Text) -> Option<Wrong> {
    let ValueKind::String(text) = &command.kind else {
        return None;
    };
    let words = words(text, kind).and_then(|words| {
        check_program(words.first().map_or("", String::as_str))?;
        Ok(words)
    });
    match words {
        Ok(words) => {
            let items = words.into_iter().map(|word| like(command, word));
            command.kind = ValueKind::Array(items.collect());
            None
        }
        Err(reason) => {
            let path = [section, &["command".to_owned()]].concat();
            Some(refused(command, path, reason))
        }
    }
}

/// Returns a text that comes from where another value does.
fn like(value: &Value, text: String) -> Value {
    let origin = value.origin().map(str::to_owned);
    Value::new(origin.as_ref(), ValueKind::String(text))
}

fn refused(value: &Value, path: Vec<String>, reason: String) -> Wrong {
    let error = ConfigError::Value {
        origin: value.origin().unwrap_or("configuration").into(),
        key: path.join("."),
        reason,
    };
    Wrong { path, error }
}

/// Checks that a command does not begin with what a shell would make something else of.
fn check_program(program: &str) -> Result<(), String> {
    if program.starts_with('~') {
        return Err(
            "~ means something to a shell, and no shell is involved: write the whole path, or \
                    ${HOME}"
                .into(),
        );
    }
    let variable = program.split_once('=').map(|(name, _)| name);
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && (name.bytes()).all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match variable.filter(|name| is_name(name)) {
        Some(name) => Err(format!(
            "{name}=... sets a variable in a shell, and no shell is involved: put it into env, and begin \
             with the program"
        )),
        None => Ok(()),
    }
}

/// The parts of a command that is one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    /// References to variables are replaced in each word afterwards.
    Template,
    /// It is as it is.
    Plain,
}

/// A part of a command that is one text.
#[derive(Clone, Copy, Debug)]
enum Piece<'a> {
    /// A character, which may mean something.
    Character(char),
    /// A part of a word, whatever its characters.
    Whole(&'a str),
}

impl Text {
    fn pieces(self, line: &str) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let mut rest = line;
        while let Some(character) = rest.chars().next() {
            let length = match self {
                Self::Template if rest.starts_with("$${") => Some(3),
                Self::Template if rest.starts_with("${") => rest.find('}').map(|end| end + 1),
                _ => None,
            };
            // What is no reference is told when references are replaced.
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

    /// Adds a piece to a word that is to be taken literally.
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

/// Returns the words of a command line, by the rules of quotes and backslashes that shells have.
fn words(line: &str, kind: Text) -> Result<Vec<String>, String> {
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
                quoted(character, kind, &mut rest, word)?;
            }
            '\\' => {
                let next = rest.next().ok_or("a backslash ends the command")?;
                kind.add_literally(next, word.get_or_insert_default());
            }
            _ if character.is_whitespace() => words.extend(word.take()),
            _ if character == '$' || OF_SHELLS.contains(character) => {
                return Err(of_a_shell(character));
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Adds what stands between quotes to a word.
fn quoted(
    quote: char,
    kind: Text,
    rest: &mut std::iter::Peekable<std::vec::IntoIter<Piece<'_>>>,
    word: &mut String,
) -> Result<(), String> {
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
    Err(format!("the quote {quote} is not closed"))
}

fn of_a_shell(character: char) -> String {
    format!(
        "{character} means something to a shell, and no shell is involved: put it in quotes, write a \
         list with program and arguments, or [\"sh\", \"-c\", \"...\"]"
    )
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
            for kind in [Text::Template, Text::Plain] {
                assert_eq!(words(line, kind).unwrap(), expected, "{line}");
            }
        }
        for line in ["a | b", "a > b", "a $HOME", "a; b", "a `b`", "a 'b", "a \\"] {
            assert!(words(line, Text::Template).is_err(), "{line}");
        }
    }

    #[test]
    fn references_are_parts_of_words_and_stay_what_they_are() {
        for (line, expected) in [
            ("a ${X:-b c}d 'e ${Y}'", vec!["a", "${X:-b c}d", "e ${Y}"]),
            (r#"a "$${X}" $${Y} ${"#, vec!["a", "$${X}", "$${Y}", "${"]),
            // What a backslash makes literal stays so when references are replaced.
            (r#"a \${X} "\${Y}""#, vec!["a", "$${X}", "$${Y}"]),
        ] {
            assert_eq!(words(line, Text::Template).unwrap(), expected, "{line}");
        }
        assert_eq!(words(r"a \${X}", Text::Plain).unwrap(), ["a", "${X}"]);
    }

    #[test]
    fn addresses_may_have_names() {
        assert!(address("localhost:8642").unwrap().ip().is_loopback());
        assert_eq!(address("[::1]:1").unwrap().to_string(), "[::1]:1");
        for wrong in ["8642", "localhost", ":1", "localhost:x", "::1:1x"] {
            assert!(address(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }
}
