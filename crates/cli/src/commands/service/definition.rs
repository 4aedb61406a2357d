//! The definition of the service for each service manager.

use std::path::{Path, PathBuf};

use crate::config::ProcessEnv;
use crate::exit::WrongUsage;

/// A text that only files of this command have.
pub(super) const MARK: &str = "Written by riglm service install";
/// The name of the unit of systemd.
const UNIT: &str = "riglm.service";
/// The name of the agent of launchd.
const LABEL: &str = "io.github.riglm";

/// A manager of the services of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    Systemd,
    Launchd,
}

/// The paths in the command line of the service.
#[derive(Clone, Debug, Default)]
pub(super) struct ServePaths {
    pub(super) program: PathBuf,
    pub(super) config: Option<PathBuf>,
    pub(super) data_dir: Option<PathBuf>,
    /// The variable `PATH`, by which programs of upstreams are found.
    pub(super) search_path: Option<String>,
}

impl ServePaths {
    fn command(&self) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let mut words = vec![text(&self.program), "serve".into()];
        for (flag, path) in [("--config", &self.config), ("--data-dir", &self.data_dir)] {
            if let Some(path) = path {
                words.extend([flag.to_owned(), text(path)]);
            }
        }
        words
    }
}

/// The service for a manager: its file, and the commands of the manager.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) manager: Manager,
    pub(super) file: PathBuf,
    pub(super) text: String,
    /// The commands before those that start the service. They fail if it does not run.
    pub(super) prepare: Vec<Vec<String>>,
    pub(super) start: Vec<Vec<String>>,
    pub(super) stop: Vec<Vec<String>>,
    /// The commands after the file was removed.
    pub(super) forget: Vec<Vec<String>>,
    pub(super) state: Vec<String>,
}

impl Definition {
    /// Returns all commands that start the service.
    pub(super) fn all_start(&self) -> Vec<Vec<String>> {
        self.prepare.iter().chain(&self.start).cloned().collect()
    }
}

impl Manager {
    /// Returns the manager of this system.
    ///
    /// # Errors
    ///
    /// Returns [`WrongUsage`] for a system without a known one.
    pub(super) fn of_system() -> Result<Self, WrongUsage> {
        match std::env::consts::OS {
            "linux" => Ok(Self::Systemd),
            "macos" => Ok(Self::Launchd),
            other => Err(WrongUsage(format!(
                "riglm service needs systemd or launchd, which {other} does not have"
            ))),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Launchd => "launchd",
        }
    }

    /// Returns the program in the text of a file that this command wrote.
    pub(super) fn program_in(self, text: &str) -> Option<PathBuf> {
        let rest = text.contains(MARK).then(|| match self {
            Self::Systemd => text.split_once("ExecStart=\"").map(|(_, rest)| (rest, '"')),
            Self::Launchd => text.split_once("<string>/").map(|(_, rest)| (rest, '<')),
        });
        let (rest, end) = rest??;
        let (program, _) = rest.split_once(end)?;
        Some(match self {
            Self::Systemd => PathBuf::from(program),
            Self::Launchd => PathBuf::from(format!("/{program}")),
        })
    }

    /// Returns the path after an option such as `--config` in the text of a file that this command
    /// wrote; `None` without the option.
    pub(super) fn path_after(self, option: &str, text: &str) -> Option<PathBuf> {
        let path = match self {
            Self::Systemd => {
                let start = format!(" \"{option}\" \"");
                let (_, rest) = text.split_once(&start)?;
                systemd_text(rest)
            }
            Self::Launchd => {
                let start = format!("<string>{option}</string>\n    <string>");
                let (_, rest) = text.split_once(&start)?;
                let (word, _) = rest.split_once('<')?;
                xml_text(word)
            }
        };
        Some(PathBuf::from(path))
    }

    /// Returns whether the output of the state command says that the service runs.
    pub(super) fn says_running(self, output: &str) -> bool {
        match self {
            Self::Systemd => output.trim() == "active",
            Self::Launchd => output.contains("state = running"),
        }
    }

    /// Returns the service.
    ///
    /// # Errors
    ///
    /// Returns [`WrongUsage`] for a user without a home directory.
    pub(super) fn definition(
        self,
        process: &ProcessEnv,
        paths: &ServePaths,
    ) -> Result<Definition, WrongUsage> {
        let home = process
            .home_directory
            .as_ref()
            .ok_or_else(|| WrongUsage("this user has no home directory: set HOME".into()))?;
        Ok(match self {
            Self::Systemd => {
                let config = process.environment.value("XDG_CONFIG_HOME");
                let config = config.map_or_else(|| home.join(".config"), PathBuf::from);
                systemd(&config, paths)
            }
            Self::Launchd => launchd(home, paths),
        })
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn systemd(config: &Path, paths: &ServePaths) -> Definition {
    let command: Vec<String> = paths
        .command()
        .iter()
        .map(|word| systemd_word(word))
        .collect();
    let command = command.join(" ");
    let search_path = paths.search_path.as_ref().map_or_else(String::new, |path| {
        format!("Environment={}\n", systemd_word(&format!("PATH={path}")))
    });
    let text = format!(
        "# {MARK}, which replaces it. Remove it with: riglm service uninstall\n\
         [Unit]\n\
         Description=riglm, a proxy for the Model Context Protocol\n\
         After=network-online.target\n\n\
         [Service]\n\
         ExecStart={command}\n\
         ExecReload=/bin/kill -HUP $MAINPID\n\
         {search_path}\
         Restart=on-failure\n\
         RestartSec=1\n\
         # Requests in flight may take the drain limit to end.\n\
         TimeoutStopSec=45\n\
         KillMode=mixed\n\
         NoNewPrivileges=yes\n\n\
         [Install]\n\
         WantedBy=default.target\n"
    );
    let systemctl = |verb: &str| words(["systemctl", "--user", verb, UNIT]);
    let reload = words(["systemctl", "--user", "daemon-reload"]);
    Definition {
        manager: Manager::Systemd,
        file: config.join("systemd").join("user").join(UNIT),
        text,
        prepare: Vec::new(),
        start: vec![reload.clone(), systemctl("enable"), systemctl("restart")],
        stop: vec![words(["systemctl", "--user", "disable", "--now", UNIT])],
        forget: vec![reload],
        state: systemctl("is-active"),
    }
}

/// Quotes a word for a line of a unit.
fn systemd_word(word: &str) -> String {
    let mut quoted = String::from("\"");
    for character in word.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            // Specifiers and variables of systemd.
            '%' | '$' => quoted.extend([character, character]),
            '\n' => quoted.push_str("\\n"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns the word at the beginning of `quoted`, up to its closing quote, as [`systemd_word`] got it.
fn systemd_text(quoted: &str) -> String {
    let mut word = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => match characters.next() {
                Some('n') => word.push('\n'),
                other => word.extend(other),
            },
            // It is doubled.
            '%' | '$' => word.extend(characters.next()),
            other => word.push(other),
        }
    }
    word
}

fn launchd(home: &Path, paths: &ServePaths) -> Definition {
    let command: Vec<String> = (paths.command().iter())
        .map(|word| format!("    <string>{}</string>\n", xml(word)))
        .collect();
    let search_path = paths.search_path.as_ref().map_or_else(String::new, |path| {
        format!(
            "  <key>EnvironmentVariables</key>\n  <dict>\n    <key>PATH</key>\n    \
             <string>{}</string>\n  </dict>\n",
            xml(path)
        )
    });
    let log = home.join("Library").join("Logs").join("riglm.log");
    let log = xml(&log.display().to_string());
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!-- {MARK}, which replaces it. Remove it with: riglm service uninstall -->\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n<dict>\n\
         \x20 <key>Label</key>\n  <string>{LABEL}</string>\n\
         \x20 <key>ProgramArguments</key>\n  <array>\n{}  </array>\n{search_path}\
         \x20 <key>RunAtLoad</key>\n  <true/>\n\
         \x20 <key>KeepAlive</key>\n  <dict>\n    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n\
         \x20 <key>ExitTimeOut</key>\n  <integer>45</integer>\n\
         \x20 <key>StandardErrorPath</key>\n  <string>{log}</string>\n\
         </dict>\n</plist>\n",
        command.concat()
    );
    let file = home
        .join("Library")
        .join("LaunchAgents")
        .join(format!("{LABEL}.plist"));
    let domain = format!("gui/{}", rustix::process::getuid().as_raw());
    let target = format!("{domain}/{LABEL}");
    let path = file.display().to_string();
    let bootout = words(["launchctl", "bootout", &target]);
    Definition {
        manager: Manager::Launchd,
        text,
        // An agent that is loaded cannot be loaded again, and would keep the old file.
        prepare: vec![bootout.clone()],
        start: vec![
            words(["launchctl", "bootstrap", &domain, &path]),
            words(["launchctl", "kickstart", "-k", &target]),
        ],
        stop: vec![bootout],
        forget: Vec::new(),
        state: words(["launchctl", "print", &target]),
        file,
    }
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Returns the text that [`xml`] got.
fn xml_text(escaped: &str) -> String {
    escaped
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "/etc/a \"%n\" & b.toml";

    fn definition(manager: Manager) -> Definition {
        let process = ProcessEnv {
            home_directory: Some("/home/ann".into()),
            ..ProcessEnv::default()
        };
        let paths = ServePaths {
            program: "/opt/my tools/riglm".into(),
            config: Some(CONFIG.into()),
            data_dir: None,
            search_path: Some("/bin:$HOME/x".into()),
        };
        manager.definition(&process, &paths).unwrap()
    }

    #[test]
    fn words_are_quoted_for_systemd() {
        let unit = definition(Manager::Systemd);
        assert_eq!(
            unit.file,
            Path::new("/home/ann/.config/systemd/user/riglm.service")
        );
        let line = "ExecStart=\"/opt/my tools/riglm\" \"serve\" \"--config\" \
                    \"/etc/a \\\"%%n\\\" & b.toml\"\n";
        assert!(unit.text.contains(line), "{}", unit.text);
        assert!(unit.text.contains("Environment=\"PATH=/bin:$$HOME/x\"\n"));
        assert!(unit.text.contains(MARK));
    }

    #[test]
    fn words_are_escaped_for_launchd() {
        let agent = definition(Manager::Launchd);
        assert_eq!(
            agent.file,
            Path::new("/home/ann/Library/LaunchAgents/io.github.riglm.plist")
        );
        let word = "    <string>/etc/a \"%n\" &amp; b.toml</string>\n";
        assert!(agent.text.contains(word), "{}", agent.text);
        assert!(agent.text.contains(MARK));
    }

    #[test]
    fn paths_are_read_as_they_were_written() {
        for manager in [Manager::Systemd, Manager::Launchd] {
            let text = definition(manager).text;
            let path = |option| manager.path_after(option, &text);
            assert_eq!(path("--config"), Some(CONFIG.into()), "{text}");
            assert_eq!(path("--data-dir"), None, "{text}");
        }
        for word in ["/a\\b", "/$x\ny", "/&lt;"] {
            assert_eq!(systemd_text(&systemd_word(word)[1..]), word);
            assert_eq!(xml_text(&xml(word)), word);
        }
    }

    #[test]
    fn a_loaded_agent_is_unloaded_before_it_is_loaded() {
        let agent = definition(Manager::Launchd);
        assert_eq!(agent.prepare, agent.stop);
        assert!(agent.stop[0].contains(&"bootout".to_owned()));
        assert!(definition(Manager::Systemd).prepare.is_empty());
    }

    #[test]
    fn a_user_without_a_home_directory_is_told_so() {
        let error = Manager::Systemd
            .definition(&ProcessEnv::default(), &ServePaths::default())
            .unwrap_err();
        assert!(error.to_string().contains("set HOME"), "{error}");
    }
}
