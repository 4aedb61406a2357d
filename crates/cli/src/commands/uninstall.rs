//! `riglm uninstall`: the files of MCP clients as they were before `riglm install`.

mod remains;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use riglm_adapters_clients::configuration::{
    Client, EntryChange, EntryRemoval, FileState, Installation, Ledger, LostServer, Preview,
    UndoKind, WriteError, apply, client, client_files, clients, installed_client, own_entries,
    plan_undo, preview_removal, read_text,
};
use riglm_app::clock::SystemClock;
use riglm_ports::clock::Clock as _;
use serde_json::{Value, json};

use self::remains::{remains, shell_word};
use super::confirmation::is_confirmed;
use super::file_diff::diff_text;
use super::import::plan::ImportTarget;
use super::import::sources::error_text;
use super::installation_lock::InstallationLock;
use super::user_clients::UserClients;
use crate::args::UninstallArgs;
use crate::output::{note, number_of, print, printable};

/// The removal of riglm from one file.
#[derive(Debug)]
struct PlannedRemoval {
    client: &'static Client,
    kind: UndoKind,
    /// The change; `None` if nothing is left.
    preview: Option<Preview>,
    /// The installation that it undoes; `None` for an entry that somebody else wrote.
    installation: Option<Installation>,
    /// The servers that the installation took out, and that are put back one by one.
    restored: Vec<String>,
    /// Those that cannot be put back.
    lost: Vec<LostServer>,
}

/// Removes riglm from clients, after a confirmation.
///
/// # Errors
///
/// Returns an error if a file cannot be changed, or if a server that the installation took out is not
/// put back. All other changes are made all the same.
pub(super) async fn run(target: ImportTarget<'_>, arguments: &UninstallArgs) -> anyhow::Result<()> {
    let users = UserClients::new(target.config, target.process, &arguments.home)?;
    let data_dir = &target.config.data_dir;
    let _lock = InstallationLock::of_change(data_dir, &arguments.change)?;
    let ledger = Ledger::read(data_dir)?;
    let (removals, mut failures) = plan(&users, &ledger, &arguments.client);
    failures.extend(removals.iter().flat_map(PlannedRemoval::losses));
    if removals.is_empty() && failures.is_empty() {
        note("riglm is in no file of a client");
    }
    let is_json = arguments.change.format.is_json();
    let previews = || {
        removals
            .iter()
            .filter_map(|removal| removal.preview.as_ref())
    };
    if !is_json {
        for preview in previews() {
            print(&diff_text(preview))?;
        }
    }
    let is_asked = !is_json && !arguments.change.dry_run && !arguments.change.yes;
    for failure in failures.iter().filter(|_| is_asked) {
        note(&printable(failure));
    }
    let n_changes = previews().count();
    let is_applied = !removals.is_empty() && !arguments.change.dry_run && {
        let question = format!("change {}?", number_of(n_changes, "file"));
        n_changes == 0 || is_confirmed(&arguments.change, &question)?
    };
    if is_applied {
        for removal in &removals {
            if let Err(error) = removal.apply(&ledger) {
                failures.push(format!("{}: {}", removal.client.title, error_text(&error)));
                continue;
            }
            if let Some(installation) = &removal.installation {
                Ledger::update(data_dir, |ledger| ledger.forget(installation))?;
            }
            if !is_json {
                note(&removal.text());
            }
        }
    }
    if is_json {
        let rows = removals.iter().map(|removal| {
            let mut row = removal.as_json();
            row["written"] = json!(is_applied && removal.preview.is_some());
            row
        });
        let json = json!({"clients": rows.collect::<Vec<_>>(), "failed": failures});
        print(&json.to_string())?;
    } else if n_changes > 0 && !is_applied {
        note("nothing was written");
    } else if !arguments.change.dry_run && Ledger::read(data_dir)?.installations.is_empty() {
        let backups = remaining_backups(&users, &ledger);
        let parts = remains(target, &arguments.places).await;
        for part in parts.iter().chain(&backups) {
            note(&printable(&format!("still there: {part}")));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    anyhow::bail!("{}", printable(&failures.join("; ")))
}

impl PlannedRemoval {
    fn kind_name(&self) -> &'static str {
        match self.kind {
            UndoKind::Restored => "restored",
            UndoKind::FileRemoved => "file_removed",
            UndoKind::EntryRemoved => "entry_removed",
            UndoKind::ServersRestored => "servers_restored",
            UndoKind::NothingLeft => "nothing_left",
        }
    }

    fn as_json(&self) -> Value {
        let file = self
            .preview
            .as_ref()
            .map(|it| it.path.display().to_string());
        let lost = self.lost.iter().map(|lost| {
            let backup = lost.backup.as_ref().map(|it| it.display().to_string());
            json!({"name": lost.name, "reason": lost.reason.to_string(), "backup": backup})
        });
        json!({"client": self.client.id, "file": file, "kind": self.kind_name(),
               "restored": self.restored, "lost": lost.collect::<Vec<_>>()})
    }

    /// Returns a sentence for each server that is not put back.
    fn losses(&self) -> Vec<String> {
        let losses = self.lost.iter().map(|lost| {
            let backup = lost.backup.as_ref().map_or_else(String::new, |it| {
                format!("; its backup is {}", it.display())
            });
            format!(
                "{}: {} is not put back: {}{backup}",
                self.client.title, lost.name, lost.reason
            )
        });
        losses.collect()
    }

    /// Changes the file. Backups that have nothing that the file does not have are removed.
    fn apply(&self, ledger: &Ledger) -> Result<(), WriteError> {
        let Some(preview) = &self.preview else {
            return Ok(());
        };
        let change = apply(preview, SystemClock.now())?;
        let is_restored =
            self.lost.is_empty() && matches!(self.kind, UndoKind::Restored | UndoKind::FileRemoved);
        if let Some(undone) = self.installation.as_ref().filter(|_| is_restored) {
            let of_it = ledger.installations.iter().filter(|recorded| {
                recorded.client == undone.client
                    && recorded.path == undone.path
                    && recorded.entry_name == undone.entry_name
            });
            let backups = of_it.filter_map(|recorded| recorded.backup.clone());
            for backup in backups.chain(change.and_then(|change| change.backup)) {
                // A leftover backup is harmless.
                let _ = std::fs::remove_file(backup);
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        let title = self.client.title;
        let file = self
            .preview
            .as_ref()
            .map(|it| it.path.display().to_string());
        let file = file.unwrap_or_default();
        let put_back = match self.restored.as_slice() {
            [] => String::new(),
            names => format!("; put back: {}", printable(&names.join(", "))),
        };
        match self.kind {
            UndoKind::Restored => format!("{title}: {file} is as it was before"),
            UndoKind::FileRemoved => {
                format!("{title}: {file} was removed, as riglm had created it")
            }
            UndoKind::EntryRemoved => {
                format!("{title}: riglm was removed from {file}, which had changed since{put_back}")
            }
            UndoKind::ServersRestored => {
                format!("{title}: riglm was not in {file} any more{put_back}")
            }
            UndoKind::NothingLeft => format!("{title}: there was no entry any more"),
        }
    }
}

/// Plans the removals: of recorded installations, and of other entries of the named clients.
fn plan(
    users: &UserClients,
    ledger: &Ledger,
    named: &[&'static Client],
) -> (Vec<PlannedRemoval>, Vec<String>) {
    let (mut removals, mut failures) = (Vec::new(), Vec::new());
    let is_named = |id: &str| named.is_empty() || named.iter().any(|client| client.id == id);
    let mut seen: Vec<(&str, &Path, &str)> = Vec::new();
    for recorded in &ledger.installations {
        let key = (
            recorded.client.as_str(),
            recorded.path.as_path(),
            recorded.entry_name.as_str(),
        );
        let is_of_home = recorded.path.starts_with(&users.places.home);
        if !is_named(&recorded.client) || seen.contains(&key) || !is_of_home {
            continue;
        }
        seen.push(key);
        let (Some(client), Some(whole)) = (
            client(&recorded.client),
            ledger.installation(key.0, key.1, key.2),
        ) else {
            continue;
        };
        match plan_undo(&whole, client, &users.riglm) {
            Ok(undo) => removals.push(PlannedRemoval {
                client,
                kind: undo.kind,
                preview: undo.preview,
                installation: Some(whole),
                restored: undo.restored,
                lost: undo.lost,
            }),
            Err(error) => failures.push(format!("{}: {}", client.title, error_text(&error))),
        }
    }
    for client in named {
        if removals
            .iter()
            .any(|removal| removal.client.id == client.id)
        {
            continue;
        }
        removals.extend(unrecorded_entries(users, client, &mut failures));
    }
    (removals, failures)
}

/// Returns a sentence for each folder with backups of files of clients, with the command that removes
/// them. They may have secrets. `ledger` has the installations before the removals.
fn remaining_backups(users: &UserClients, ledger: &Ledger) -> Vec<String> {
    let installations = ledger.installations.iter();
    let mut files: BTreeSet<PathBuf> = installations.map(|it| it.target.clone()).collect();
    for client in clients() {
        for file in client_files(&users.places, client).files {
            files.insert(match file.state {
                FileState::Present { target, .. } => target,
                FileState::Missing | FileState::Unusable(_) => file.path,
            });
        }
    }
    // The number of backups in each folder, and the words that name them.
    let mut folders: BTreeMap<PathBuf, (usize, Vec<String>)> = BTreeMap::new();
    for file in &files {
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            continue;
        };
        let start = format!("{}.riglm-", name.to_string_lossy());
        let n_found = n_backups(folder, &start);
        if n_found > 0 {
            let start = shell_word(&folder.join(start));
            let (n_files, words) = folders.entry(folder.to_owned()).or_default();
            *n_files += n_found;
            words.push(format!("{start}*.bak"));
        }
    }
    let sentences = folders.iter().map(|(folder, (n_files, words))| {
        let object = if *n_files == 1 { "it" } else { "them" };
        let (files, folder) = (number_of(*n_files, "file"), folder.display());
        let words = words.join(" ");
        format!("backups: {files}, {folder}; remove {object} with: rm {words}")
    });
    sentences.collect()
}

/// Returns the number of backups in a folder whose names have this beginning.
fn n_backups(folder: &Path, start: &str) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let backups = entries.filter(|entry| {
        let is_of_file = entry.file_name().to_string_lossy().starts_with(start);
        is_of_file && entry.path().extension().is_some_and(|it| it == "bak")
    });
    backups.count()
}

/// Returns the removals of entries that are in no record.
fn unrecorded_entries(
    users: &UserClients,
    client: &'static Client,
    failures: &mut Vec<String>,
) -> Vec<PlannedRemoval> {
    let Some(installed) = installed_client(&users.places, client) else {
        return Vec::new();
    };
    let mut removals = Vec::new();
    let present = |state: &FileState| matches!(state, FileState::Present { .. });
    for file in installed.files.iter().filter(|file| present(&file.state)) {
        let entries = read_text(&file.path)
            .map_err(|error| error_text(&error))
            .and_then(|text| {
                own_entries(&text.text, client, &users.riglm).map_err(|error| error_text(&error))
            });
        let entries = match entries {
            Ok(entries) => entries,
            Err(reason) => {
                failures.push(format!("{}: {reason}", client.title));
                continue;
            }
        };
        let Some(entry) = entries.first() else {
            continue;
        };
        let removal = EntryRemoval {
            name: &entry.name,
            riglm: &users.riglm,
            insertion: None,
        };
        match preview_removal(&file.path, client, &removal) {
            Ok(preview) if preview.change == EntryChange::Removed => {
                removals.push(PlannedRemoval {
                    client,
                    kind: UndoKind::EntryRemoved,
                    preview: Some(preview),
                    installation: None,
                    restored: Vec::new(),
                    lost: Vec::new(),
                });
            }
            Ok(_) => {}
            Err(error) => failures.push(format!("{}: {}", client.title, error_text(&error))),
        }
    }
    removals
}
