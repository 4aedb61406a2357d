//! References to variables in the notation of a client, rewritten in that of riglm.

use crate::configuration::client::ReferenceSyntax;
use crate::configuration::server::ServerNote;

/// Rewrites texts of one client, and collects notes about them.
#[derive(Debug)]
pub(super) struct TextTranslator<'a> {
    pub(super) references: &'a [ReferenceSyntax],
    /// The home directory, for references to it.
    pub(super) home: &'a str,
    pub(super) notes: Vec<ServerNote>,
}

/// A piece of a text.
enum Piece {
    Literal(String),
    Reference {
        name: String,
        default: Option<String>,
    },
}

impl TextTranslator<'_> {
    /// Returns a text in the notation of riglm; `member` names its place.
    pub(super) fn translate(&mut self, text: &str, member: &str) -> String {
        let mut translation = String::with_capacity(text.len());
        let mut literal = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let found = matches!(first, '$' | '{' | '%').then(|| self.piece(rest, member));
            match found.flatten() {
                Some((Piece::Literal(text), n_bytes)) => {
                    literal.push_str(&text);
                    rest = &rest[n_bytes..];
                }
                Some((Piece::Reference { name, default }, n_bytes)) => {
                    push_literal(&mut translation, &literal);
                    literal.clear();
                    translation.push_str("${");
                    translation.push_str(&name);
                    if let Some(default) = default {
                        translation.push_str(":-");
                        translation.push_str(&default);
                    }
                    translation.push('}');
                    rest = &rest[n_bytes..];
                }
                None => {
                    literal.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        push_literal(&mut translation, &literal);
        translation
    }

    /// Adds a note, once.
    pub(super) fn note(&mut self, note: ServerNote) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Returns a reference to a variable.
    pub(super) fn reference(name: &str) -> String {
        format!("${{{name}}}")
    }

    fn knows(&self, syntax: ReferenceSyntax) -> bool {
        self.references.contains(&syntax)
    }

    /// Returns the piece that a text begins with, and its length.
    fn piece(&mut self, text: &str, member: &str) -> Option<(Piece, usize)> {
        if let Some(after) = text.strip_prefix("${{") {
            let (inside, _) = after.split_once("}}")?;
            let name = inside.trim().strip_prefix("secrets.")?;
            if !self.knows(ReferenceSyntax::Secrets) || !is_name(name) {
                return None;
            }
            self.note(ServerNote::ClientSecret {
                variable: name.to_owned(),
            });
            return Some((reference(name), inside.len() + 5));
        }
        if let Some(after) = text.strip_prefix("${") {
            let (inside, _) = after.split_once('}')?;
            let piece = self.braces(inside, member)?;
            return Some((piece, inside.len() + 3));
        }
        if text.starts_with("$(") && self.knows(ReferenceSyntax::Substitution) {
            self.note(ServerNote::Substitution {
                member: member.to_owned(),
            });
            return None;
        }
        if let Some(after) = text.strip_prefix("$env:") {
            let name = name_at_start(after)?;
            return self
                .knows(ReferenceSyntax::EnvBraces)
                .then(|| (reference(name), name.len() + 5));
        }
        if let Some(after) = text.strip_prefix('$') {
            let name = name_at_start(after)?;
            return self
                .knows(ReferenceSyntax::Dollar)
                .then(|| (reference(name), name.len() + 1));
        }
        if let Some(after) = text.strip_prefix('{') {
            let (inside, _) = after.split_once('}')?;
            if !self.knows(ReferenceSyntax::EnvOnly) {
                return None;
            }
            if inside.starts_with("file:") {
                self.note(ServerNote::FileReference {
                    member: member.to_owned(),
                });
                return None;
            }
            let name = inside
                .strip_prefix("env:")
                .map(str::trim)
                .filter(|it| is_name(it))?;
            return Some((reference(name), inside.len() + 2));
        }
        let (inside, _) = text.strip_prefix('%')?.split_once('%')?;
        (self.knows(ReferenceSyntax::Percent) && is_name(inside))
            .then(|| (reference(inside), inside.len() + 2))
    }

    /// Returns the meaning of `${inside}`.
    fn braces(&mut self, inside: &str, member: &str) -> Option<Piece> {
        if let Some(name) = inside.strip_prefix("env:") {
            let is_known = self.knows(ReferenceSyntax::EnvBraces) && is_name(name);
            return is_known.then(|| reference(name));
        }
        if let Some(id) = inside.strip_prefix("input:") {
            if !self.knows(ReferenceSyntax::Input) {
                return None;
            }
            let variable = variable_of_input(id);
            let piece = reference(&variable);
            self.note(ServerNote::Prompt {
                id: id.to_owned(),
                variable,
            });
            return Some(piece);
        }
        if inside.starts_with("file:") {
            self.note(ServerNote::FileReference {
                member: member.to_owned(),
            });
            return None;
        }
        if self.knows(ReferenceSyntax::Workspace) {
            match inside {
                "userHome" => return Some(Piece::Literal(self.home.to_owned())),
                "pathSeparator" | "/" => {
                    return Some(Piece::Literal(std::path::MAIN_SEPARATOR.to_string()));
                }
                "workspaceFolder" | "workspaceFolderBasename" | "CLAUDE_PROJECT_DIR" => {
                    self.note(ServerNote::PerProject {
                        reference: format!("${{{inside}}}"),
                    });
                    return None;
                }
                inside if inside.starts_with("workspaceFolder:") => {
                    self.note(ServerNote::PerProject {
                        reference: "${workspaceFolder}".to_owned(),
                    });
                    return None;
                }
                _ => {}
            }
        }
        if !self.knows(ReferenceSyntax::Braces) {
            return None;
        }
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (inside, None),
        };
        is_name(name).then(|| Piece::Reference {
            name: name.to_owned(),
            default,
        })
    }
}

fn reference(name: &str) -> Piece {
    Piece::Reference {
        name: name.to_owned(),
        default: None,
    }
}

fn push_literal(translation: &mut String, literal: &str) {
    // A dollar sign before a reference would turn it into an escape, and cannot be written.
    translation.push_str(&literal.replace("${", "$${"));
}

/// Returns the variable in place of a value that the client asks for.
fn variable_of_input(id: &str) -> String {
    let upper = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let name: String = id.chars().map(upper).collect();
    if is_name(&name) {
        name
    } else {
        format!("INPUT_{name}")
    }
}

fn name_at_start(text: &str) -> Option<&str> {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let name = &text[..text.find(is_end).unwrap_or(text.len())];
    is_name(name).then_some(name)
}

/// Returns whether a variable can have this name.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && (name.bytes()).all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReferenceSyntax as Syntax;

    fn translate(references: &[Syntax], text: &str) -> (String, Vec<String>) {
        let mut translator = TextTranslator {
            references,
            home: "/home/me",
            notes: Vec::new(),
        };
        let translation = translator.translate(text, "env");
        let notes = translator.notes.iter().map(ToString::to_string).collect();
        (translation, notes)
    }

    #[test]
    fn references_of_a_client_become_references_of_riglm() {
        let cases: [(&[Syntax], &str, &str); 14] = [
            (&[Syntax::Braces], "a ${V}${W:-d e}", "a ${V}${W:-d e}"),
            (&[Syntax::Braces], "$V ${1V} ${", "$V $${1V} $${"),
            (&[Syntax::Dollar], "Bearer $V-x ${V}", "Bearer ${V}-x $${V}"),
            (&[Syntax::Dollar], "$5 $$ $", "$5 $$ $"),
            (&[Syntax::EnvBraces], "${env:V} $env:W", "${V} ${W}"),
            (&[Syntax::EnvBraces], "${V} $V", "$${V} $V"),
            (&[Syntax::EnvOnly], "{env:V} {x}", "${V} {x}"),
            (
                &[Syntax::Percent],
                "%V%\\bin 100% of %",
                "${V}\\bin 100% of %",
            ),
            (&[Syntax::Secrets], "${{ secrets.V }}", "${V}"),
            (&[Syntax::Input], "${input:my-key}", "${MY_KEY}"),
            (&[Syntax::Input], "${input:1}", "${INPUT_1}"),
            (&[Syntax::Workspace], "${userHome}/x", "/home/me/x"),
            (&[], "${V} $V {env:V} %V% é", "$${V} $V {env:V} %V% é"),
            (
                &[Syntax::Substitution, Syntax::Dollar],
                "$(cat x) $V",
                "$(cat x) ${V}",
            ),
        ];
        for (references, text, expected) in cases {
            assert_eq!(translate(references, text).0, expected, "{text}");
        }
    }

    #[test]
    fn references_that_riglm_has_no_form_for_are_reported() {
        let (text, notes) = translate(&[Syntax::Workspace], "${workspaceFolder}/a");
        assert_eq!(text, "$${workspaceFolder}/a");
        assert!(notes[0].contains("one project"), "{notes:?}");
        let (text, notes) = translate(&[Syntax::Substitution], "$(pass show key)");
        assert_eq!(text, "$(pass show key)");
        assert_eq!(
            notes,
            ["the value of \"env\" runs a command, which is not carried over"]
        );
        let (_, notes) = translate(&[Syntax::EnvOnly], "{file:~/.key}");
        assert_eq!(notes.len(), 1);
    }
}
