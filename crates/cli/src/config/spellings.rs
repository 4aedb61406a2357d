//! Other ways to write the same: addresses with names, and programs as other MCP programs write them.

use std::net::{SocketAddr, ToSocketAddrs as _};

use config::{Map, Value, ValueKind};

use super::ConfigError;
use super::tree::join;

/// Characters that mean something to a shell, which is not involved.
const OF_SHELLS: &str = "|&;<>()`";

/// Puts the usual form in the place of the others: addresses by numbers in `listen` and `control`, and
/// a `command` of a list with program and arguments.
///
/// # Errors
///
/// Returns which value cannot be understood.
pub(super) fn usual(tree: &mut Map<String, Value>) -> Result<(), ConfigError> {
    for section in ["listen", "control"] {
        if let Some(ValueKind::Table(table)) = tree.get_mut(section).map(|value| &mut value.kind)
            && let Some(address) = table.get_mut("address")
        {
            number_of(section, address)?;
        }
    }
    if let Some(ValueKind::Table(upstream)) = tree.get_mut("upstream").map(|value| &mut value.kind)
    {
        one_list("upstream", upstream)?;
    }
    let by_name = tree.get_mut("upstreams").map(|value| &mut value.kind);
    if let Some(ValueKind::Table(by_name)) = by_name {
        for (name, upstream) in by_name {
            if let ValueKind::Table(upstream) = &mut upstream.kind {
                one_list(&join("upstreams", name), upstream)?;
            }
        }
    }
    Ok(())
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

fn number_of(section: &str, address_value: &mut Value) -> Result<(), ConfigError> {
    let ValueKind::String(text) = &address_value.kind else {
        return Ok(());
    };
    // What is no address at all is refused where the section is read.
    if text.parse::<SocketAddr>().is_ok() || is_reference(text) || !is_named(text) {
        return Ok(());
    }
    let found =
        address(text).map_err(|reason| refused(address_value, join(section, "address"), reason))?;
    address_value.kind = ValueKind::String(found.to_string());
    Ok(())
}

/// Makes one list of `command` and `args`.
fn one_list(section: &str, upstream: &mut Map<String, Value>) -> Result<(), ConfigError> {
    let args = upstream.remove("args");
    let Some(command) = upstream.get_mut("command") else {
        return match args {
            None => Ok(()),
            Some(args) => {
                let reason = "arguments need a command".into();
                Err(refused(&args, join(section, "args"), reason))
            }
        };
    };
    let origin = command.origin().map(str::to_owned);
    let item = |text: String| Value::new(origin.as_ref(), ValueKind::String(text));
    if let ValueKind::String(text) = &command.kind {
        let list = if args.is_some() {
            vec![text.clone()]
        } else {
            words(text).map_err(|reason| refused(command, join(section, "command"), reason))?
        };
        command.kind = ValueKind::Array(list.into_iter().map(item).collect());
    }
    match (&mut command.kind, args) {
        (ValueKind::Array(all), Some(args)) => match args.kind {
            ValueKind::Array(items) => {
                all.extend(items);
                Ok(())
            }
            _ => Err(refused(
                &args,
                join(section, "args"),
                "expected a list".into(),
            )),
        },
        // What is wrong with the command is said when it is read.
        _ => Ok(()),
    }
}

fn refused(value: &Value, key: String, reason: String) -> ConfigError {
    ConfigError::Value {
        origin: value.origin().unwrap_or("configuration").into(),
        key,
        reason,
    }
}

/// Returns whether a text is a reference to a variable that was not replaced yet.
fn is_reference(text: &str) -> bool {
    text.contains("${")
}

/// Returns the words of a command line, by the rules of quotes and backslashes that shells have.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                quoted(character, &mut rest, word)?;
            }
            '\\' => {
                let next = rest.next().ok_or("a backslash ends the command")?;
                word.get_or_insert_default().push(next);
            }
            _ if character.is_whitespace() => words.extend(word.take()),
            '$' if rest.peek() != Some(&'{') => return Err(of_a_shell('$')),
            _ if OF_SHELLS.contains(character) => return Err(of_a_shell(character)),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Adds what stands between quotes to a word.
fn quoted(
    quote: char,
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    word: &mut String,
) -> Result<(), String> {
    while let Some(character) = rest.next() {
        match character {
            _ if character == quote => return Ok(()),
            '\\' if quote == '"' => {
                let is_escaped = rest.peek().is_some_and(|next| "\"\\$`".contains(*next));
                word.push(if is_escaped {
                    rest.next().unwrap_or_default()
                } else {
                    '\\'
                });
            }
            _ => word.push(character),
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
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
        for line in ["a | b", "a > b", "a $HOME", "a; b", "a `b`", "a 'b", "a \\"] {
            assert!(words(line).is_err(), "{line}");
        }
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
