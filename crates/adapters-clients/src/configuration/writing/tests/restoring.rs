//! Servers that an installation took out, put back into a file that has changed since.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, proptest};
use proptest::sample::{select, subsequence};

use super::*;
use crate::configuration::document;
use crate::configuration::editing::LossReason;

/// Installs riglm in the place of servers, as the ledger has it.
fn replace(folder: &Path, path: &Path, client: &'static Client, servers: &[&str]) -> Installation {
    let request = InstallRequest {
        entry: &entry(),
        riglm: &identity(),
        creation: Creation::Allowed,
    };
    let names = servers.iter().map(|name| (*name).to_owned()).collect();
    let preview = preview_install(path, client, &request).unwrap();
    let preview = preview.replacing(client, names).unwrap();
    let installation = apply(&preview, now()).unwrap().unwrap();
    let records = folder.join("data");
    let ledger = Ledger::update(&records, |ledger| ledger.add(installation)).unwrap();
    assert_eq!(ledger, Ledger::read(&records).unwrap());
    ledger.installation(client.id, path, "riglm").unwrap()
}

/// Undoes an installation in another version of its file, and returns the plan and the new text.
fn undo_in(installation: &Installation, client: &'static Client) -> (UndoPlan, String) {
    let plan = plan_undo(installation, client, &identity()).unwrap();
    if let Some(preview) = &plan.preview {
        apply(preview, now()).unwrap();
    }
    let text = fs::read_to_string(&installation.path).unwrap_or_default();
    (plan, text)
}

fn losses(plan: &UndoPlan) -> Vec<(&str, LossReason)> {
    let lost = plan.lost.iter();
    lost.map(|lost| (lost.name.as_str(), lost.reason)).collect()
}

/// A file of a client, the servers to take out, a change by the client (of the whole file if it names
/// no text), and the expected text after the undo.
struct Case {
    client: &'static str,
    text: &'static str,
    servers: &'static [&'static str],
    change: (&'static str, &'static str),
    expected: &'static str,
}

const CASES: [Case; 11] = [
    // The state of the client in the same file; the layout stays.
    Case {
        client: "claude-code",
        text: "{\n\t\"numStartups\": 7,\n\t\"mcpServers\": {\n\t\t\"docs\": {\n\t\t\t\"command\": \"x\"\n\t\t}\n\t}\n}",
        servers: &["docs"],
        change: ("7", "8"),
        expected: "{\n\t\"numStartups\": 8,\n\t\"mcpServers\": {\n\t\t\"docs\": {\n\t\t\t\"command\": \"x\"\n\t\t}\n\t}\n}",
    },
    Case {
        client: "claude-code",
        text: "{\"n\":7,\"mcpServers\":{\"docs\":{ \"command\":\"x\" },\"b\":{\"command\":\"y\"}},\"t\":{}}",
        servers: &["docs"],
        change: ("7", "8"),
        expected: "{\"n\":8,\"mcpServers\":{\"b\":{\"command\":\"y\"},\"docs\":{ \"command\":\"x\" }},\"t\":{}}",
    },
    // Comments, escapes, line ends and commas at the end.
    Case {
        client: "opencode",
        text: "// mine\r\n{\r\n  \"mcp\": {\r\n    \"d\\u006fcs\": { // why\r\n       \"command\": [\"x\",], \"n\": 1.50 },\r\n    \"b\": {}, // the b\r\n  },\r\n}\r\n",
        servers: &["docs"],
        change: ("// mine", "// ours"),
        expected: "// ours\r\n{\r\n  \"mcp\": {\r\n    \"b\": {}, // the b\r\n    \"d\\u006fcs\": { // why\r\n       \"command\": [\"x\",], \"n\": 1.50 },\r\n  },\r\n}\r\n",
    },
    // Another program has written the whole file in its own layout.
    Case {
        client: "cursor",
        text: "{\"mcpServers\": {\"docs\": {\"command\": \"x\"}}}",
        servers: &["docs"],
        change: (
            "",
            "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"riglm\": {\n      \"url\": \"http://127.0.0.1:8642/mcp\"\n    }\n  }\n}\n",
        ),
        expected: "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"docs\": {\"command\": \"x\"}\n  }\n}\n",
    },
    // TOML: tables, a table with lines, a collection in one line, and names with dots.
    Case {
        client: "codex",
        text: "model = \"x\" # mine\n\n# the docs\n[mcp_servers.docs]\ncommand = 'x' # why\n\n[mcp_servers.docs.env]\nA = \"1\"\n\n[mcp_servers.b]\nurl = \"https://b\"\n",
        servers: &["docs"],
        change: ("\"x\" #", "\"y\" #"),
        expected: "model = \"y\" # mine\n\n# the docs\n\n[mcp_servers.b]\nurl = \"https://b\"\n\n[mcp_servers.docs]\ncommand = 'x' # why\n\n[mcp_servers.docs.env]\nA = \"1\"\n",
    },
    Case {
        client: "codex",
        text: "model = 1\r\n[mcp_servers]\r\ndocs = { command = 'x' } # why\r\nb.url = \"https://b\"\r\n[last]\r\na = 1\r\n",
        servers: &["docs", "b"],
        change: ("model = 1", "model = 2"),
        expected: "model = 2\r\n[mcp_servers]\r\ndocs = { command = 'x' } # why\r\nb.url = \"https://b\"\r\n[last]\r\na = 1\r\n",
    },
    Case {
        client: "codex",
        text: "model = 1\nmcp_servers = { docs = { command = 'x' }, b = { url = \"https://b\" } }\n",
        servers: &["docs"],
        change: ("model = 1", "model = 2"),
        expected: "model = 2\nmcp_servers = { b = { url = \"https://b\" }, docs = { command = 'x' } }\n",
    },
    Case {
        client: "codex",
        text: "[mcp_servers.docs]\nargs = [\n  'a', # one\n]",
        servers: &["docs"],
        change: ("[mcp_servers.riglm]", "# by Codex\n[mcp_servers.riglm]"),
        expected: "\n# by Codex\n\n[mcp_servers.docs]\nargs = [\n  'a', # one\n]",
    },
    // A list of tables.
    Case {
        client: "vibe",
        text: "a = 1\n\n[[mcp_servers]]\nname = \"docs\"\ncommand = 'x'\n",
        servers: &["docs"],
        change: ("a = 1", "a = 2"),
        expected: "a = 2\n\n[[mcp_servers]]\nname = \"docs\"\ncommand = 'x'\n",
    },
    // YAML: a mapping, another indentation, and a list.
    Case {
        client: "goose",
        text: "GOOSE_MODEL: x\nextensions:\n  docs: # why\n    type: stdio\n    cmd: 'x'\n\n    # the end\n    args: [a, \"b\"]\n  b:\n    type: builtin\nlast: 1\n",
        servers: &["docs"],
        change: ("MODEL: x", "MODEL: y"),
        expected: "GOOSE_MODEL: y\nextensions:\n  b:\n    type: builtin\n  docs: # why\n    type: stdio\n    cmd: 'x'\n\n    # the end\n    args: [a, \"b\"]\nlast: 1\n",
    },
    Case {
        client: "continue",
        text: "mcpServers:\n- name: docs\n  command: x # why\n- name: b\n  command: y\nmodels: []\n",
        servers: &["docs"],
        change: ("models: []", "models: [m]"),
        expected: "mcpServers:\n- name: b\n  command: y\n- name: docs\n  command: x # why\nmodels: [m]\n",
    },
];

#[test]
fn servers_come_back_with_their_bytes_into_a_file_that_has_changed() {
    for case in CASES {
        let client = table::client(case.client).unwrap();
        let (folder, path) = sample(case.text);
        let installation = replace(folder.path(), &path, client, case.servers);
        let text = fs::read_to_string(&path).unwrap();
        let (from, to) = case.change;
        assert!(text.contains(from), "{}: {text}", case.client);
        let changed = match from {
            "" => to.to_owned(),
            from => text.replacen(from, to, 1),
        };
        fs::write(&path, changed).unwrap();
        let (plan, restored) = undo_in(&installation, client);
        assert_eq!(restored, case.expected, "{}", case.client);
        assert_eq!(plan.kind, UndoKind::EntryRemoved);
        assert_eq!(plan.restored, case.servers);
        assert_eq!(losses(&plan), []);
    }
}

#[test]
fn the_entry_may_be_gone_and_lines_move_to_the_column_of_the_others() {
    let goose = table::client("goose").unwrap();
    let text = "extensions:\n  docs:\n    type: stdio\n    cmd: |\n      two\n       lines\n";
    let (folder, path) = sample(text);
    let installation = replace(folder.path(), &path, goose, &["docs"]);
    fs::write(&path, "extensions:\n    z:\n        type: builtin\n").unwrap();
    let (plan, restored) = undo_in(&installation, goose);
    assert_eq!(plan.kind, UndoKind::ServersRestored);
    let expected = "extensions:\n    z:\n        type: builtin\n    docs:\n      type: stdio\n      \
                    cmd: |\n        two\n         lines\n";
    assert_eq!(restored, expected);
    // Everything is there now.
    let (plan, _) = undo_in(&installation, goose);
    assert_eq!(plan.kind, UndoKind::NothingLeft);
    assert_eq!((plan.restored.len(), plan.lost.len()), (0, 0));
    for blank in ["", "{}\n", "extensions: {}\n", "other: 1\n"] {
        fs::write(&path, blank).unwrap();
        let (plan, restored) = undo_in(&installation, goose);
        assert_eq!(plan.restored, ["docs"], "{blank:?}");
        let entry = &text["extensions:\n".len()..];
        assert!(restored.contains(entry), "{restored}");
    }
}

#[test]
fn servers_that_cannot_come_back_are_named_with_the_reason_and_the_backup() {
    let text = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"},\n    \"b\": {\"command\": \"y\"},\n    \
                \"c\": {\"command\": \"z\"}\n  }\n}\n";
    let (folder, path) = sample(text);
    let installation = replace(folder.path(), &path, cursor(), &["a", "b", "c"]);
    let backup = installation.backup.clone().unwrap();
    let taken_out = fs::read_to_string(&path).unwrap();
    // One has another server in its place, and one was copied back by hand.
    let start = "\"mcpServers\": {";
    let others = format!(
        "{start}\n    \"a\": {{\"command\": \"mine\"}},\n    \"c\":  {{\"command\": \"z\"}},"
    );
    fs::write(&path, taken_out.replace(start, &others)).unwrap();
    let plan = plan_undo(&installation, cursor(), &identity()).unwrap();
    assert_eq!(losses(&plan), [("a", LossReason::NameTaken)]);
    assert_eq!(plan.lost[0].backup.as_deref(), Some(backup.as_path()));
    assert_eq!(plan.restored, ["b"]);
    let new = plan.preview.unwrap().new.unwrap();
    let expected = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"mine\"},\n    \
                    \"c\":  {\"command\": \"z\"},\n    \"b\": {\"command\": \"y\"}\n  }\n}\n";
    assert_eq!(new, expected);
    let all = |reason| [("a", reason), ("b", reason), ("c", reason)];
    // The collection cannot take servers any more.
    fs::write(&path, "{\"mcpServers\": []}").unwrap();
    let plan = plan_undo(&installation, cursor(), &identity()).unwrap();
    assert_eq!(losses(&plan), all(LossReason::Layout));
    assert_eq!(plan.kind, UndoKind::NothingLeft);
    fs::write(
        &path,
        taken_out.replace(start, "\"x\": 1, \"mcpServers\": {"),
    )
    .unwrap();
    fs::write(&backup, "{}").unwrap();
    let plan = plan_undo(&installation, cursor(), &identity()).unwrap();
    assert_eq!(losses(&plan), all(LossReason::NoBackup));
    assert_eq!(plan.kind, UndoKind::EntryRemoved);
    fs::remove_file(&path).unwrap();
    let (plan, _) = undo_in(&installation, cursor());
    assert_eq!(losses(&plan), all(LossReason::FileMissing));
    assert_eq!(plan.kind, UndoKind::NothingLeft);
}

#[test]
fn other_forms_of_a_toml_file_are_left_alone() {
    let codex = table::client("codex").unwrap();
    for (text, changed) in [
        // Lines of a table, and the collection is in one line now.
        (
            "[mcp_servers.docs]\ncommand = 'x'\n",
            "mcp_servers = { b = {} }\n",
        ),
        ("mcp_servers.docs.command = 'x'\n", "[mcp_servers]\n"),
        (
            "mcp_servers = { docs = { command = 'x' } }\n",
            "[mcp_servers.b]\nurl = 'x'\n",
        ),
        ("[mcp_servers.docs]\ncommand = 'x'\n", "mcp_servers = 1\n"),
    ] {
        let (folder, path) = sample(text);
        let installation = replace(folder.path(), &path, codex, &["docs"]);
        fs::write(&path, changed).unwrap();
        let (plan, after) = undo_in(&installation, codex);
        assert_eq!(losses(&plan), [("docs", LossReason::Layout)], "{changed}");
        assert_eq!(after, changed);
    }
}

#[test]
fn several_installations_with_changes_between_are_undone_together() {
    let text = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"1\"}\n  }\n}\n";
    let (folder, path) = sample(text);
    replace(folder.path(), &path, cursor(), &["a"]);
    // Somebody adds the server again, with another command, and one more.
    let text = fs::read_to_string(&path).unwrap();
    let start = "\"mcpServers\": {";
    let added =
        format!("{start}\n    \"a\": {{\"command\": \"2\"}},\n    \"b\": {{\"command\": \"3\"}},");
    fs::write(&path, text.replace(start, &added)).unwrap();
    let installation = replace(folder.path(), &path, cursor(), &["a", "b"]);
    let (plan, text) = undo_in(&installation, cursor());
    assert_eq!(plan.kind, UndoKind::EntryRemoved);
    assert_eq!(plan.restored, ["a", "b"]);
    let expected = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"2\"},\n    \
                    \"b\": {\"command\": \"3\"}\n  }\n}\n";
    assert_eq!(text, expected);
}

#[test]
fn a_file_that_riglm_created_stays_if_others_have_added_servers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    replace(folder.path(), &path, cursor(), &[]);
    let text = fs::read_to_string(&path).unwrap();
    let start = "\"mcpServers\": {";
    let added = format!("{start}\n    \"a\": {{\"command\": \"1\"}},");
    fs::write(&path, text.replace(start, &added)).unwrap();
    let installation = replace(folder.path(), &path, cursor(), &["a"]);
    let (plan, text) = undo_in(&installation, cursor());
    assert_eq!(plan.kind, UndoKind::EntryRemoved);
    assert!(text.contains("\"a\": {\"command\": \"1\"}"), "{text}");
    assert!(!text.contains("riglm"), "{text}");
}

/// Servers in one notation of a format: the text around them, the state of the client, and the text
/// of an entry by its name.
#[derive(Clone, Copy, Debug)]
struct Notation {
    client: &'static str,
    before: &'static str,
    entry: &'static str,
    between: &'static str,
    after: &'static str,
}

const NOTATIONS: [Notation; 8] = [
    Notation {
        client: "claude-code",
        before: "{\n  \"n\": 5550,\n  \"mcpServers\": {\n    ",
        entry: "\"NAME\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\",\t\"NAME\"]\n    }",
        between: ",\n    ",
        after: "\n  },\n  \"projects\": {}\n}",
    },
    Notation {
        client: "claude-code",
        before: "{\"n\":5550,\"mcpServers\":{",
        entry: "\"NAME\":{\"command\":\"npx\",\"env\":{}}",
        between: ",",
        after: "},\"projects\":{}}",
    },
    Notation {
        client: "opencode",
        before: "// 5550\r\n{\r\n\t\"mcp\": {\r\n\t\t",
        entry: "\"NAME\": { /* é */ \"type\": \"local\", // x\r\n\t\t\"command\": [\"NAME\",] }",
        between: ",\r\n\t\t",
        after: ",\r\n\t},\r\n}\r\n",
    },
    Notation {
        client: "codex",
        before: "n = \"5550\"\n\n",
        entry: "[mcp_servers.NAME]\ncommand = 'npx' # x\nargs = [\n  '''a\nb''',\n]\n\n[mcp_servers.NAME.env]\n\"A\" = \"1\"\n",
        between: "\n",
        after: "\n[last]\na = 1.50\n",
    },
    Notation {
        client: "codex",
        before: "n = \"5550\"\n[mcp_servers]\n",
        entry: "NAME = { command = 'npx', args = ['NAME'] } # x\n",
        between: "",
        after: "[last]\na = 1\n",
    },
    Notation {
        client: "codex",
        before: "n = \"5550\"\nmcp_servers = { ",
        entry: "NAME = { command = 'npx', args = [ 'NAME' ] }",
        between: ", ",
        after: " }\n",
    },
    Notation {
        client: "goose",
        before: "n: 5550\nextensions:\n",
        entry: "  NAME: # x\n    type: stdio\n\n    args: ['NAME', \"b\"]\n    description: >-\n      two\n\n      lines\n",
        between: "",
        after: "last: 1\n",
    },
    Notation {
        client: "continue",
        before: "n: 5550\nmcpServers:\n",
        entry: "  - name: NAME\n    command: npx # x\n",
        between: "",
        after: "last: 1\n",
    },
];

impl Notation {
    fn text(&self, names: &[&str]) -> String {
        let entries: Vec<String> = names.iter().map(|name| self.entry_of(name)).collect();
        let Self { before, after, .. } = self;
        format!("{before}{}{after}", entries.join(self.between))
    }

    fn entry_of(&self, name: &str) -> String {
        self.entry.replace("NAME", name)
    }
}

/// Returns a text with another state of the client.
fn with_later_state(text: &str) -> String {
    text.replacen("5550", "77", 1)
}

/// Returns the values of a file, with the entries of a list in order of their names.
fn values(text: &str, client: &Client) -> serde_json::Value {
    let mut value = document::read(text, client.format).unwrap().value;
    if let Some(serde_json::Value::Array(entries)) = value.get_mut(client.map.key) {
        entries.sort_by_key(|entry| entry["name"].to_string());
    }
    value
}

/// Returns the bytes of a text other than white space, sorted.
fn sorted_bytes(text: &str) -> Vec<u8> {
    let visible = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let mut bytes: Vec<u8> = visible.collect();
    bytes.sort_unstable();
    bytes
}

/// The change of a file between an installation and its undo, besides the state of the client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ChangeBetween {
    None,
    /// Another server has the name of the first one that was taken out.
    NameTaken,
    /// The entry for riglm was removed.
    EntryGone,
}

impl ChangeBetween {
    fn make(self, text: &str, client: &Client, first: &str) -> String {
        let text = with_later_state(text);
        match self {
            Self::None => text,
            Self::NameTaken => {
                let other = InstallEntry {
                    name: first.to_owned(),
                    address: "http://other".to_owned(),
                    ..entry()
                };
                let nobody = RiglmIdentity::default();
                let edited = install_entry(&text, client, &other, &nobody);
                edited.unwrap().text
            }
            Self::EntryGone => {
                let removal = EntryRemoval {
                    name: "riglm",
                    riglm: &identity(),
                    insertion: None,
                };
                remove_entry(&text, client, &removal).unwrap().text
            }
        }
    }
}

const NAMES: [&str; 5] = ["docs", "wiki", "git-hub", "a_b", "x9"];

fn changes() -> impl Strategy<Value = ChangeBetween> {
    select(vec![
        ChangeBetween::None,
        ChangeBetween::NameTaken,
        ChangeBetween::EntryGone,
    ])
}

proptest! {
    #[test]
    fn undoing_gives_back_exactly_the_servers_that_were_taken_out(
        notation in select(NOTATIONS.to_vec()),
        names in subsequence(NAMES.to_vec(), 1..=NAMES.len()),
        choices in vec(any::<bool>(), NAMES.len()),
        change in changes(),
    ) {
        let client = table::client(notation.client).unwrap();
        let text = notation.text(&names);
        let (folder, path) = sample(&text);
        let chosen = names.iter().zip(&choices).filter(|(_, is_chosen)| **is_chosen);
        let mut removed: Vec<&str> = chosen.map(|(name, _)| *name).collect();
        if removed.is_empty() {
            removed.push(names[0]);
        }
        let installation = replace(folder.path(), &path, client, &removed);
        let installed = fs::read_to_string(&path).unwrap();
        fs::write(&path, change.make(&installed, client, removed[0])).unwrap();
        let (plan, after) = undo_in(&installation, client);
        let original = with_later_state(&text);
        if change == ChangeBetween::NameTaken {
            assert_eq!(plan.restored, removed[1..]);
            assert_eq!(losses(&plan), [(removed[0], LossReason::NameTaken)]);
        } else {
            assert_eq!(plan.restored, removed);
            assert_eq!(losses(&plan), []);
            assert_eq!(values(&after, client), values(&original, client), "{after}");
        }
        for name in &plan.restored {
            let bytes = notation.entry_of(name);
            assert!(after.contains(bytes.trim_end()), "{name}: {after}");
        }
        assert!(!after.contains("riglm"), "{after}");
        // No byte is lost outside the entries, whose order may be another one.
        if change == ChangeBetween::None {
            assert_eq!(sorted_bytes(&after), sorted_bytes(&original), "{after}");
        }
    }
}
