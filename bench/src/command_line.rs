//! Command lines of proxies: words with quotes, and placeholders in braces.

use std::str::FromStr;

use anyhow::{Context as _, bail};

/// A proxy that is started with a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyCommand {
    /// The name in the report.
    pub(crate) name: String,
    words: Vec<Word>,
}

/// A word of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Word {
    text: String,
    is_quoted: bool,
}

/// The values of placeholders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placeholders {
    /// `{upstream}`: the URL of the upstream.
    pub(crate) upstream: String,
    /// `{upstream_port}`: the port of the upstream.
    pub(crate) upstream_port: String,
    /// `{stdio}`: the command of an upstream over standard input and output, as words.
    pub(crate) stdio: Vec<String>,
    /// `{port}`: the port on which the proxy must listen.
    pub(crate) port: String,
    /// `{path}`: the path of its endpoint.
    pub(crate) path: String,
    /// `{data}`: a temporary folder.
    pub(crate) data: String,
}

impl ProxyCommand {
    /// Returns whether the command line has a placeholder.
    pub(crate) fn has(&self, placeholder: &str) -> bool {
        self.words
            .iter()
            .any(|word| word.text.contains(placeholder))
    }

    /// Returns the words with all placeholders replaced.
    ///
    /// A word that is `{stdio}` without quotes becomes several words. In quotes or in a longer word
    /// it becomes the command as one text.
    pub(crate) fn resolve(&self, values: &Placeholders) -> Vec<String> {
        let mut resolved = Vec::new();
        for Word { text, is_quoted } in &self.words {
            if text == "{stdio}" && !is_quoted {
                resolved.extend(values.stdio.iter().cloned());
            } else {
                resolved.push(replace(text, values));
            }
        }
        resolved
    }
}

/// Replaces placeholders in one pass, so that nothing in a value is replaced.
fn replace(word: &str, values: &Placeholders) -> String {
    let stdio: Vec<String> = values.stdio.iter().map(|word| quote(word)).collect();
    let stdio = stdio.join(" ");
    let all = [
        ("{upstream}", &values.upstream),
        ("{upstream_port}", &values.upstream_port),
        ("{stdio}", &stdio),
        ("{port}", &values.port),
        ("{path}", &values.path),
        ("{data}", &values.data),
    ];
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = all.iter().find(|(name, _)| rest.starts_with(name));
        let (length, value) = known.map_or((1, "{"), |(name, value)| (name.len(), value.as_str()));
        text.push_str(value);
        rest = &rest[length..];
    }
    text + rest
}

/// Returns a word as it is written in a command line.
fn quote(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-=:,".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl FromStr for ProxyCommand {
    type Err = anyhow::Error;

    /// Parses `NAME=COMMAND LINE`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, line) = text
            .split_once('=')
            .context("a proxy is written as NAME=COMMAND LINE")?;
        let name = name.trim();
        if name.is_empty() || ["direct", "relay", "riglm"].contains(&name) {
            bail!("`{name}` is no name for a proxy");
        }
        let words = split(line).with_context(|| format!("the command line of {name}"))?;
        if words.is_empty() {
            bail!("the command line of {name} is empty");
        }
        let command = Self {
            name: name.to_owned(),
            words,
        };
        let names_upstream = ["{upstream}", "{upstream_port}", "{stdio}"]
            .iter()
            .any(|placeholder| command.has(placeholder));
        if !command.has("{port}") || !names_upstream {
            bail!(
                "the command line of {name} needs {{port}} and one of {{upstream}}, \
                 {{upstream_port}} and {{stdio}}"
            );
        }
        Ok(command)
    }
}

/// Splits a line into words: single quotes keep everything, double quotes all but a backslash
/// before `"`, `\`, `$` and a backtick, and outside of quotes a backslash keeps the next character.
fn split(line: &str) -> anyhow::Result<Vec<Word>> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match character {
            '\'' => {
                word.is_quoted = true;
                loop {
                    match characters.next().context("a single quote is not closed")? {
                        '\'' => break,
                        other => word.text.push(other),
                    }
                }
            }
            '"' => {
                word.is_quoted = true;
                loop {
                    match characters.next().context("a double quote is not closed")? {
                        '"' => break,
                        '\\' => {
                            let next = characters.next().context("a double quote is not closed")?;
                            if !['"', '\\', '$', '`'].contains(&next) {
                                word.text.push('\\');
                            }
                            word.text.push(next);
                        }
                        other => word.text.push(other),
                    }
                }
            }
            '\\' => {
                let next = characters.next().context("a backslash ends the line")?;
                word.text.push(next);
            }
            other => word.text.push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_like_by_a_shell() {
        let cases: [(&str, &[&str]); 6] = [
            ("a  b\tc", &["a", "b", "c"]),
            ("a 'b c'd \"\"", &["a", "b cd", ""]),
            (r#""a \" \n \\" x\ y"#, &[r#"a " \n \"#, "x y"]),
            (r"'a\' b", &[r"a\", "b"]),
            ("", &[]),
            ("{data}/x --a={port}", &["{data}/x", "--a={port}"]),
        ];
        for (line, words) in cases {
            let split = split(line).unwrap();
            let texts: Vec<&str> = split.iter().map(|word| word.text.as_str()).collect();
            assert_eq!(texts, words, "{line}");
        }
        for wrong in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn placeholders_are_replaced_once() {
        let line = "p=run --to={upstream} {port}{path} {stdio} '{stdio}' {x} {";
        let proxy: ProxyCommand = line.parse().unwrap();
        let values = Placeholders {
            upstream: "http://{port}".into(),
            stdio: vec!["a".into(), "b c".into()],
            port: "8".into(),
            path: "/mcp".into(),
            ..Placeholders::default()
        };
        let words = proxy.resolve(&values);
        let expected = [
            "run",
            "--to=http://{port}",
            "8/mcp",
            "a",
            "b c",
            "a 'b c'",
            "{x}",
            "{",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn proxies_need_a_name_a_port_and_an_upstream() {
        for wrong in [
            "",
            "run {port} {upstream}",
            "=run {port} {upstream}",
            "riglm=run {port} {upstream}",
            "p=",
            "p=run {port}",
            "p=run {upstream}",
            "p=run '{port} {upstream}",
        ] {
            assert!(wrong.parse::<ProxyCommand>().is_err(), "{wrong}");
        }
    }
}
