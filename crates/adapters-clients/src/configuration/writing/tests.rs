//! Files on a disk: previews, backups, links, modes and undoing.

mod restoring;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::*;
use crate::configuration::entry::EntryKey;
use crate::configuration::table;

const ORIGINAL: &str = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"} // why\n  }\n}";

fn now() -> Timestamp {
    "2026-03-04T05:06:07Z".parse().unwrap()
}

fn identity() -> RiglmIdentity {
    RiglmIdentity {
        addresses: vec!["http://127.0.0.1:8642/mcp".to_owned()],
        programs: Vec::new(),
    }
}

fn entry() -> InstallEntry {
    InstallEntry {
        name: "riglm".to_owned(),
        address: "http://127.0.0.1:8642/mcp".to_owned(),
        program: "/opt/riglm".to_owned(),
        arguments: vec!["connect".to_owned()],
        key: EntryKey::None,
    }
}

fn cursor() -> &'static Client {
    table::client("cursor").unwrap()
}

fn preview_of(path: &Path, creation: Creation) -> Result<Preview, WriteError> {
    let request = InstallRequest {
        entry: &entry(),
        riglm: &identity(),
        creation,
    };
    preview_install(path, cursor(), &request)
}

fn install(path: &Path) -> Result<Installation, WriteError> {
    let installation = apply(&preview_of(path, Creation::Allowed)?, now())?;
    Ok(installation.expect("the entry was not there"))
}

fn undo(installation: &Installation) -> UndoKind {
    let plan = plan_undo(installation, cursor(), &identity()).unwrap();
    if let Some(preview) = &plan.preview {
        apply(preview, now()).unwrap();
    }
    plan.kind
}

fn sample(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_file_is_changed_with_a_backup_and_restored_to_the_byte() {
    let (folder, path) = sample(ORIGINAL);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let installation = install(&path).unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("\"riglm\""));
    assert_eq!(mode(&path), 0o640);
    let backup = folder.path().join("mcp.json.riglm-20260304T050607Z.bak");
    assert_eq!(installation.backup.as_deref(), Some(backup.as_path()));
    assert_eq!(fs::read_to_string(&backup).unwrap(), ORIGINAL);
    assert_eq!(mode(&backup), 0o600);
    assert_eq!(
        names(folder.path()),
        ["mcp.json", "mcp.json.riglm-20260304T050607Z.bak"]
    );
    // Nothing is written again.
    let again = preview_of(&path, Creation::Refused).unwrap();
    assert_eq!(apply(&again, now()).unwrap(), None);
    assert_eq!(undo(&installation), UndoKind::Restored);
    assert_eq!(fs::read_to_string(&path).unwrap(), ORIGINAL);
    assert_eq!(mode(&path), 0o640);
    assert_eq!(names(folder.path()), ["mcp.json"]);
}

#[test]
fn a_preview_is_bound_to_the_contents() {
    let (_folder, path) = sample(ORIGINAL);
    let preview = preview_of(&path, Creation::Refused).unwrap();
    let lines: Vec<String> = preview.diff().iter().map(ToString::to_string).collect();
    assert!(lines.contains(&"+    \"riglm\": {".to_owned()), "{lines:?}");
    let same = preview_of(&path, Creation::Refused).unwrap();
    assert_eq!(preview.token(), same.token());
    fs::write(&path, ORIGINAL.replace("why", "because")).unwrap();
    let other = preview_of(&path, Creation::Refused).unwrap();
    assert_ne!(preview.token(), other.token());
    let error = apply(&preview, now()).unwrap_err();
    assert!(error.to_string().ends_with("has changed since the preview"));
    assert!(fs::read_to_string(&path).unwrap().contains("because"));
    assert!(!format!("{preview:?}").contains("command"));
}

#[test]
fn a_changed_file_loses_only_the_entry() {
    let (_folder, path) = sample(ORIGINAL);
    let installation = install(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("why", "because")).unwrap();
    assert_eq!(undo(&installation), UndoKind::EntryRemoved);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        ORIGINAL.replace("why", "because")
    );
    assert_eq!(undo(&installation), UndoKind::NothingLeft);
}

#[test]
fn a_missing_file_is_created_only_if_allowed_and_removed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/mcp.json");
    assert!(matches!(
        preview_of(&path, Creation::Refused),
        Err(WriteError::File(FileError::Missing { .. }))
    ));
    let installation = install(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(undo(&installation), UndoKind::FileRemoved);
    assert!(!path.exists());
    // The client has added a server in the meantime.
    let installation = install(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let with_other = text.replace("{\n    \"riglm\"", "{\n    \"a\": {},\n    \"riglm\"");
    fs::write(&path, with_other).unwrap();
    assert_eq!(undo(&installation), UndoKind::EntryRemoved);
    let expected = "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n";
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    // Somebody has only changed spaces.
    fs::remove_file(&path).unwrap();
    let installation = install(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "\n").unwrap();
    assert_eq!(undo(&installation), UndoKind::FileRemoved);
    assert!(!path.exists());
}

#[test]
fn a_link_stays_and_its_target_is_changed() {
    let (folder, target) = sample(ORIGINAL);
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let link = home.join("mcp.json");
    symlink("../mcp.json", &link).unwrap();
    let installation = install(&link).unwrap();
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&target).unwrap().contains("riglm"));
    assert_eq!(names(&home), ["mcp.json"]);
    assert_eq!(undo(&installation), UndoKind::Restored);
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&target).unwrap(), ORIGINAL);
    let dangling = home.join("gone.json");
    symlink("nowhere.json", &dangling).unwrap();
    let error = install(&dangling).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.ends_with("is a symbolic link to nowhere.json, which does not exist"),
        "{source}"
    );
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let (folder, path) = sample(ORIGINAL);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let error = install(&path).unwrap_err();
    assert!(matches!(error, WriteError::ReadOnly { .. }), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(names(folder.path()), ["mcp.json"]);
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(
        install(&path),
        Err(WriteError::File(FileError::NotText { .. }))
    ));
    fs::write(&path, vec![b' '; 6 << 20]).unwrap();
    assert!(matches!(
        install(&path),
        Err(WriteError::File(FileError::TooLarge { .. }))
    ));
    assert!(matches!(
        install(folder.path()),
        Err(WriteError::File(FileError::NotRegular { .. }))
    ));
}

#[test]
fn a_second_installation_waits_for_the_first() {
    let (folder, path) = sample(ORIGINAL);
    let lock = super::lock::FileLock::acquire(&path).unwrap();
    let other = {
        let path = path.clone();
        std::thread::spawn(move || install(&path).unwrap())
    };
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(fs::read_to_string(&path).unwrap(), ORIGINAL);
    drop(lock);
    assert_eq!(other.join().unwrap().entry_name, "riglm");
    assert!(!names(folder.path()).contains(&"mcp.json.riglm.lock".to_owned()));
}

#[test]
fn the_record_leads_back_to_the_state_before_the_first_installation() {
    let (folder, path) = sample(ORIGINAL);
    let records = folder.path().join("data");
    assert_eq!(Ledger::read(&records).unwrap(), Ledger::default());
    let first = install(&path).unwrap();
    Ledger::update(&records, |ledger| ledger.add(first)).unwrap();
    // The address changes, and the entry is renewed.
    let renewed = InstallEntry {
        address: "http://127.0.0.1:8642/mcp/work".to_owned(),
        ..entry()
    };
    let request = InstallRequest {
        entry: &renewed,
        riglm: &identity(),
        creation: Creation::Refused,
    };
    let preview = preview_install(&path, cursor(), &request).unwrap();
    assert_eq!(preview.change, EntryChange::Replaced);
    let second = apply(&preview, now()).unwrap().unwrap();
    Ledger::update(&records, |ledger| ledger.add(second)).unwrap();
    let ledger = Ledger::read(&records).unwrap();
    let addresses = [
        "http://127.0.0.1:8642/mcp",
        "http://127.0.0.1:8642/mcp/work",
    ];
    assert_eq!(ledger.addresses(), addresses);
    let installation = ledger.installation("cursor", &path, "riglm").unwrap();
    assert_eq!(undo(&installation), UndoKind::Restored);
    assert_eq!(fs::read_to_string(&path).unwrap(), ORIGINAL);
    let ledger = Ledger::update(&records, |ledger| ledger.forget(&installation)).unwrap();
    assert!(ledger.installations.is_empty());
    assert_eq!(names(&records), ["installations.json"]);
    assert_eq!(mode(&records.join("installations.json")), 0o600);
    fs::write(records.join("installations.json"), "x").unwrap();
    assert!(matches!(
        Ledger::read(&records),
        Err(LedgerError::Garbled { .. })
    ));
}
