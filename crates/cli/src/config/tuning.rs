//! The tuning keys: the closed set of keys that may change while riglm runs. All other keys
//! determine started components, access or storage, and keep their values from the start.

use config::{Map, Value, ValueKind};
use riglm_domain::retrieval::nearest_names;
use serde_json::Value as Json;

use super::tree::join;
use super::validation::Refusal;

/// The keys of section `filtering` that profiles have too.
const LIST_KEYS: &[&str] = &[
    "policy",
    "min_tools",
    "max_tools",
    "token_budget",
    "epoch",
    "coverage",
    "gate_writes",
    "enforce",
    "context_shift",
    "pins",
    "bans",
    "forbid",
    "allow",
    "deny",
];

/// The other tuning keys.
const OTHER_KEYS: &[&[&str]] = &[
    &["paused"],
    &["filtering", "enabled"],
    &["filtering", "strategy"],
    &["filtering", "clients"],
    &["filtering", "pools"],
    &["filtering", "costs", "cached_read"],
    &["filtering", "costs", "cache_write"],
    &["filtering", "costs", "context_tokens"],
    &["filtering", "costs", "search"],
    &["filtering", "costs", "search_weight"],
    &["filtering", "costs", "lost_tool"],
    &["filtering", "costs", "margin"],
    &["filtering", "costs", "session_calls"],
    &["filtering", "costs", "session_tools"],
    &["filtering", "exploration", "share"],
    &["filtering", "exploration", "seed"],
    &["prediction", "enabled"],
    &["prediction", "predictor"],
    &["prediction", "experts"],
    &["prediction", "half_life_days"],
    &["search", "enabled"],
    &["search", "call_tool"],
    &["search", "set_context"],
    &["search", "show_session"],
    &["search", "token_budget"],
    &["search", "n_predicted"],
    &["search", "fusion"],
    &["search", "half_life_days"],
    &["search", "min_fit"],
    &["search", "encoder", "threads"],
    &["search", "encoder", "timeout"],
    &["search", "weights", "meaning"],
    &["search", "weights", "synonyms"],
    &["search", "weights", "slots"],
    &["search", "weights", "server"],
    &["search", "weights", "memory"],
    &["search", "weights", "companions"],
    &["search", "weights", "frequency"],
    &["search", "rrf", "k"],
    &["search", "rrf", "preset"],
    &["search", "rrf", "words"],
    &["search", "rrf", "meaning"],
    &["search", "rrf", "memory"],
    &["search", "rrf", "companions"],
    &["search", "rrf", "frequency"],
    &["search", "quality", "top"],
    &["search", "quality", "mean"],
    &["search", "quality", "count"],
    &["search", "quality", "recency"],
    &["search", "quality", "variance"],
    &["search", "quality", "high"],
    &["search", "quality", "low"],
    &["search", "notes", "weight"],
    &["search", "notes", "pins"],
    &["search", "notes", "entries"],
    &["search", "expansion", "enabled"],
    &["search", "expansion", "n_variants"],
    &["search", "expansion", "synonyms"],
    &["search", "expansion", "history"],
    &["search", "expansion", "timeout"],
    &["search", "expansion", "max_requests_per_minute"],
    &["search", "rerank", "by"],
    &["search", "rerank", "max_tools"],
    &["search", "rerank", "timeout"],
    &["search", "rerank", "max_requests_per_minute"],
    &["safeguards", "notices"],
    &["safeguards", "result_cache", "enabled"],
    &["safeguards", "result_cache", "ttl"],
    &["safeguards", "result_cache", "tools"],
    &["safeguards", "long_results", "max_bytes"],
    &["safeguards", "long_results", "except"],
    &["safeguards", "budget", "enabled"],
    &["safeguards", "budget", "tokens"],
    &["safeguards", "budget", "status"],
    &["safeguards", "budget", "suggest"],
    &["safeguards", "budget", "stop"],
    &["safeguards", "budget", "on_exhausted"],
    &["safeguards", "budget", "client_may_raise"],
    &["safeguards", "searches", "enabled"],
    &["safeguards", "searches", "tools"],
    &["safeguards", "searches", "annotated"],
    &["safeguards", "searches", "overlap"],
    &["safeguards", "searches", "falling"],
    &["safeguards", "searches", "without_call"],
    &["safeguards", "limits", "max_concurrent"],
    &["safeguards", "limits", "max_calls_per_context"],
    &["safeguards", "limits", "rules"],
    &["prediction", "confidence"],
    &["prediction", "bands", "show_all_below"],
    &["prediction", "bands", "search_prominent_below"],
    &["recommend", "weights"],
    &["intent", "set_context"],
    &["intent", "request"],
    &["intent", "search"],
    &["intent", "prompts"],
    &["intent", "sampling"],
    &["intent", "arguments"],
    &["intent", "resources"],
    &["recording", "retention_days"],
    &["limits", "call_timeout"],
    &["limits", "call_timeout_max"],
    &["limits", "handshake_timeout"],
    &["limits", "idle_timeout"],
    &["limits", "drain_timeout"],
    &["limits", "first_wait"],
    &["limits", "unite_timeout"],
    &["limits", "list_page_entries"],
    &["limits", "in_flight"],
    &["limits", "in_flight_per_session"],
    &["limits", "in_flight_bytes"],
    &["limits", "connections"],
    &["limits", "sessions"],
    &["limits", "sessions_per_principal"],
    &["limits", "waiting_bytes"],
    &["limits", "principal_share"],
    &["limits", "requests_per_second"],
    &["limits", "request_body_bytes"],
    &["limits", "message_depth"],
    &["logging", "level"],
];

/// The keys of section `safeguards.budget` that profiles have too.
const BUDGET_KEYS: &[&str] = &[
    "enabled",
    "tokens",
    "status",
    "suggest",
    "stop",
    "on_exhausted",
    "client_may_raise",
];

/// The keys, or sections of keys, that follow the configuration file while riglm runs but cannot be
/// tuned, in addition to upstreams and keys of access: they name programs, addresses, credentials
/// and files.
const OF_FILE: &[&[&str]] = &[
    &["prediction", "predictor"],
    &["search", "synonyms"],
    &["search", "encoder", "model"],
    &["search", "encoder", "remote"],
    &["search", "expansion", "endpoint"],
    &["search", "rerank", "endpoint"],
];

/// The key of the predictor. Its value is a name, or a table of an external predictor.
const PREDICTOR: [&str; 2] = ["prediction", "predictor"];

/// The reasons for keys that cannot be tuned, by key or section.
const FIXED: &[(&[&str], &str)] = &[
    (&["upstream"], OF_THE_FILE),
    (&["upstreams"], OF_THE_FILE),
    (&["listen"], "addresses are bound at startup"),
    (&["control", "keys"], OF_KEYS),
    (&["control", "token"], OF_KEYS),
    (&["control"], "the control port is set up at startup"),
    (&["auth"], OF_KEYS),
    (&["storage"], "the database is opened at startup"),
    (&["data_dir"], "the files of riglm are opened at startup"),
    (&["naming"], OF_THE_NAMES),
    (&["search", "tool_name"], OF_THE_NAMES),
    (&["search", "call_tool_name"], OF_THE_NAMES),
    (&["search", "set_context_name"], OF_THE_NAMES),
    (&["search", "show_session_name"], OF_THE_NAMES),
    (&["safeguards", "long_results", "tool_name"], OF_THE_NAMES),
    (&["search", "synonyms"], OF_THE_FILE),
    (&["search", "encoder", "model"], OF_THE_FILE),
    (&["search", "encoder", "remote"], OF_THE_FILE),
    (&["search", "expansion", "endpoint"], OF_THE_FILE),
    (&["search", "rerank", "endpoint"], OF_THE_FILE),
    (
        &["recommend", "experiments"],
        "an experiment must not change while it runs",
    ),
    (&["work_sessions"], "work sessions are set up at startup"),
    (
        &["profiles"],
        "profiles are added and removed only at startup",
    ),
    (
        &["recommend", "tuning"],
        "the tuning of weights is set up at startup",
    ),
    (&["recording", "mode"], OF_THE_RECORDER),
    (&["recording", "durability"], OF_THE_RECORDER),
    (&["recording", "spool_max_bytes"], OF_THE_RECORDER),
    (&["recording", "tokens"], OF_THE_RECORDER),
    (&["prediction", "shared_learning"], OF_THE_PREDICTOR),
    (&["recommend", "enabled"], OF_THE_RECOMMENDER),
    (&["recommend", "tools"], OF_THE_RECOMMENDER),
    (&["recommend", "tool_name"], OF_THE_RECOMMENDER),
    (&["recommend", "rate_tool_name"], OF_THE_RECOMMENDER),
    (&["recommend", "limit"], OF_THE_RECOMMENDER),
    (&["recommend", "candidates"], OF_THE_RECOMMENDER),
    (&["recommend", "half_life_days"], OF_THE_RECOMMENDER),
    (&["recommend", "cache_ttl"], OF_THE_RECOMMENDER),
    (&["recommend", "lexicon"], OF_THE_RECOMMENDER),
    (&["recommend", "tags"], OF_THE_RECOMMENDER),
    (&["logging", "format"], "the log format is set at startup"),
    (&["telemetry"], "tracing is set up at startup"),
    (&["logging", "include_arguments"], OF_WHAT_IS_STORED),
    (&["logging", "include_results"], OF_WHAT_IS_STORED),
];

const OF_THE_FILE: &str = "programs, addresses and credentials of servers, and paths, come only \
                           from the configuration file";
const OF_THE_NAMES: &str = "clients know tools by their names";
const OF_KEYS: &str =
    "keys come only from the configuration file, which riglm reloads when it changes";
const OF_THE_RECORDER: &str = "the recorder is set up at startup";
const OF_THE_PREDICTOR: &str = "principals are separated at startup";
const OF_THE_RECOMMENDER: &str = "the recommender is set up at startup";
const OF_WHAT_IS_STORED: &str = "the stored parts of calls are set at startup";

/// The keys that can be tuned in a process.
#[derive(Clone, Debug, Default)]
pub(super) struct TuningKeys {
    /// The profiles at the start.
    profiles: Vec<String>,
}

impl TuningKeys {
    /// Creates the keys of a process with these profiles.
    pub(super) fn new(profiles: impl IntoIterator<Item = String>) -> Self {
        let mut profiles: Vec<String> = profiles.into_iter().collect();
        profiles.sort();
        Self { profiles }
    }

    /// Creates the keys of a process that starts with these values.
    pub(super) fn of(tree: &Map<String, Value>) -> Self {
        match tree.get("profiles").map(|profiles| &profiles.kind) {
            Some(ValueKind::Table(profiles)) => Self::new(profiles.keys().cloned()),
            _ => Self::default(),
        }
    }

    /// Returns whether the key can be tuned.
    pub(super) fn has(&self, parts: &[&str]) -> bool {
        match parts {
            ["filtering", key] if LIST_KEYS.contains(key) => true,
            ["profiles", name, "filtering", key] => {
                LIST_KEYS.contains(key) && self.has_profile(name)
            }
            ["profiles", name, "safeguards", "budget", key] => {
                BUDGET_KEYS.contains(key) && self.has_profile(name)
            }
            _ => OTHER_KEYS.contains(&parts),
        }
    }

    /// Returns all keys that can be tuned, each in its parts, sorted.
    pub(super) fn all(&self) -> Vec<Vec<String>> {
        let owned = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
        let of_lists = LIST_KEYS.iter().map(|key| owned(&["filtering", key]));
        let of_profiles = self.profiles.iter().flat_map(|name| {
            let budgets = BUDGET_KEYS.iter();
            let budgets =
                budgets.map(move |key| owned(&["profiles", name, "safeguards", "budget", key]));
            let lists = LIST_KEYS.iter();
            lists
                .map(move |key| owned(&["profiles", name, "filtering", key]))
                .chain(budgets)
        });
        let others = OTHER_KEYS.iter().map(|parts| owned(parts));
        let mut all: Vec<Vec<String>> = of_lists.chain(of_profiles).chain(others).collect();
        all.sort();
        all
    }

    /// Validates a document: it may have only tuning keys.
    ///
    /// # Errors
    ///
    /// Returns the first other key, with the reason.
    pub(super) fn check(&self, document: &serde_json::Map<String, Json>) -> Result<(), Refusal> {
        self.check_under(&[], document)
    }

    fn check_under(
        &self,
        parts: &[&str],
        table: &serde_json::Map<String, Json>,
    ) -> Result<(), Refusal> {
        for (key, value) in table {
            let mut parts = parts.to_vec();
            parts.push(key);
            match value {
                // A table names a program or an address.
                Json::Object(_) if parts == PREDICTOR => {
                    return Err(Refusal {
                        key: dotted_key(&parts),
                        reason: format!("can be tuned only to a name: {OF_THE_FILE}"),
                    });
                }
                _ if self.has(&parts) => {}
                Json::Object(inner) if !inner.is_empty() => self.check_under(&parts, inner)?,
                Json::Object(_) if self.has_under(&parts) => {}
                _ => return Err(self.refusal(&parts)),
            }
        }
        Ok(())
    }

    fn refusal(&self, parts: &[&str]) -> Refusal {
        let is_of_profile =
            matches!(parts, ["profiles", name, "filtering", _] if self.has_profile(name));
        let reason = if self.has_under(parts) {
            "expected a section".into()
        } else if let ["profiles", name, "filtering", _] = parts
            && !self.has_profile(name)
        {
            format!("cannot be changed while riglm runs: profile {name:?} did not exist at startup")
        } else if let Some(why) = fixed_reason(parts).filter(|_| !is_of_profile) {
            format!("cannot be changed while riglm runs: {why}")
        } else {
            let nearest = self.nearest(parts);
            let nearest = nearest.map_or_else(String::new, |key| format!("; the nearest is {key}"));
            format!("is not a key that can be changed while riglm runs{nearest}")
        };
        Refusal {
            key: dotted_key(parts),
            reason,
        }
    }

    /// Returns the tuning key with the most similar name, for a key that is not one: of the same
    /// section if possible.
    fn nearest(&self, parts: &[&str]) -> Option<String> {
        let (last, section) = parts.split_last()?;
        let all = self.all();
        let is_beside = |key: &&Vec<String>| {
            key.len() == parts.len() && key.iter().zip(section).all(|(one, other)| one == other)
        };
        let nearest_of = |keys: Vec<&Vec<String>>| {
            let names: Vec<&str> = (keys.iter())
                .filter_map(|key| key.last().map(String::as_str))
                .collect();
            let at = *nearest_names(last, &names, 1).first()?;
            Some(keys.get(at)?.join("."))
        };
        nearest_of(all.iter().filter(is_beside).collect())
            .or_else(|| nearest_of(all.iter().collect()))
    }

    /// Returns whether this section contains keys that can be tuned.
    fn has_under(&self, parts: &[&str]) -> bool {
        let is_below = |key: &Vec<String>| {
            key.len() > parts.len() && key.iter().zip(parts).all(|(one, other)| one == other)
        };
        self.all().iter().any(is_below)
    }

    fn has_profile(&self, name: &str) -> bool {
        self.profiles.iter().any(|known| known == name)
    }
}

/// Returns the reason if a key cannot change; `None` for other and unknown keys.
pub(super) fn fixed_reason(parts: &[&str]) -> Option<&'static str> {
    let found = FIXED.iter().find(|(fixed, _)| parts.starts_with(fixed));
    found.map(|(_, why)| *why)
}

/// Returns whether the key follows the configuration file while riglm runs, but cannot be tuned.
pub(super) fn is_of_file(parts: &[&str]) -> bool {
    let is_of_upstreams = matches!(parts.first(), Some(&("upstream" | "upstreams")));
    let is_of_keys = matches!(
        parts,
        ["auth", "keys", ..] | ["control", "keys" | "token", ..]
    );
    is_of_upstreams || is_of_keys || names_program(parts)
}

/// Returns whether the key names a program, an address, a credential or a file outside of the
/// sections of upstreams and access.
pub(super) fn names_program(parts: &[&str]) -> bool {
    OF_FILE.iter().any(|of_file| parts.starts_with(of_file))
}

/// Returns the path of a key, with dots.
pub(super) fn dotted_key(parts: &[&str]) -> String {
    (parts.iter()).fold(String::new(), |key, part| join(&key, part))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::show::every_key;

    fn check(document: &Json) -> Result<(), String> {
        let keys = TuningKeys::new(["few".to_owned()]);
        let document = document.as_object().unwrap();
        keys.check(document)
            .map_err(|refusal| format!("{}: {}", refusal.key, refusal.reason))
    }

    #[test]
    fn tuning_keys_are_let_through() {
        for document in [
            json!({}),
            json!({"filtering": {}}),
            json!({"filtering": {"max_tools": 3, "costs": {"search": 1}, "clients": [{"name": "x"}]}}),
            json!({"profiles": {"few": {"filtering": {"pins": ["a"]}}}, "limits": {"sessions": 1}}),
            json!({"profiles": {"few": {"safeguards": {"budget": {"tokens": 7}}}}}),
            json!({"prediction": {"predictor": "frequency"}, "search": {"weights": {"memory": 0}}}),
        ] {
            assert_eq!(check(&document), Ok(()), "{document}");
        }
    }

    #[test]
    fn other_keys_are_refused_with_their_reason() {
        for (document, refusal) in [
            (
                json!({"limits": {"sessions": 1}, "upstreams": {"x": {"command": ["sh"]}}}),
                "upstreams.x.command: cannot be changed while riglm runs: programs, addresses and \
                 credentials of servers, and paths, come only from the configuration file",
            ),
            (
                json!({"listen": {"address": "0.0.0.0:1"}}),
                "listen.address: cannot be changed while riglm runs: addresses are bound at \
                 startup",
            ),
            (
                json!({"search": {"tool_name": "find"}}),
                "search.tool_name: cannot be changed while riglm runs: clients know tools by their \
                 names",
            ),
            (
                json!({"prediction": {"predictor": {"command": ["sh"]}}}),
                "prediction.predictor: can be tuned only to a name: programs, addresses and \
                 credentials of servers, and paths, come only from the configuration file",
            ),
            (
                json!({"filtering": {"max_tool": 1}}),
                "filtering.max_tool: is not a key that can be changed while riglm runs; the \
                 nearest is filtering.max_tools",
            ),
            (
                json!({"filterin": {"cost": {"cached_reads": 1}}}),
                "filterin.cost.cached_reads: is not a key that can be changed while riglm runs; \
                 the nearest is filtering.costs.cached_read",
            ),
            (
                json!({"profiles": {"few": {"filtering": {"pin": ["a"]}}}}),
                "profiles.few.filtering.pin: is not a key that can be changed while riglm runs; \
                 the nearest is profiles.few.filtering.pins",
            ),
            (
                json!({"max_tools": 1}),
                "max_tools: is not a key that can be changed while riglm runs; the nearest is \
                 filtering.max_tools",
            ),
            (
                json!({"profiles": {"many": {"filtering": {"max_tools": 1}}}}),
                "profiles.many.filtering.max_tools: cannot be changed while riglm runs: profile \
                 \"many\" did not exist at startup",
            ),
            (
                json!({"profiles": {"new": {}}}),
                "profiles.new: cannot be changed while riglm runs: profiles are added and removed \
                 only at startup",
            ),
            (json!({"filtering": 7}), "filtering: expected a section"),
            (
                json!({"nonsense": {}}),
                "nonsense: is not a key that can be changed while riglm runs",
            ),
        ] {
            assert_eq!(check(&document), Err(refusal.to_owned()), "{document}");
        }
    }

    #[test]
    fn every_key_either_can_be_tuned_or_has_a_reason() {
        let keys = TuningKeys::new(["reading".to_owned()]);
        let mut n_tunable = 0;
        for parts in every_key() {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let is_tunable = keys.has(&parts);
            n_tunable += usize::from(is_tunable);
            assert_ne!(
                is_tunable,
                fixed_reason(&parts).is_some() && parts[0] != "profiles",
                "{parts:?}"
            );
        }
        // Keys without a default are not in the example.
        assert!(n_tunable > 30, "{n_tunable}");
    }
}
