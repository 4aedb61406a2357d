//! The part of a setup that is the service.

use std::path::Path;

use serde_json::{Value, json};

use crate::args::SetupArgs;
use crate::commands::import::plan::ImportTarget;
use crate::commands::service::{Listener, installed_service, show_installation};
use crate::output::{note, printable};

/// The change of the service that has not been made yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServicePlan {
    /// It stays as it is: a proxy runs, or no service is wanted.
    Leave,
    /// Its file is there and is current, so it is only started.
    Start,
    /// Its file is written.
    Install,
    /// Its file is written over an older one.
    Replace,
    /// It cannot be installed.
    Refused,
}

impl ServicePlan {
    /// Plans the service for the configuration. `listener` has its address.
    pub(super) fn of(target: ImportTarget<'_>, arguments: &SetupArgs, listener: Listener) -> Self {
        if arguments.no_service || listener != Listener::Nobody {
            return Self::Leave;
        }
        match installed_service(target.process, &arguments.places) {
            None => Self::Install,
            Some(installed) if installed.is_current => Self::Start,
            Some(_) => Self::Replace,
        }
    }

    /// Returns whether a file is written.
    pub(super) fn is_change(self) -> bool {
        matches!(self, Self::Install | Self::Replace)
    }

    /// Returns whether the service is started.
    pub(super) fn is_start(self) -> bool {
        matches!(self, Self::Start | Self::Install | Self::Replace)
    }

    /// Shows the file that is written, and the commands that start the service. Returns the plan;
    /// another one if the service cannot be installed.
    pub(super) fn show(self, target: ImportTarget<'_>, arguments: &SetupArgs) -> Self {
        if !self.is_change() {
            return self;
        }
        // The configuration is checked when the service is installed.
        if let Err(error) = show_installation(target.process, &arguments.places) {
            note(&printable(&format!(
                "the service cannot be installed: {error:#}"
            )));
            return Self::Refused;
        }
        self
    }

    /// Returns the plan as JSON. `program` is the one that the service starts.
    pub(super) fn as_json(self, program: &Path, file: Option<&Path>) -> Value {
        let change = match self {
            Self::Leave | Self::Start | Self::Refused => "unchanged",
            Self::Install => "inserted",
            Self::Replace => "replaced",
        };
        let file = file.filter(|_| self.is_change());
        json!({"change": change, "program": program.display().to_string(),
               "file": file.map(|file| file.display().to_string())})
    }
}
