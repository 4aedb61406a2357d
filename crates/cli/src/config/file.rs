//! The file layer: location, parsing and `${VARIABLE}` references.

use std::path::{Path, PathBuf};

use config::{FileFormat, Map, Source, Value, ValueKind};

use super::interpolation::{InterpolationError, interpolate};
use super::tree::join;
use super::{ConfigError, Environment, ProcessEnv, WrongValue};

/// The default file names, in order of precedence.
const NAMES: [&str; 3] = ["riglm.toml", "riglm.yaml", "riglm.yml"];

#[derive(Clone, Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
    /// The values, with references as written.
    values: Map<String, Value>,
}

impl ConfigFile {
    /// Finds and reads the file: the one that is `named`, the one in `RIGLM_CONFIG`, or the first
    /// that exists in the working directory or in the platform's configuration directory.
    pub(super) fn find(
        named: Option<&Path>,
        surroundings: &ProcessEnv,
    ) -> Result<Option<Self>, ConfigError> {
        let path = Self::locate(named, surroundings);
        path.map(|path| Self::read(&path)).transpose()
    }

    /// Returns the path of the file that [`Self::find`] reads.
    pub(super) fn locate(named: Option<&Path>, surroundings: &ProcessEnv) -> Option<PathBuf> {
        let named = named
            .map(Path::to_path_buf)
            .or_else(|| {
                surroundings
                    .environment
                    .value("RIGLM_CONFIG")
                    .map(PathBuf::from)
            })
            .map(|path| surroundings.working_directory.join(path));
        named.or_else(|| {
            let user = surroundings
                .config_directory
                .as_ref()
                .map(|directory| directory.join("riglm"));
            [Some(surroundings.working_directory.clone()), user]
                .into_iter()
                .flatten()
                .flat_map(|directory| NAMES.map(|name| directory.join(name)))
                .find(|path| path.is_file())
        })
    }

    fn read(path: &Path) -> Result<Self, ConfigError> {
        let (format, format_name) = match path.extension().and_then(|ending| ending.to_str()) {
            Some("toml") => (FileFormat::Toml, "TOML"),
            Some("yaml" | "yml") => (FileFormat::Yaml, "YAML"),
            _ => return Err(ConfigError::UnknownFormat { path: path.into() }),
        };
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.into(),
            source,
        })?;
        // Some editors write a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let parsed = config::File::from_str(text, format)
            .collect()
            .map_err(|error| ConfigError::Syntax {
                path: path.into(),
                format: format_name,
                reason: error.to_string(),
            })?;
        Ok(Self {
            path: path.into(),
            values: with_origin(parsed, &path.display().to_string()),
        })
    }

    /// Returns the values of the file, with references as written.
    pub(super) fn as_written(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Replaces the references in values of the file. Returns the values and the errors; values
    /// with an error stay as written.
    pub(super) fn replace_references(
        &self,
        mut values: Map<String, Value>,
        environment: &Environment,
    ) -> (Map<String, Value>, Vec<WrongValue>) {
        let mut wrong = Vec::new();
        for (key, value) in &mut values {
            let place = ValueLocation {
                key: key.clone(),
                path: vec![key.clone()],
            };
            self.replace_in_value(&place, value, environment, &mut wrong);
        }
        // Tables are unordered; sorting makes the output deterministic.
        wrong.sort_by_key(|wrong| wrong.error.to_string());
        (values, wrong)
    }

    fn replace_in_value(
        &self,
        place: &ValueLocation,
        value: &mut Value,
        environment: &Environment,
        wrong: &mut Vec<WrongValue>,
    ) {
        match &mut value.kind {
            ValueKind::String(text) => {
                let (path, key) = (self.path.clone(), place.key.clone());
                let error = match interpolate(text, environment) {
                    Ok(completed) => {
                        *text = completed;
                        return;
                    }
                    Err(InterpolationError::NotSet(variable)) => ConfigError::VariableNotSet {
                        path,
                        key,
                        variable,
                    },
                    Err(InterpolationError::Malformed) => ConfigError::Reference { path, key },
                };
                wrong.push(WrongValue {
                    path: place.path.clone(),
                    error,
                });
            }
            ValueKind::Table(table) => {
                for (part, value) in table {
                    let place = ValueLocation {
                        key: join(&place.key, part),
                        path: [place.path.as_slice(), std::slice::from_ref(part)].concat(),
                    };
                    self.replace_in_value(&place, value, environment, wrong);
                }
            }
            ValueKind::Array(items) => {
                for (position, value) in items.iter_mut().enumerate() {
                    let place = ValueLocation {
                        key: format!("{}[{position}]", place.key),
                        path: place.path.clone(),
                    };
                    self.replace_in_value(&place, value, environment, wrong);
                }
            }
            _ => {}
        }
    }
}

struct ValueLocation {
    /// The path in messages.
    key: String,
    /// The path in the tree; for an item of a list, the path of the list.
    path: Vec<String>,
}

/// Marks every value of a table with `origin`. YAML keys without a value are left out.
fn with_origin(table: Map<String, Value>, origin: &String) -> Map<String, Value> {
    table
        .into_iter()
        .filter(|(_, value)| !matches!(value.kind, ValueKind::Nil))
        .map(|(key, value)| (key, mark_origin(value, origin)))
        .collect()
}

fn mark_origin(value: Value, origin: &String) -> Value {
    let kind = match value.kind {
        ValueKind::Table(table) => ValueKind::Table(with_origin(table, origin)),
        ValueKind::Array(items) => ValueKind::Array(
            items
                .into_iter()
                .map(|item| mark_origin(item, origin))
                .collect(),
        ),
        other => other,
    };
    Value::new(Some(origin), kind)
}
