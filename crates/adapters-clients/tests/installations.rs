//! An installation in each tested client on each system: found in a sample home, previewed, written,
//! read back, and undone to the byte.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use riglm_adapters_clients::configuration::{
    Client, ConfiguredServer, Creation, EntryChange, EntryKey, InstallEntry, InstallRequest,
    Ledger, NextStep, Os, Places, ReadContext, RiglmIdentity, ServerNature, Tier, UndoKind, apply,
    client, clients, installed_clients, plan_undo, preview_install, read_servers, read_text,
};

const SYSTEMS: [Os; 3] = [Os::Linux, Os::MacOs, Os::Windows];

fn sample(client: &Client) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let extensions = ["json", "jsonc", "toml", "yaml"];
    let mut paths = extensions
        .iter()
        .map(|it| folder.join(format!("{}.{it}", client.id)));
    fs::read_to_string(paths.find(|path| path.exists()).unwrap()).unwrap()
}

fn identity() -> RiglmIdentity {
    RiglmIdentity {
        addresses: vec!["http://127.0.0.1:8642/mcp".to_owned()],
        programs: vec!["/opt/riglm".to_owned()],
    }
}

fn entry(client: &Client) -> InstallEntry {
    // Zed replaces no variables.
    let key = match client.id {
        "zed" => EntryKey::Text("k1".to_owned()),
        _ => EntryKey::Variable("RIGLM_KEY".to_owned()),
    };
    InstallEntry {
        name: "riglm".to_owned(),
        address: "http://127.0.0.1:8642/mcp".to_owned(),
        program: "/opt/riglm".to_owned(),
        arguments: vec!["connect".to_owned()],
        key,
    }
}

fn servers(client: &Client, path: &Path) -> Vec<ConfiguredServer> {
    let riglm = identity();
    let context = ReadContext {
        home: "/home/me",
        riglm: &riglm,
    };
    let text = read_text(path).unwrap().text;
    read_servers(&text, client, context).unwrap().servers
}

/// Returns a home in which all tested clients have their first file.
fn sample_home(places: &Places) -> Vec<(&'static Client, PathBuf)> {
    let tested = clients().filter(|client| client.tier == Tier::Tested);
    let files = tested.map(|client| {
        let path = places.files(client).swap_remove(0).path;
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, sample(client)).unwrap();
        (client, path)
    });
    files.collect()
}

#[test]
fn every_tested_client_is_installed_and_restored_on_every_system() {
    for os in SYSTEMS {
        let home = tempfile::tempdir().unwrap();
        let places = Places {
            os,
            home: home.path().to_owned(),
            variables: BTreeMap::new(),
        };
        let files = sample_home(&places);
        let data = home.path().join("data");
        for installed in installed_clients(&places) {
            let client = installed.client;
            let path = &installed.install_files()[0].path;
            let before = servers(client, path);
            assert!(before.iter().all(|it| it.nature == ServerNature::Server));
            let request = InstallRequest {
                entry: &entry(client),
                riglm: &identity(),
                creation: Creation::Refused,
            };
            let preview = preview_install(path, client, &request).unwrap();
            assert_eq!(
                preview.change,
                EntryChange::Inserted,
                "{} on {os:?}",
                client.id
            );
            assert!(!preview.diff().is_empty());
            let now = "2026-03-04T05:06:07Z".parse().unwrap();
            let installation = apply(&preview, now).unwrap().unwrap();
            Ledger::update(&data, |ledger| ledger.add(installation)).unwrap();
            let after = servers(client, path);
            let (own, others): (Vec<_>, Vec<_>) =
                (after.into_iter()).partition(|server| server.nature == ServerNature::Riglm);
            assert_eq!(own.len(), 1, "{} on {os:?}", client.id);
            assert_eq!(own[0].name, "riglm");
            assert_eq!(others, before, "{} on {os:?}", client.id);
        }
        let ledger = Ledger::read(&data).unwrap();
        assert_eq!(ledger.installations.len(), files.len());
        for (client, path) in files {
            let installation = ledger.installation(client.id, &path, "riglm").unwrap();
            let plan = plan_undo(&installation, client, &identity()).unwrap();
            assert_eq!(plan.kind, UndoKind::Restored);
            let now = "2026-03-04T05:06:08Z".parse().unwrap();
            apply(&plan.preview.unwrap(), now).unwrap();
            assert_eq!(
                fs::read_to_string(&path).unwrap(),
                sample(client),
                "{}",
                client.id
            );
            for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(!name.contains("riglm"), "{name} is left behind");
            }
        }
    }
}

#[test]
fn samples_are_read() {
    let home = tempfile::tempdir().unwrap();
    let places = Places {
        os: Os::Linux,
        home: home.path().to_owned(),
        variables: BTreeMap::new(),
    };
    let names: Vec<(&str, String)> = (sample_home(&places).into_iter())
        .map(|(client, path)| {
            let servers = servers(client, &path);
            let names: Vec<&str> = servers.iter().map(|it| it.name.as_str()).collect();
            (client.id, names.join(" "))
        })
        .collect();
    let expected = [
        ("claude-code", "github größe db"),
        ("claude-desktop", "files"),
        ("cursor", "files"),
        ("vscode", "files"),
        ("codex", "my files docs"),
        ("gemini", "files"),
        ("devin", ""),
        ("windsurf", ""),
        ("zed", "files"),
        ("cline", ""),
        ("opencode", "files other"),
        ("copilot-cli", ""),
        ("goose", "developer files"),
    ];
    let expected = expected.map(|(id, names)| (id, names.to_owned()));
    assert_eq!(names, expected);
}

#[test]
fn clients_say_the_steps_that_are_left() {
    let steps = |id: &str, key: &EntryKey| client(id).unwrap().steps_after(key);
    let variable = EntryKey::Variable("RIGLM_KEY".to_owned());
    let expected = [NextStep::SetVariable, NextStep::NewSession];
    assert_eq!(steps("claude-code", &variable), expected);
    assert_eq!(steps("claude-desktop", &variable), [NextStep::Restart]);
    let expected = [NextStep::EnterKey, NextStep::StartServer];
    assert_eq!(steps("vscode", &variable), expected);
    assert_eq!(steps("zed", &EntryKey::None), []);
}
