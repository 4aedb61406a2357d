//! The file `secrets.env` in the data directory: values for `${NAME}` references in the
//! configuration.
//!
//! A service has no environment of a shell, and the configuration should have no secrets. The file
//! has lines such as `NAME=value`. Variables of the environment win.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{ConfigError, is_variable_name};
use crate::announcement::is_absent;

/// The name of the file.
const NAME: &str = "secrets.env";
/// The maximum size of the file.
const MAX_BYTES: u64 = 1 << 20;

/// The file of secrets of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct SecretsFile {
    path: PathBuf,
}

impl SecretsFile {
    /// Returns the file of a data directory, which may be missing.
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self {
            path: data_dir.join(NAME),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the values by name; none if there is no file.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Secrets`] for a file that other users can read, that cannot be read,
    /// or that has a malformed line. The error has no values.
    pub(crate) fn read(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        self.text()?
            .map_or_else(|| Ok(BTreeMap::new()), |text| self.values(&text))
    }

    /// Returns the text of the file; `None` if there is none.
    fn text(&self) -> Result<Option<String>, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable {
            path: self.path.clone(),
            source,
        };
        let file = match std::fs::File::open(&self.path) {
            Err(error) if is_absent(&error) => return Ok(None),
            opened => opened.map_err(unreadable)?,
        };
        if file.metadata().map_err(unreadable)?.mode() & 0o077 != 0 {
            return Err(self.refusal(None, "other users can read it: set its mode to 600"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(self.refusal(None, "it has more than 1 MiB"));
        }
        String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| self.refusal(None, "it is not UTF-8 text"))
    }

    fn values(&self, text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut values = BTreeMap::new();
        for (line, number) in text.lines().zip(1_usize..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let refusal = |reason| self.refusal(Some(number), reason);
            let line = line.strip_prefix("export ").map_or(line, str::trim_start);
            let (name, value) =
                (line.split_once('=')).ok_or_else(|| refusal("expected NAME=value"))?;
            let name = name.trim_end();
            if !is_variable_name(name) {
                return Err(refusal("the name may have letters, digits and _ only"));
            }
            let value = unquote(value.trim())
                .ok_or_else(|| refusal("the quotes of the value are unbalanced"))?;
            if values.insert(name.to_owned(), value).is_some() {
                return Err(refusal("the name occurs twice"));
            }
        }
        Ok(values)
    }

    fn refusal(&self, line: Option<usize>, reason: &'static str) -> ConfigError {
        let line = line.map_or_else(String::new, |line| format!(", line {line}"));
        ConfigError::Secrets {
            place: format!("{}{line}", self.path.display()),
            reason,
        }
    }

    /// Adds values at the end of the file, and creates it if it is missing. The other lines stay.
    ///
    /// # Errors
    ///
    /// Returns the error of reading or writing. The old file is there then.
    pub(crate) fn add(&self, values: &BTreeMap<String, String>) -> Result<(), ConfigError> {
        if values.is_empty() {
            return Ok(());
        }
        let mut text = self.text()?.unwrap_or_default();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for (name, value) in values {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}={}", quote(value));
        }
        // A value that this file cannot have would be found here, not at the next start.
        self.values(&text)?;
        self.replace(&text)
            .map_err(|source| ConfigError::Unwritable {
                path: self.path.clone(),
                source,
            })
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        // Created with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        std::fs::File::open(directory)?.sync_all()
    }
}

/// Returns the value that a text stands for; `None` if its quotes are unbalanced.
fn unquote(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('\'') {
        let (value, after) = rest.split_once('\'')?;
        return is_comment(after).then(|| value.to_owned());
    }
    let Some(rest) = text.strip_prefix('"') else {
        // A comment begins after white space, so that a value may contain the character.
        let end = text.match_indices('#').map(|(at, _)| at);
        let end = end
            .into_iter()
            .find(|at| text[..*at].ends_with([' ', '\t']));
        return Some(text[..end.unwrap_or(text.len())].trim_end().to_owned());
    };
    let mut value = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return is_comment(characters.as_str()).then_some(value),
            '\\' => value.push(match characters.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            other => value.push(other),
        }
    }
}

fn is_comment(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with('#')
}

fn quote(value: &str) -> String {
    let mut quoted = String::from("\"");
    for character in value.chars() {
        match character {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '"' | '\\' => quoted.extend(['\\', character]),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, SecretsFile) {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretsFile::of(directory.path());
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        (directory, file)
    }

    #[test]
    fn lines_have_names_and_values() {
        let (_directory, file) = file(
            "\u{feff}# a comment\n\nA=plain # not the value\r\nexport B = 'q # \"x' # comment\n\
             C=\"a\\n\\\"\\\\$\"\nD=\nE=a#b=c\n",
        );
        let values = file.read().unwrap();
        let values: Vec<(&str, &str)> = (values
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())))
        .collect();
        let expected = [
            ("A", "plain"),
            ("B", "q # \"x"),
            ("C", "a\n\"\\$"),
            ("D", ""),
            ("E", "a#b=c"),
        ];
        assert_eq!(values, expected);
        let directory = tempfile::tempdir().unwrap();
        assert!(SecretsFile::of(directory.path()).read().unwrap().is_empty());
    }

    #[test]
    fn malformed_lines_are_named_without_their_values() {
        for (text, expected) in [
            ("A=1\ns3cret", "secrets.env, line 2: expected NAME=value"),
            ("s3cret key=1", "line 1: the name may have"),
            (
                "A=\"s3cret",
                "line 1: the quotes of the value are unbalanced",
            ),
            ("A='s3cret' x", "line 1: the quotes"),
            ("A=s3cret\nA=2", "line 2: the name occurs twice"),
        ] {
            let (_directory, file) = file(text);
            let error = file.read().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let (_directory, file) = file("A=1");
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(
            error.ends_with("other users can read it: set its mode to 600"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn added_values_are_read_back(value in any::<String>(), other in "[A-Z]{1,3}") {
            let (_directory, file) = file("# mine\nZ_1=1");
            let values = BTreeMap::from([(other, value)]);
            file.add(&values).unwrap();
            let mut expected = values;
            expected.insert("Z_1".into(), "1".into());
            prop_assert_eq!(file.read().unwrap(), expected);
            let text = std::fs::read_to_string(file.path()).unwrap();
            prop_assert!(text.starts_with("# mine\nZ_1=1\n"));
            prop_assert_eq!(file.path().metadata().unwrap().mode() & 0o777, 0o600);
        }
    }
}
