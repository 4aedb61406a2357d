//! The paths of the tested clients on all systems, and those that other tools have wrong.

use super::*;
use crate::configuration::client::Tier;
use crate::configuration::table;

fn places(os: Os, variables: &[(&str, &str)]) -> Places {
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Places {
        os,
        home: PathBuf::from("/home/me"),
        variables: variables.collect(),
    }
}

/// Returns the paths of a client, without the home directory.
fn paths(id: &str, places: &Places) -> Vec<String> {
    let files = places.files(table::client(id).unwrap());
    let paths = files.iter().map(|file| {
        let path = file.path.to_str().unwrap();
        path.strip_prefix("/home/me/").unwrap_or(path).to_owned()
    });
    paths.collect()
}

const SYSTEMS: [Os; 3] = [Os::Linux, Os::MacOs, Os::Windows];

#[test]
fn each_tested_client_has_its_file_on_each_system() {
    let support = "Library/Application Support";
    let expected: [(&str, [&str; 3]); 13] = [
        ("claude-code", [".claude.json"; 3]),
        (
            "claude-desktop",
            [
                ".config/Claude/claude_desktop_config.json",
                "Library/Application Support/Claude/claude_desktop_config.json",
                "AppData/Roaming/Claude/claude_desktop_config.json",
            ],
        ),
        ("cursor", [".cursor/mcp.json"; 3]),
        (
            "vscode",
            [
                ".config/Code/User/mcp.json",
                "Library/Application Support/Code/User/mcp.json",
                "AppData/Roaming/Code/User/mcp.json",
            ],
        ),
        ("codex", [".codex/config.toml"; 3]),
        ("gemini", [".gemini/settings.json"; 3]),
        (
            "devin",
            [
                ".config/devin/mcp_config.json",
                ".config/devin/mcp_config.json",
                "AppData/Roaming/devin/mcp_config.json",
            ],
        ),
        ("windsurf", [".codeium/windsurf/mcp_config.json"; 3]),
        (
            "zed",
            [
                ".config/zed/settings.json",
                ".config/zed/settings.json",
                "AppData/Roaming/Zed/settings.json",
            ],
        ),
        ("cline", [".cline/data/settings/cline_mcp_settings.json"; 3]),
        ("opencode", [".config/opencode/opencode.jsonc"; 3]),
        ("copilot-cli", [".copilot/mcp-config.json"; 3]),
        (
            "goose",
            [
                ".config/goose/config.yaml",
                ".config/goose/config.yaml",
                "AppData/Roaming/Block/goose/config/config.yaml",
            ],
        ),
    ];
    for (id, files) in expected {
        for (os, file) in SYSTEMS.into_iter().zip(files) {
            assert_eq!(paths(id, &places(os, &[]))[0], file, "{id} on {os:?}");
        }
    }
    let tested = table::clients().filter(|client| client.tier == Tier::Tested);
    assert_eq!(tested.count(), expected.len());
    let old = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";
    let roots = [".config", support, "AppData/Roaming"];
    for (os, root) in SYSTEMS.into_iter().zip(roots) {
        let expected = [
            ".cline/data/settings/cline_mcp_settings.json".to_owned(),
            format!("{root}/Code/{old}"),
            format!("{root}/Cursor/{old}"),
        ];
        assert_eq!(paths("cline", &places(os, &[])), expected);
    }
}

#[test]
fn variables_move_files() {
    for (id, variable, value, expected) in [
        ("claude-code", "CLAUDE_CONFIG_DIR", "/x", "/x/.claude.json"),
        ("codex", "CODEX_HOME", "/x", "/x/config.toml"),
        ("codex", "CODEX_HOME", "~/x", "x/config.toml"),
        ("codex", "CODEX_HOME", "", ".codex/config.toml"),
        ("zed", "XDG_CONFIG_HOME", "/x", "/x/zed/settings.json"),
        ("zed", "XDG_CONFIG_HOME", "x", ".config/zed/settings.json"),
        (
            "zed",
            "FLATPAK_XDG_CONFIG_HOME",
            "/f",
            "/f/zed/settings.json",
        ),
        ("vscode", "XDG_CONFIG_HOME", "/x", "/x/Code/User/mcp.json"),
        ("cline", "CLINE_MCP_SETTINGS_PATH", "/x/y.json", "/x/y.json"),
        (
            "cline",
            "CLINE_DATA_DIR",
            "/x",
            "/x/settings/cline_mcp_settings.json",
        ),
        (
            "cline",
            "CLINE_DIR",
            "/x",
            "/x/data/settings/cline_mcp_settings.json",
        ),
        ("opencode", "OPENCODE_CONFIG", "/x/o.json", "/x/o.json"),
        ("opencode", "OPENCODE_CONFIG_DIR", "/x", "/x/opencode.jsonc"),
        ("copilot-cli", "COPILOT_HOME", "/x", "/x/mcp-config.json"),
        ("crush", "CRUSH_GLOBAL_CONFIG", "/x", "/x/crush.json"),
        ("kimi", "KIMI_CODE_HOME", "/x", "/x/mcp.json"),
    ] {
        let places = places(Os::Linux, &[(variable, value)]);
        assert_eq!(paths(id, &places)[0], expected, "{variable}");
    }
    let windows = places(
        Os::Windows,
        &[("AppData", "D:/Roaming"), ("LOCALAPPDATA", "D:/Local")],
    );
    assert_eq!(paths("cursor", &windows), [".cursor/mcp.json"]);
    assert_eq!(paths("zed", &windows), ["D:/Roaming/Zed/settings.json"]);
    assert_eq!(
        paths("claude-desktop", &windows)[1],
        "D:/Local/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json"
    );
    // Both names would be the same file.
    let places = places(Os::Linux, &[("OPENCODE_CONFIG", "/x/o.json")]);
    assert_eq!(paths("opencode", &places), ["/x/o.json"]);
}

#[test]
fn places_that_other_tools_have_wrong_are_right() {
    let all = |os| {
        let places = places(os, &[]);
        let paths = table::clients().flat_map(|client| paths(client.id, &places));
        paths.collect::<Vec<String>>()
    };
    for os in SYSTEMS {
        for wrong in [
            ".codex/config.json",
            ".continue/config.json",
            ".cline/mcp_servers.json",
            ".config/claude/",
            "Application Support/Zed",
            "Application Support/zed",
            ".config/Zed",
            ".config/copilot",
            ".config/github-copilot/mcp",
            "AppData/Block/goose",
            "AppData/Local/opencode",
            ".config/trae",
        ] {
            let paths = all(os);
            assert!(
                !paths.iter().any(|path| path.contains(wrong)),
                "{wrong} on {os:?}"
            );
        }
    }
    let windows = all(Os::Windows);
    assert!(!windows.contains(&".config/zed/settings.json".to_owned()));
    assert!(!windows.contains(&".config/goose/config.yaml".to_owned()));
}

#[test]
fn managed_files_are_known() {
    let client = table::client("claude-code").unwrap();
    let managed = places(Os::MacOs, &[]).managed_files(client);
    let expected = PathBuf::from("/Library/Application Support/ClaudeCode/managed-mcp.json");
    assert_eq!(managed, [expected]);
    for os in SYSTEMS {
        let places = places(os, &[]);
        let managed = places.managed_files(client);
        let files = places.files(client);
        assert!(files.iter().all(|file| !managed.contains(&file.path)));
    }
}

#[test]
fn rows_are_complete_and_unique() {
    let mut ids = std::collections::BTreeSet::new();
    for client in table::clients() {
        assert!(ids.insert(client.id), "{}", client.id);
        assert!(!client.title.is_empty() && !client.map.key.is_empty());
        let places: Vec<Places> = SYSTEMS.into_iter().map(|os| places(os, &[])).collect();
        let has_files = places.iter().any(|it| !it.files(client).is_empty());
        assert!(has_files, "{}", client.id);
    }
    assert!(table::client("nothing").is_none());
}
