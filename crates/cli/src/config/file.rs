//! The layer of the file: which one it is, and what it says.

use std::path::{Path, PathBuf};

use config::{FileFormat, Map, Source, Value, ValueKind};

use super::interpolation::{InterpolationError, interpolated};
use super::tree::join;
use super::{ConfigError, Environment, Surroundings, Wrong};

/// The names that are looked for, in this order.
const NAMES: [&str; 3] = ["riglm.toml", "riglm.yaml", "riglm.yml"];

/// A configuration file that was read.
#[derive(Clone, Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
    /// What it says, with references as they are written.
    values: Map<String, Value>,
}

impl ConfigFile {
    /// Finds and reads the file that is `named`, the one that `RIGLM_CONFIG` names, or the first
    /// that exists in the working directory or in the platform's directory for configuration.
    pub(super) fn find(
        named: Option<&Path>,
        surroundings: &Surroundings,
    ) -> Result<Option<Self>, ConfigError> {
        let path = Self::locate(named, surroundings);
        path.map(|path| Self::read(&path)).transpose()
    }

    /// Returns the path of the file that [`Self::find`] reads.
    pub(super) fn locate(named: Option<&Path>, surroundings: &Surroundings) -> Option<PathBuf> {
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

    /// Returns what the file says, with references as they are written.
    pub(super) fn as_written(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Returns values of the file with references replaced by what they stand for, and those whose
    /// references stand for nothing, as they are written.
    pub(super) fn completed(
        &self,
        mut values: Map<String, Value>,
        environment: &Environment,
    ) -> (Map<String, Value>, Vec<Wrong>) {
        let mut wrong = Vec::new();
        for (key, value) in &mut values {
            let place = Place {
                key: key.clone(),
                path: vec![key.clone()],
            };
            self.complete(&place, value, environment, &mut wrong);
        }
        // Tables have no order of their own.
        wrong.sort_by_key(|wrong| wrong.error.to_string());
        (values, wrong)
    }

    fn complete(
        &self,
        place: &Place,
        value: &mut Value,
        environment: &Environment,
        wrong: &mut Vec<Wrong>,
    ) {
        match &mut value.kind {
            ValueKind::String(text) => {
                let (path, key) = (self.path.clone(), place.key.clone());
                let error = match interpolated(text, environment) {
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
                wrong.push(Wrong {
                    path: place.path.clone(),
                    error,
                });
            }
            ValueKind::Table(table) => {
                for (part, value) in table {
                    let place = Place {
                        key: join(&place.key, part),
                        path: [place.path.as_slice(), std::slice::from_ref(part)].concat(),
                    };
                    self.complete(&place, value, environment, wrong);
                }
            }
            ValueKind::Array(items) => {
                for (position, value) in items.iter_mut().enumerate() {
                    let place = Place {
                        key: format!("{}[{position}]", place.key),
                        path: place.path.clone(),
                    };
                    self.complete(&place, value, environment, wrong);
                }
            }
            _ => {}
        }
    }
}

/// Where a value stands.
struct Place {
    /// Its path as people are told it.
    key: String,
    /// Its path in the tree, or that of the list that it is a part of.
    path: Vec<String>,
}

/// Returns the table with every value marked as coming from `origin`. Keys without a value, which
/// YAML allows, are left out.
fn with_origin(table: Map<String, Value>, origin: &String) -> Map<String, Value> {
    table
        .into_iter()
        .filter(|(_, value)| !matches!(value.kind, ValueKind::Nil))
        .map(|(key, value)| (key, marked(value, origin)))
        .collect()
}

fn marked(value: Value, origin: &String) -> Value {
    let kind = match value.kind {
        ValueKind::Table(table) => ValueKind::Table(with_origin(table, origin)),
        ValueKind::Array(items) => {
            ValueKind::Array(items.into_iter().map(|item| marked(item, origin)).collect())
        }
        other => other,
    };
    Value::new(Some(origin), kind)
}
