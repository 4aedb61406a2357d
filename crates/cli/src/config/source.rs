//! Where the configuration comes from, and how all of its layers become one.

use std::path::PathBuf;

use config::{Map, Value, ValueKind};

use super::file::ConfigFile;
use super::leaves::Leaves;
use super::load::{config_of, data_directory, merged};
use super::show::shown_of;
use super::tuning::TuningKeys;
use super::{ConfigError, Loaded, LogFormat, Overrides, Surroundings, TuningDocument, TuningFile};

/// Where a process gets its configuration from.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    overrides: Overrides,
    surroundings: Surroundings,
}

/// What becomes of the tuning when the configuration is loaded.
#[derive(Clone, Debug)]
pub enum TuningUse {
    /// What the data directory has. What cannot be used is left out, so that the process starts.
    IfSound,
    /// What the data directory has; if it cannot be used, nothing is loaded.
    Stored,
    /// This instead.
    Proposed(TuningDocument),
}

/// What the layers beside the tuning say.
struct Layers {
    as_written: Map<String, Value>,
    completed: Map<String, Value>,
    data_dir: Option<PathBuf>,
    keys: TuningKeys,
}

impl ConfigSource {
    /// Returns the source that a command line and its surroundings lead to.
    #[must_use]
    pub fn new(overrides: Overrides, surroundings: Surroundings) -> Self {
        Self {
            overrides,
            surroundings,
        }
    }

    /// Returns the path of the configuration file, whichever that is now.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        ConfigFile::locate(self.overrides.file.as_deref(), &self.surroundings)
    }

    /// Loads the configuration as it is now.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`], which names the file or the variable, the key, and what was
    /// expected.
    pub fn load(&self, tuning: TuningUse) -> Result<Loaded, ConfigError> {
        let layers = self.layers()?;
        let is_optional = matches!(tuning, TuningUse::IfSound);
        let document = match (tuning, &layers.data_dir) {
            (TuningUse::Proposed(document), _) => Ok(document),
            (_, Some(data_dir)) => TuningFile::of(data_dir).read(),
            (_, None) => Ok(TuningDocument::default()),
        };
        let version = document.as_ref().map_or(0, |document| document.version);
        let loaded = document.and_then(|document| self.with(&layers, document));
        let error = match loaded {
            Err(error) if is_optional => error,
            loaded => return loaded,
        };
        // Without the tuning there may be the same error, which then is none of it.
        let nothing = TuningDocument {
            version,
            ..TuningDocument::default()
        };
        let without = self.with(&layers, nothing)?;
        Ok(Loaded {
            ignored: Some(error.to_string()),
            ..without
        })
    }

    fn layers(&self) -> Result<Layers, ConfigError> {
        let Self {
            overrides,
            surroundings,
        } = self;
        let file = ConfigFile::find(overrides.file.as_deref(), surroundings)?;
        let completed = match &file {
            Some(file) => file.completed(&surroundings.environment)?,
            None => Map::new(),
        };
        let tree = merged(completed.clone(), Map::new(), overrides, surroundings)?;
        let configured = tree.get("data_dir").and_then(|value| match &value.kind {
            ValueKind::String(text) => Some(PathBuf::from(text)),
            _ => None,
        });
        let data_dir = overrides.data_dir.clone().or(configured);
        Ok(Layers {
            as_written: file.map_or_else(Map::new, |file| file.as_written().clone()),
            completed,
            // That there is none is said when everything is checked.
            data_dir: data_directory(data_dir, surroundings).ok(),
            keys: TuningKeys::of(&tree),
        })
    }

    fn with(&self, layers: &Layers, document: TuningDocument) -> Result<Loaded, ConfigError> {
        let Self {
            overrides,
            surroundings,
        } = self;
        let path = (layers.data_dir.as_deref())
            .map_or_else(PathBuf::new, |data_dir| TuningFile::of(data_dir).path());
        let checked = layers.keys.check(&document.tuning);
        checked.map_err(|refusal| ConfigError::Value {
            origin: path.display().to_string(),
            key: refusal.key,
            reason: refusal.reason,
        })?;
        let all = |file: &Map<String, Value>| {
            merged(file.clone(), document.layer(&path), overrides, surroundings)
        };
        let tree = all(&layers.completed)?;
        Ok(Loaded {
            config: config_of(&tree, overrides, surroundings)?,
            shown: shown_of(&all(&layers.as_written)?),
            leaves: Leaves::of(&tree),
            keys: layers.keys.clone(),
            tuning: document,
            ignored: None,
        })
    }

    /// Returns the form that the log is to have, as far as the layers can be read: what is wrong with
    /// them has to be told in that form too.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        let variables = || {
            let layer = self.surroundings.environment.layer(&Map::new());
            layer.unwrap_or_default()
        };
        let tree = self.as_written().unwrap_or_else(|_| variables());
        let logging = tree.get("logging").map(|section| &section.kind);
        let format = match logging {
            Some(ValueKind::Table(section)) => section.get("format"),
            _ => None,
        };
        match format.map(|format| format.kind.to_string()) {
            Some(format) if format.contains("json") => LogFormat::Json,
            _ => LogFormat::Pretty,
        }
    }

    /// Returns the values of all layers that can be read, as they are written, unchecked.
    pub(super) fn as_written(&self) -> Result<Map<String, Value>, ConfigError> {
        let Self {
            overrides,
            surroundings,
        } = self;
        let file = ConfigFile::find(overrides.file.as_deref(), surroundings)?;
        let as_written = file.map_or_else(Map::new, |file| file.as_written().clone());
        merged(as_written, Map::new(), overrides, surroundings)
    }
}
