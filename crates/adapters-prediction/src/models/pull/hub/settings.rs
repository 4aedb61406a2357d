//! Settings of the hub, from the environment variables that its own programs use.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

/// Timeout without any data from the hub.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(1);

/// Settings of the hub.
#[derive(Clone, Debug)]
pub struct HubSettings {
    /// Its URL, if it is not the default.
    pub endpoint: Option<String>,
    /// Access token.
    pub token: Option<SecretString>,
    /// Cache directory of the hub's programs.
    pub cache: Option<PathBuf>,
    /// Whether network access to the hub is disabled.
    pub is_offline: bool,
    /// Timeout without any data from the hub.
    pub patience: Duration,
}

impl Default for HubSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            token: None,
            cache: None,
            is_offline: false,
            patience: SILENCE_TIMEOUT,
        }
    }
}

impl HubSettings {
    /// Returns settings from environment variables: `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_CACHE`,
    /// `HF_HOME`, `XDG_CACHE_HOME`, `HOME` and `HF_HUB_OFFLINE`. Without `HF_TOKEN`, reads the file
    /// `token` in `HF_HOME`, which a login writes.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let home = set("HF_HOME").map(PathBuf::from).or_else(|| {
            let caches = set("XDG_CACHE_HOME").map(PathBuf::from);
            let caches = caches.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")));
            Some(caches?.join("huggingface"))
        });
        let token = set("HF_TOKEN").or_else(|| {
            let file = home.as_ref()?.join("token");
            std::fs::read_to_string(file).ok()
        });
        Self {
            endpoint: set("HF_ENDPOINT").map(|url| url.trim().trim_end_matches('/').to_owned()),
            token: token
                .map(|token| token.trim().to_owned())
                .filter(|token| !token.is_empty())
                .map(SecretString::from),
            cache: set("HF_HUB_CACHE")
                .map(PathBuf::from)
                .or_else(|| Some(home?.join("hub"))),
            is_offline: set("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            patience: SILENCE_TIMEOUT,
        }
    }
}

/// Returns whether the value of a variable is true by the rules of the hub's own programs.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn settings(variables: &[(&str, &str)]) -> HubSettings {
        HubSettings::from_variables(|name| {
            let mut all = variables.iter();
            all.find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_most_specific_variable_sets_the_cache() {
        let home = ("HOME", "/home/u");
        let cache = |more: &[(&str, &str)]| {
            let all: Vec<_> = more.iter().copied().chain([home]).collect();
            settings(&all).cache
        };
        assert_eq!(cache(&[]), Some("/home/u/.cache/huggingface/hub".into()));
        assert_eq!(
            cache(&[("XDG_CACHE_HOME", "/c")]),
            Some("/c/huggingface/hub".into())
        );
        assert_eq!(cache(&[("HF_HOME", "/h")]), Some("/h/hub".into()));
        assert_eq!(
            cache(&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/x")]),
            Some("/x".into())
        );
        assert_eq!(settings(&[]).cache, None);
    }

    #[test]
    fn tokens_come_from_the_variable_or_the_login_file() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("token"), "from-file\n").unwrap();
        let home = ("HF_HOME", directory.path().to_str().unwrap());
        let token = |variables: &[(&str, &str)]| {
            settings(variables)
                .token
                .map(|token| token.expose_secret().to_owned())
        };
        assert_eq!(token(&[home]), Some("from-file".into()));
        assert_eq!(token(&[home, ("HF_TOKEN", "own")]), Some("own".into()));
        assert_eq!(token(&[]), None);
    }

    #[test]
    fn hf_hub_offline_accepts_one_and_true() {
        for (value, is_offline) in [("1", true), ("TRUE", true), ("0", false), ("", false)] {
            let found = settings(&[("HF_HUB_OFFLINE", value)]).is_offline;
            assert_eq!(found, is_offline, "{value:?}");
        }
    }
}
