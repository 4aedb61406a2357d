//! The changes of a setup, which are shown before the question.

use std::path::Path;

use riglm_adapters_clients::configuration::Client;

use super::service_plan::ServicePlan;
use crate::args::{Duplicates, SetupArgs};
use crate::commands::file_diff::diff_text;
use crate::commands::import::plan::{ImportPlan, ImportTarget};
use crate::commands::install::InstallPlan;
use crate::commands::service::{kept_data_dir_text, missing_variables};
use crate::output::{number_of, print};

/// The folders of cargo for programs that it built.
const BUILD_FOLDERS: [&str; 3] = ["debug", "release", "dist"];

/// The changes of all steps that have not been made yet.
#[derive(Debug)]
pub(super) struct SetupPlan {
    pub(super) import: ImportPlan,
    pub(super) install: InstallPlan,
    pub(super) service: ServicePlan,
}

impl SetupPlan {
    /// Returns the plan of all steps. Without a client, the service has no use.
    pub(super) fn new(import: ImportPlan, install: InstallPlan, service: ServicePlan) -> Self {
        let service = if install.installs.is_empty() {
            ServicePlan::Leave
        } else {
            service
        };
        Self {
            import,
            install,
            service,
        }
    }

    /// Shows all changes. The plan then knows whether the service can be installed.
    ///
    /// # Errors
    ///
    /// Returns the error of writing.
    pub(super) fn show(
        &mut self,
        target: ImportTarget<'_>,
        arguments: &SetupArgs,
    ) -> anyhow::Result<()> {
        if let Some(preview) = self.import.preview() {
            print(&preview)?;
        }
        for install in &self.install.installs {
            print(&diff_text(&install.preview))?;
        }
        self.service = self.service.show(target, arguments);
        Ok(())
    }

    /// Returns sentences for the user before the question. `program` is the one that clients and
    /// the service start.
    pub(super) fn remarks(
        &self,
        target: ImportTarget<'_>,
        arguments: &SetupArgs,
        program: &Path,
    ) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.service.is_start() {
            remarks.extend(missing_variables(target.process, &arguments.places));
            remarks.extend(kept_data_dir_text(target.process, &arguments.places));
        }
        remarks.extend(self.install.kept_texts());
        let mut installs = self.install.installs.iter();
        let has_duplicates = installs.any(|install| !install.duplicates.is_empty());
        if has_duplicates && arguments.duplicates == Duplicates::Leave {
            let text = "the servers stay in their clients, so their tools are listed twice; \
                        --replace takes them out, and riglm uninstall puts them back";
            remarks.push(text.to_owned());
        }
        let is_started = self.install.n_changes() > 0 || self.service.is_change();
        if is_started && is_build_output(program) {
            remarks.push(format!(
                "the clients and the service will start {}, which `cargo clean` removes: install \
                 riglm first (cargo install --path crates/cli --locked)",
                program.display()
            ));
        }
        remarks
    }

    /// Returns the question whether all changes are made; `None` if there is none.
    pub(super) fn question(&self) -> Option<String> {
        let mut changes = Vec::new();
        let n_upstreams = self.import.upstreams.len();
        if n_upstreams > 0 {
            let upstreams = number_of(n_upstreams, "upstream");
            changes.push(format!("add {upstreams} to {}", self.import.file.display()));
        }
        if self.import.changes_address() {
            let file = self.import.file.display();
            changes.push(format!("set the address of the proxy in {file}"));
        }
        match self.install.n_changes() {
            0 => {}
            1 => changes.push("change 1 file of a client".to_owned()),
            n_files => changes.push(format!("change {n_files} files of clients")),
        }
        match self.service {
            ServicePlan::Install => changes.push("install the service".to_owned()),
            ServicePlan::Replace => changes.push("replace the service".to_owned()),
            ServicePlan::Leave | ServicePlan::Start | ServicePlan::Refused => {}
        }
        let last = changes.pop()?;
        Some(match changes.len() {
            0 => format!("{last}?"),
            1 => format!("{} and {last}?", changes.concat()),
            _ => format!("{}, and {last}?", changes.join(", ")),
        })
    }

    /// Makes the changes of files, and returns the reasons why clients could not be changed.
    ///
    /// # Errors
    ///
    /// Returns the error of the import. No client is changed then.
    pub(super) fn apply(&mut self, target: ImportTarget<'_>) -> anyhow::Result<Vec<String>> {
        self.install.is_applied = true;
        self.import.apply(target)?;
        let mut failures = Vec::new();
        for install in &self.install.installs {
            match install.apply(target) {
                Ok(()) => install.tell(),
                Err(error) => failures.push(format!("{}: {error:#}", install.client.title)),
            }
        }
        Ok(failures)
    }

    /// Returns the clients that have riglm afterwards.
    pub(super) fn clients(&self) -> Vec<&'static Client> {
        let mut clients: Vec<&'static Client> = Vec::new();
        for install in &self.install.installs {
            if !clients.iter().any(|client| client.id == install.client.id) {
                clients.push(install.client);
            }
        }
        clients
    }
}

/// Returns whether a program lies in the folder `target` of cargo, whose folders may have the name of
/// a platform in between.
fn is_build_output(program: &Path) -> bool {
    let names: Vec<&str> = (program.components())
        .filter_map(|part| part.as_os_str().to_str())
        .collect();
    let mut targets = (names.iter().enumerate()).filter(|(_, name)| **name == "target");
    targets.any(|(at, _)| {
        let mut below = names.iter().skip(at + 1).take(2);
        below.any(|name| BUILD_FOLDERS.contains(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_cargo_built_are_recognised() {
        for (path, expected) in [
            ("/src/riglm/target/release/riglm", true),
            (
                "/src/riglm/target/x86_64-unknown-linux-gnu/dist/riglm",
                true,
            ),
            ("/home/ann/.cargo/bin/riglm", false),
            ("/srv/target/bin/riglm", false),
            ("/srv/release/riglm", false),
        ] {
            assert_eq!(is_build_output(Path::new(path)), expected, "{path}");
        }
    }
}
