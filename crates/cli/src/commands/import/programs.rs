//! Programs of servers: whether riglm would find them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use riglm_adapters_clients::configuration::{ConfiguredServer, ConfiguredTransport};

use crate::config::Environment;

/// Returns the program of a server if it is not there: by its absolute path, or by a folder of
/// `PATH`. Returns `None` where this cannot be known.
pub(super) fn missing_program(
    server: &ConfiguredServer,
    variables: &Environment,
) -> Option<String> {
    let ConfiguredTransport::Command(command) = &server.transport else {
        return None;
    };
    // Only the started program has this PATH.
    if command.env.contains_key("PATH") || command.env_file.is_some() {
        return None;
    }
    let program = variables.expand(&command.program).ok()?;
    // A relative path depends on the working directory, which a service has for itself.
    if program.contains('/') && Path::new(&program).is_relative() {
        return None;
    }
    let path = variables.value("PATH");
    let is_known = program.starts_with('/') || path.is_some();
    let is_found = is_program(&program, path.unwrap_or_default(), Path::new("/"));
    (is_known && !is_found).then_some(program)
}

/// Returns whether a program can be started: by its path from a directory, or by a folder of `path`,
/// the value of `PATH`.
pub(in crate::commands) fn is_program(program: &str, path: &str, directory: &Path) -> bool {
    let is_executable = |path: &Path| {
        let metadata = path.metadata();
        metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return is_executable(&directory.join(program));
    }
    let mut folders = path.split(':');
    folders.any(|folder| is_executable(&Path::new(folder).join(program)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use riglm_adapters_clients::configuration::{ReadContext, RiglmIdentity, client, read_servers};

    use super::*;

    #[test]
    fn programs_that_are_not_there_are_named() {
        let riglm = RiglmIdentity::default();
        let context = ReadContext {
            home: "/home/ann",
            riglm: &riglm,
        };
        let path = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let variables = Environment::default().with_others(path);
        for (entry, expected) in [
            (r#"{"command":"sh"}"#, None),
            (r#"{"command":"/bin/sh"}"#, None),
            (r#"{"command":"no-such-program"}"#, Some("no-such-program")),
            (r#"{"command":"/gone/program"}"#, Some("/gone/program")),
            (r#"{"command":"./program"}"#, None),
            (r#"{"command":"no-such-program","env":{"PATH":"/x"}}"#, None),
            (r#"{"type":"http","url":"https://h/mcp"}"#, None),
        ] {
            let json = format!(r#"{{"mcpServers":{{"a":{entry}}}}}"#);
            let servers = read_servers(&json, client("claude-code").unwrap(), context).unwrap();
            let missing = missing_program(&servers.servers[0], &variables);
            assert_eq!(missing.as_deref(), expected, "{entry}");
            let unknown = missing_program(&servers.servers[0], &Environment::default());
            let is_absolute = expected.is_some_and(|program| program.starts_with('/'));
            assert_eq!(unknown.is_some(), is_absolute, "{entry}");
        }
    }

    #[test]
    fn programs_are_found_by_path_and_by_folder() {
        for (program, path, directory, expected) in [
            ("sh", "/nowhere:/bin", "/", true),
            ("sh", "/nowhere", "/bin", false),
            ("/bin/sh", "", "/nowhere", true),
            ("./sh", "", "/bin", true),
            ("./sh", "/bin", "/", false),
            ("/bin", "", "/", false),
        ] {
            let found = is_program(program, path, Path::new(directory));
            assert_eq!(found, expected, "{program} {path} {directory}");
        }
    }
}
