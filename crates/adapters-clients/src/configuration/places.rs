//! The paths of clients on an operating system.
//!
//! The home directory, the variables and the system are values, so that the paths of all systems
//! can be tested on one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::client::{Client, FilePlace, FileRole};

#[cfg(test)]
mod tests;

/// An operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// Linux and other systems with the directories of freedesktop.org.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl Os {
    /// Returns the system that this program was built for.
    pub fn of_this_build() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Linux
        }
    }
}

/// The values that the paths of clients depend on.
#[derive(Clone, Debug)]
pub struct Places {
    /// The operating system.
    pub os: Os,
    /// The home directory of the user.
    pub home: PathBuf,
    /// The environment variables.
    pub variables: BTreeMap<String, String>,
}

/// A path where a client may have a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateFile {
    /// The path. A folder in it may be `*`.
    pub path: PathBuf,
    /// The use of the file.
    pub role: FileRole,
}

impl Places {
    /// Returns the files of a client, in the order in which the client prefers them.
    pub fn files(&self, client: &Client) -> Vec<CandidateFile> {
        let mut files: Vec<CandidateFile> = Vec::new();
        for place in client.files {
            let path = self.resolve(self.templates(place));
            let known = |path: &PathBuf| files.iter().any(|file| file.path == *path);
            if let Some(path) = path.filter(|path| !known(path)) {
                files.push(CandidateFile {
                    path,
                    role: place.role,
                });
            }
        }
        files
    }

    /// Returns the files of an administrator that shut out other servers.
    pub fn managed_files(&self, client: &Client) -> Vec<PathBuf> {
        let places = client.managed_files.iter();
        places
            .filter_map(|place| self.resolve(self.templates(place)))
            .collect()
    }

    /// Returns the folder that shows that a client is installed.
    pub(crate) fn folder(&self, client: &Client) -> Option<PathBuf> {
        self.resolve(client.folder)
    }

    /// Returns the path of a folder or file of a gateway, whose templates are those of [`FilePlace`].
    pub(super) fn path_at(&self, place: &FilePlace) -> Option<PathBuf> {
        self.resolve(self.templates(place))
    }

    fn templates(&self, place: &FilePlace) -> &'static [&'static str] {
        match self.os {
            Os::Linux => place.linux,
            Os::MacOs => place.macos,
            Os::Windows => place.windows,
        }
    }

    /// Returns the path of the first template whose variable is set.
    fn resolve(&self, templates: &[&str]) -> Option<PathBuf> {
        templates.iter().find_map(|template| {
            let (root, rest) = template.split_once('/').unwrap_or((template, ""));
            let root = match root {
                "" => return Some(PathBuf::from(template)),
                "~" => self.home.clone(),
                "%APPDATA%" => self.folder_of("APPDATA", "AppData/Roaming"),
                "%LOCALAPPDATA%" => self.folder_of("LOCALAPPDATA", "AppData/Local"),
                // A relative path is invalid, and ignored.
                "$XDG_CONFIG_HOME" => self
                    .variable("XDG_CONFIG_HOME")
                    .filter(|value| self.os == Os::Windows || value.starts_with('/'))
                    .map_or_else(|| self.home.join(".config"), PathBuf::from),
                root => match root.strip_prefix('$') {
                    Some(name) => self.expand_home(self.variable(name)?),
                    None => return Some(PathBuf::from(template)),
                },
            };
            Some(if rest.is_empty() {
                root
            } else {
                root.join(rest)
            })
        })
    }

    fn folder_of(&self, variable: &str, default: &str) -> PathBuf {
        let value = self.variable(variable).map(PathBuf::from);
        value.unwrap_or_else(|| self.home.join(default))
    }

    fn expand_home(&self, path: &str) -> PathBuf {
        match path.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => PathBuf::from(path),
        }
    }

    /// Returns a variable that is not empty. Windows ignores the case of names.
    fn variable(&self, name: &str) -> Option<&str> {
        let is_it = |key: &String| {
            *key == *name || (self.os == Os::Windows && key.eq_ignore_ascii_case(name))
        };
        let found = self.variables.iter().find(|(key, _)| is_it(key));
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}
