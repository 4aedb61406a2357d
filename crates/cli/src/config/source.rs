//! The sources of the configuration, and the merging of all layers.

use std::path::PathBuf;

use config::{Map, Value, ValueKind};

use super::file::ConfigFile;
use super::load::{config_of, data_directory, merge_layers};
use super::normalization::{normalize, split_commands};
use super::show::entries_of;
use super::tuning::TuningKeys;
use super::value_hashes::ValueHashes;
use super::{
    ConfigError, Environment, LoadedConfig, LogFormat, Overrides, ProcessEnv, SecretsFile,
    TuningDocument, TuningFile, WrongValue,
};

/// The sources of the configuration of a process.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    overrides: Overrides,
    surroundings: ProcessEnv,
}

/// The handling of the tuning document during a load.
#[derive(Clone, Debug)]
pub enum TuningUse {
    /// Use the document of the data directory, or ignore it if it is invalid, so that the process
    /// starts.
    IfSound,
    /// Use the document of the data directory, and fail if it is invalid.
    Stored,
    /// Use this document.
    Proposed(TuningDocument),
}

/// The layers other than the tuning document.
struct Layers {
    file: FileLayer,
    data_dir: Option<PathBuf>,
    keys: TuningKeys,
}

/// The values of the file; empty without a file.
#[derive(Default)]
struct FileLayer {
    /// Values with references to variables.
    as_written: Map<String, Value>,
    /// Values with references replaced.
    completed: Map<String, Value>,
    /// The errors of the file.
    wrong: Vec<WrongValue>,
}

impl ConfigSource {
    /// Creates a source from the command line and the process environment.
    #[must_use]
    pub fn new(overrides: Overrides, surroundings: ProcessEnv) -> Self {
        Self {
            overrides,
            surroundings,
        }
    }

    /// Returns the values of the command line.
    pub(crate) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    pub(crate) fn surroundings(&self) -> &ProcessEnv {
        &self.surroundings
    }

    /// Returns the path of the current configuration file.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        ConfigFile::locate(self.overrides.file.as_deref(), &self.surroundings)
    }

    /// Loads the current configuration.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`], which names the file or variable, the key, and the expected value.
    pub fn load(&self, tuning: TuningUse) -> Result<LoadedConfig, ConfigError> {
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
        // If loading fails without the tuning as well, the error is not one of the tuning.
        let nothing = TuningDocument {
            version,
            ..TuningDocument::default()
        };
        let without = self.with(self.layers()?, nothing)?;
        Ok(LoadedConfig {
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
        let (tree, _) = merge_layers(completed.clone(), Map::new(), overrides, surroundings);
        let data_dir = self.data_dir_of(completed);
        Ok(Layers {
            file,
            // A missing data directory is reported during validation.
            data_dir: data_directory(data_dir, surroundings).ok(),
            keys: TuningKeys::of(&tree),
        })
    }

    fn with(&self, layers: Layers, document: TuningDocument) -> Result<LoadedConfig, ConfigError> {
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
            let (mut tree, mut wrong) = merge_layers(file.clone(), tuning, overrides, surroundings);
            wrong.extend(normalize(&mut tree));
            (tree, wrong)
        };
        let (tree, of_all) = all(&layers.file.completed);
        let mut wrong = layers.file.wrong;
        for one in of_all {
            // A command that could not be split in the file cannot be split in the merged values
            // either.
            if wrong.iter().all(|known| known.path != one.path) {
                wrong.push(one);
            }
        }
        Ok(LoadedConfig {
            config: config_of(&tree, wrong, overrides, surroundings)?,
            shown: entries_of(&all(&layers.file.as_written).0),
            leaves: ValueHashes::of(&tree),
            keys: layers.keys,
            tuning: document,
            ignored: None,
        })
    }

    fn file_layer(&self) -> Result<FileLayer, ConfigError> {
        let environment = &self.surroundings.environment;
        if self.overrides.reads_no_file {
            return Ok(FileLayer::default());
        }
        let file = ConfigFile::find(self.overrides.file.as_deref(), &self.surroundings)?;
        let Some(file) = file else {
            return Ok(FileLayer::default());
        };
        let mut as_written = file.as_written().clone();
        // Before references are replaced: a replaced value must not be split into words.
        let (above, _) = environment.layer(&as_written);
        let mut wrong = match self.overrides.upstream {
            // An upstream of the command line replaces those of the file.
            Some(_) => Vec::new(),
            None => split_commands(&mut as_written, &above),
        };
        let variables = self.with_secrets(&file)?;
        let (completed, without_value) = file.replace_references(as_written.clone(), &variables);
        wrong.extend(without_value);
        Ok(FileLayer {
            as_written,
            completed,
            wrong,
        })
    }

    /// Returns the variables that the values of a file can refer to: those of the environment, and
    /// those of the file of secrets.
    fn with_secrets(&self, file: &ConfigFile) -> Result<Environment, ConfigError> {
        let environment = &self.surroundings.environment;
        // The data directory itself can only depend on the environment. An error is found when all
        // values are replaced.
        let (own, _) = file.replace_references(file.as_written().clone(), environment);
        let data_dir = data_directory(self.data_dir_of(own), &self.surroundings);
        data_dir.map_or_else(
            |_| Ok(environment.clone()),
            |data_dir| Ok(environment.with_others(SecretsFile::of(&data_dir).read()?)),
        )
    }

    /// Returns the configured data directory of the values of a file and of all layers above.
    fn data_dir_of(&self, completed: Map<String, Value>) -> Option<PathBuf> {
        let (tree, _) = merge_layers(completed, Map::new(), &self.overrides, &self.surroundings);
        let configured = tree.get("data_dir").and_then(|value| match &value.kind {
            ValueKind::String(text) => Some(PathBuf::from(text)),
            _ => None,
        });
        self.overrides.data_dir.clone().or(configured)
    }

    /// Returns the data directory that is set, as it is written; `None` for the default one. Errors of
    /// layers are ignored, because a load finds them.
    pub(crate) fn configured_data_dir(&self) -> Option<PathBuf> {
        let file = self.file_layer().unwrap_or_default();
        self.data_dir_of(file.completed)
    }

    /// Returns the log format. Errors of layers are ignored here, because their messages must have
    /// this format too.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        let file = self.file_layer().unwrap_or_default().completed;
        let (tree, _) = merge_layers(file, Map::new(), &self.overrides, &self.surroundings);
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

    /// Returns the merged values of all readable layers, as written and without validation.
    pub(super) fn as_written(&self) -> Result<Map<String, Value>, ConfigError> {
        let Self {
            overrides,
            surroundings,
        } = self;
        let as_written = self.file_layer()?.as_written;
        let (mut tree, _) = merge_layers(as_written, Map::new(), overrides, surroundings);
        // What is wrong is shown as it is written.
        normalize(&mut tree);
        Ok(tree)
    }
}
