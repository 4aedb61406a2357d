//! The parts of riglm that stay on the machine after it is out of all clients.

use std::path::Path;

use crate::args::LocationArgs;
use crate::commands::import::plan::ImportTarget;
use crate::commands::service::{Listener, ServiceState, installed_service};
use crate::config::{ConfigSource, SecretsFile};
use crate::output::number_of;

/// Returns the parts that exist, each with the command that removes it.
pub(super) async fn remains(target: ImportTarget<'_>, places: &LocationArgs) -> Vec<String> {
    let mut found = Vec::new();
    let service = installed_service(target.process, places);
    let is_running = (service.as_ref()).is_some_and(|it| it.state == ServiceState::Running);
    if service.is_some() {
        found.push("the service; remove it with: riglm service uninstall".to_owned());
    }
    // Without the service, somebody has started it in a terminal.
    if !is_running && Listener::of(target.config).await == Listener::Proxy {
        found.push(format!(
            "a proxy at {}; end it with Ctrl-C in its terminal",
            target.config.listen.address
        ));
    }
    let source = ConfigSource::new(target.overrides.clone(), target.process.clone());
    if let Some(file) = source.file().filter(|file| file.exists()) {
        let file = shell_word(&file);
        found.push(format!("the configuration; remove it with: rm {file}"));
    }
    let data_dir = &target.config.data_dir;
    let secrets = SecretsFile::of(data_dir);
    let file = shell_word(secrets.path());
    match secrets.read() {
        Ok(values) if values.is_empty() => {}
        Ok(values) => {
            let secrets = number_of(values.len(), "secret");
            found.push(format!("{secrets} in a file; remove it with: rm {file}"));
        }
        Err(_) => found.push(format!("a file with secrets; remove it with: rm {file}")),
    }
    let own = data_dir.join("riglm.db");
    match &target.config.storage.sqlite.path {
        Some(path) if path.exists() => {
            let file = shell_word(path);
            found.push(format!("the database; remove it with: rm {file}*"));
        }
        None if own.exists() => {
            let folder = shell_word(data_dir);
            found.push(format!(
                "the database and the other data of riglm; remove them with: rm -r {folder}"
            ));
        }
        _ => {}
    }
    found
}

/// Returns a path as a word of a command line, in quotes if it needs them.
pub(super) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+' | ',');
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_words_of_a_command_line() {
        for (path, word) in [
            ("/home/ann/riglm.toml", "/home/ann/riglm.toml"),
            ("/home/ann/my data", "'/home/ann/my data'"),
            ("/home/o'neil/$x", r"'/home/o'\''neil/$x'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
