//! Where the configuration comes from, and how all of its layers become one.

use std::path::PathBuf;

use config::{Map, Value, ValueKind};

use super::file::ConfigFile;
use super::leaves::Leaves;
use super::load::{config_of, data_directory, merged};
use super::show::shown_of;
use super::spellings::{split_commands, usual};
use super::tuning::TuningKeys;
use super::{
    ConfigError, Loaded, LogFormat, Overrides, Surroundings, TuningDocument, TuningFile, Wrong,
};

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
    file: FileLayer,
    data_dir: Option<PathBuf>,
    keys: TuningKeys,
}

/// What a file says; nothing where there is none.
#[derive(Default)]
struct FileLayer {
    /// With references to variables.
    as_written: Map<String, Value>,
    /// With what these stand for.
    completed: Map<String, Value>,
    /// What of it cannot be used.
    wrong: Vec<Wrong>,
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
        let loaded = document.and_then(|document| self.with(layers, document));
        let error = match loaded {
            Err(error) if is_optional => error,
            loaded => return loaded,
        };
        // Without the tuning there may be the same error, which then is none of it.
        let nothing = TuningDocument {
            version,
            ..TuningDocument::default()
        };
        let without = self.with(self.layers()?, nothing)?;
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
        let file = self.file_layer()?;
        let completed = file.completed.clone();
        let (tree, _) = merged(completed, Map::new(), overrides, surroundings);
        let configured = tree.get("data_dir").and_then(|value| match &value.kind {
            ValueKind::String(text) => Some(PathBuf::from(text)),
            _ => None,
        });
        let data_dir = overrides.data_dir.clone().or(configured);
        Ok(Layers {
            file,
            // That there is none is said when everything is checked.
            data_dir: data_directory(data_dir, surroundings).ok(),
            keys: TuningKeys::of(&tree),
        })
    }

    fn with(&self, layers: Layers, document: TuningDocument) -> Result<Loaded, ConfigError> {
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
            let tuning = document.layer(&path);
            let (mut tree, mut wrong) = merged(file.clone(), tuning, overrides, surroundings);
            wrong.extend(usual(&mut tree));
            (tree, wrong)
        };
        let (tree, of_all) = all(&layers.file.completed);
        let mut wrong = layers.file.wrong;
        for one in of_all {
            // What could not be taken apart in the file cannot be later either.
            if wrong.iter().all(|known| known.path != one.path) {
                wrong.push(one);
            }
        }
        Ok(Loaded {
            config: config_of(&tree, wrong, overrides, surroundings)?,
            shown: shown_of(&all(&layers.file.as_written).0),
            leaves: Leaves::of(&tree),
            keys: layers.keys,
            tuning: document,
            ignored: None,
        })
    }

    /// Returns what the file says.
    fn file_layer(&self) -> Result<FileLayer, ConfigError> {
        let environment = &self.surroundings.environment;
        let file = ConfigFile::find(self.overrides.file.as_deref(), &self.surroundings)?;
        let Some(file) = file else {
            return Ok(FileLayer::default());
        };
        let mut as_written = file.as_written().clone();
        // Before references are replaced: what stands for them must not be taken apart.
        let (above, _) = environment.layer(&as_written);
        let mut wrong = match self.overrides.upstream {
            // It takes the place of those of the file.
            Some(_) => Vec::new(),
            None => split_commands(&mut as_written, &above),
        };
        let (completed, without_value) = file.completed(as_written.clone(), environment);
        wrong.extend(without_value);
        Ok(FileLayer {
            as_written,
            completed,
            wrong,
        })
    }

    /// Returns the form that the log is to have, as far as the layers can be read: what is wrong with
    /// them has to be told in that form too.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        let file = self.file_layer().unwrap_or_default().completed;
        let (tree, _) = merged(file, Map::new(), &self.overrides, &self.surroundings);
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
        let as_written = self.file_layer()?.as_written;
        let (mut tree, _) = merged(as_written, Map::new(), overrides, surroundings);
        // What is wrong is shown as it is written.
        usual(&mut tree);
        Ok(tree)
    }
}
