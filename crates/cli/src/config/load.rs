//! Loading: it merges the layers into one validated configuration.

use std::path::PathBuf;
use std::time::Duration;

use config::{Map, Source, Value, ValueKind};
use riglm_adapters_http::ControlConfig;
use riglm_adapters_mcp::downstream::KeyRing;
use riglm_app::proxy::HintUse;
use riglm_app::selection::ProfileConfig;
use riglm_domain::id::ProfileName;
use serde::Deserialize;
use serde_path_to_error::Segment;
use validator::{Validate, ValidationErrors};

use super::experiments::{ReferencedSections, plans};
use super::lenient::LenientDeserializer;
use super::root::{ProfileSections, Sections};
use super::tree::{is_secret, join, origin_of, without};
use super::upstreams::all_upstreams;
use super::validation::{Refusal, refusals};
use super::{
    Config, ConfigError, ConfigSource, Downstream, Overrides, ProcessEnv, RerankBy, TuningUse,
    WrongValue, overrides,
};

/// The largest number of reported errors.
const MAX_ERRORS: usize = 50;

/// Loads the configuration. A tuning file that cannot be used is ignored.
///
/// # Errors
///
/// Returns [`ConfigError`], which names the file or variable, the key, and the expected value.
pub fn load(overrides: &Overrides, surroundings: &ProcessEnv) -> Result<Config, ConfigError> {
    let source = ConfigSource::new(overrides.clone(), surroundings.clone());
    Ok(source.load(TuningUse::IfSound)?.config)
}

/// Deserializes and validates the merged values. `wrong` has the errors found so far.
pub(super) fn config_of(
    tree: &Map<String, Value>,
    wrong: Vec<WrongValue>,
    overrides: &Overrides,
    surroundings: &ProcessEnv,
) -> Result<Config, ConfigError> {
    let (sections, wrong) = read(tree, wrong)?;
    validate_sections(sections, wrong, tree, overrides, surroundings)
}

/// Merges all layers. `file` is the lowest layer, and `tuning` is above it. Returns the values and
/// the errors.
pub(super) fn merge_layers(
    file: Map<String, Value>,
    tuning: Map<String, Value>,
    overrides: &Overrides,
    surroundings: &ProcessEnv,
) -> (Map<String, Value>, Vec<WrongValue>) {
    let (environment, wrong) = surroundings.environment.layer(&file);
    let mut lower = merge([file, tuning]);
    lower = merge([lower, environment]);
    if overrides.upstream.is_some() {
        // An upstream of the command line is complete: keys of configured ones must not leak into
        // it.
        lower.remove("upstream");
        lower.remove("upstreams");
    }
    (merge([lower, overrides.layer()]), wrong)
}

/// One layer, as a source of the crate `config`.
#[derive(Clone, Debug)]
struct Layer(Map<String, Value>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

pub(super) fn merge(layers: [Map<String, Value>; 2]) -> Map<String, Value> {
    let builder = layers
        .into_iter()
        .fold(config::Config::builder(), |builder, layer| {
            builder.add_source(Layer(layer))
        });
    let merged = builder
        .build()
        .expect("layers that were read before merge without failing");
    match merged.cache.kind {
        ValueKind::Table(table) => table,
        _ => Map::new(),
    }
}

/// Deserializes the sections. A wrong value is removed and deserialization repeated, so that all
/// errors are found.
fn read(
    tree: &Map<String, Value>,
    known: Vec<WrongValue>,
) -> Result<(Sections, Vec<ConfigError>), ConfigError> {
    let mut readable = tree.clone();
    for WrongValue { path, .. } in &known {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        without(&mut readable, &path);
    }
    let mut wrong: Vec<ConfigError> = known.into_iter().map(|wrong| wrong.error).collect();
    loop {
        let mut track = serde_path_to_error::Track::new();
        let reader = LenientDeserializer::new(readable.clone());
        let deserializer = serde_path_to_error::Deserializer::new(reader, &mut track);
        let error = match Sections::deserialize(deserializer) {
            Ok(sections) => return Ok((sections, wrong)),
            Err(error) => error,
        };
        let path = track.path();
        let keys: Vec<&str> = (path.iter())
            .map_while(|segment| match segment {
                Segment::Map { key } => Some(key.as_str()),
                _ => None,
            })
            .collect();
        let named = path.to_string();
        let parts: Vec<&str> = named.split('.').collect();
        let reason = plain_reason(&error.to_string(), is_secret(&parts));
        // An error about a section that misses a removed key would only repeat the earlier error.
        let below = format!("{named}.");
        let follows =
            (wrong.iter().filter_map(ConfigError::key)).any(|key| key.starts_with(&below));
        if !follows {
            wrong.push(value_error(tree, named.clone(), reason));
        }
        if !without(&mut readable, &keys) || wrong.len() >= MAX_ERRORS {
            return Err(ConfigError::all(wrong));
        }
    }
}

/// Translates an error of a deserializer to terms of configuration files. The found value is left
/// out if it may be a secret.
fn plain_reason(said: &str, may_be_secret: bool) -> String {
    let Some((found, expected)) = said.split_once(", expected ") else {
        return said.into();
    };
    if !found.starts_with("invalid ") {
        return said.into();
    }
    let (expected, is_whole) = match expected {
        "a sequence" => ("a list", true),
        "a map" => ("a section", true),
        other if other.starts_with("struct ") => ("a section", true),
        "u16" => ("a whole number from 0 to 65535", false),
        "u32" => ("a whole number from 0 to 4294967295", false),
        "u64" | "usize" => ("a whole number from 0", false),
        other => (other, false),
    };
    // Text in place of a section or list may be anything, including credentials.
    if may_be_secret || is_whole {
        format!("expected {expected}")
    } else {
        format!("{found}, expected {expected}")
    }
}

fn value_error(tree: &Map<String, Value>, key: String, reason: String) -> ConfigError {
    let parts: Vec<&str> = key
        .split('.')
        .map(|part| part.split('[').next().unwrap_or_default())
        .collect();
    ConfigError::Value {
        origin: origin_of(tree, &parts).unwrap_or_else(|| "configuration".into()),
        key,
        reason,
    }
}

/// Moves an error to the list, and returns the value otherwise.
fn collect_error<T>(result: Result<T, ConfigError>, wrong: &mut Vec<ConfigError>) -> Option<T> {
    result.map_err(|error| wrong.push(error)).ok()
}

/// Returns the errors of the validation rules, without those that follow from removed keys.
fn rule_violations(
    sections: &Sections,
    tree: &Map<String, Value>,
    wrong: &[ConfigError],
) -> Vec<ConfigError> {
    let Err(errors) = sections.validate() else {
        return Vec::new();
    };
    let is_known = |key: &str| {
        let below = format!("{key}.");
        (wrong.iter().filter_map(ConfigError::key))
            .any(|named| named == key || named.starts_with(&below))
    };
    (refusals(&errors).into_iter())
        .map(|refusal| (with_name(refusal.key, sections), refusal.reason))
        .filter(|(key, _)| !is_known(key))
        .map(|(key, reason)| value_error(tree, key, reason))
        .collect()
}

fn validate_sections(
    sections: Sections,
    mut wrong: Vec<ConfigError>,
    tree: &Map<String, Value>,
    overrides: &Overrides,
    surroundings: &ProcessEnv,
) -> Result<Config, ConfigError> {
    let ruled = rule_violations(&sections, tree, &wrong);
    wrong.extend(ruled);
    let is_sound = wrong.is_empty();
    let keys = match KeyRing::from_config(&sections.auth) {
        Ok(keys) => Some(keys),
        Err(refused) => {
            wrong.extend(refused.into_iter().map(|(name, error)| {
                value_error(tree, format!("auth.keys.{name}"), error.to_string())
            }));
            None
        }
    };
    wrong.extend(check_control(&sections.control, tree));
    // With errors in section auth, it is unknown whether keys are configured.
    let mut named = wrong.iter().filter_map(ConfigError::key);
    let are_known = !named.any(|key| key == "auth" || key.starts_with("auth."));
    if let (Some(keys), true) = (&keys, are_known) {
        collect_error(check_address(&sections, keys, tree, overrides), &mut wrong);
    }
    // Rules that compare keys would repeat errors of single keys.
    if is_sound {
        collect_error(check_own_tools(&sections, tree), &mut wrong);
        collect_error(check_models(&sections, tree), &mut wrong);
        collect_error(check_isolation(&sections, tree), &mut wrong);
    }
    wrong.extend(check_profiles(&sections, tree));
    let profile = collect_error(named_profile(&sections, overrides), &mut wrong).flatten();
    let named = all_upstreams(sections.upstream.clone(), sections.upstreams.clone(), tree);
    let upstreams = collect_error(named, &mut wrong).unwrap_or_default();
    let (Some(keys), true) = (keys, wrong.is_empty()) else {
        return Err(ConfigError::all(wrong));
    };
    let around = ReferencedSections {
        search: &sections.search,
        filtering: &sections.filtering,
        prediction: &sections.prediction,
        recording: sections.recording.mode,
    };
    let experiments = plans(&sections.recommend.experiments, around)
        .map_err(|refusal| value_error(tree, refusal.key, refusal.reason))?;
    let of_profiles = sections.profiles.into_iter().map(|(name, profile)| {
        let ProfileSections {
            filtering,
            safeguards,
        } = profile;
        (
            (name.clone(), ProfileConfig { filtering }),
            (name, safeguards),
        )
    });
    let (profiles, profile_safeguards) = of_profiles.unzip();
    // A path of the command line may be other than Unicode; its text in the tree is not exact.
    let data_dir = overrides.data_dir.clone().or(sections.data_dir);
    Ok(Config {
        data_dir: data_directory(data_dir, surroundings)?,
        upstreams,
        naming: sections.naming,
        paused: sections.paused,
        downstream: overrides.downstream,
        hints: HintUse::default(),
        listen: sections.listen,
        control: sections.control,
        keys,
        storage: sections.storage,
        recording: sections.recording,
        filtering: sections.filtering,
        profiles,
        profile_safeguards,
        profile,
        prediction: sections.prediction,
        search: sections.search,
        recommend: sections.recommend,
        experiments,
        safeguards: sections.safeguards,
        intent: sections.intent,
        work_sessions: sections.work_sessions,
        limits: sections.limits,
        logging: sections.logging,
        telemetry: sections.telemetry,
    })
}

/// Refuses an address that other machines can reach, unless clients need a key.
fn check_address(
    sections: &Sections,
    keys: &KeyRing,
    tree: &Map<String, Value>,
    overrides: &Overrides,
) -> Result<(), ConfigError> {
    let address = sections.listen.address;
    if overrides.downstream != Downstream::Http || address.ip().is_loopback() || !keys.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "{address} can be reached from other machines: set client keys in auth.keys, or listen on \
         a loopback address"
    );
    Err(value_error(tree, "listen.address".into(), reason))
}

/// Validates the timeouts: a search, with its waits for language models, must end before its
/// request times out.
fn check_models(sections: &Sections, tree: &Map<String, Value>) -> Result<(), ConfigError> {
    let (expansion, rerank) = (&sections.search.expansion, &sections.search.rerank);
    let expands = expansion.endpoint.is_some() && expansion.rules().is_some();
    let asked = [
        (expands, expansion.timeout),
        (rerank.by != RerankBy::None, rerank.timeout),
    ];
    let waits = asked.into_iter().filter(|(is_asked, _)| *is_asked);
    let longest: Duration = waits.map(|(_, timeout)| timeout).sum();
    if longest < sections.limits.call_timeout {
        return Ok(());
    }
    let reason = format!(
        "must be more than {}, which a search may wait for language models: see \
         search.rerank.timeout and search.expansion.timeout",
        humantime_serde::re::humantime::format_duration(longest)
    );
    Err(value_error(tree, "limits.call_timeout".into(), reason))
}

/// Validates the isolation of principals: nothing may be learned from all of them together.
fn check_isolation(sections: &Sections, tree: &Map<String, Value>) -> Result<(), ConfigError> {
    if sections.prediction.shared_learning {
        return Ok(());
    }
    let (key, what) = if sections.recommend.tuning.enabled {
        (
            "recommend.tuning.enabled",
            "tuned weights follow from the feedback of all principals",
        )
    } else if sections.prediction.predictor.external().is_some() {
        (
            "prediction.predictor",
            "an external predictor learns from the calls of all principals",
        )
    } else {
        return Ok(());
    };
    let reason = format!("cannot be combined with prediction.shared_learning = false: {what}");
    Err(value_error(tree, key.into(), reason))
}

/// Validates riglm's own tools: their names must differ, and a feature may only be on if the tool
/// that it needs is listed.
fn check_own_tools(sections: &Sections, tree: &Map<String, Value>) -> Result<(), ConfigError> {
    let (search, recommend) = (&sections.search, &sections.recommend);
    let long_results = &sections.safeguards.long_results;
    let is_searched = search.enabled && sections.filtering.may_hide();
    if long_results.is_on() && !is_searched {
        let key = "safeguards.long_results.max_bytes";
        let reason = "needs the own tools of riglm: set search.enabled = true and a \
                      filtering.strategy other than none";
        return Err(value_error(tree, key.into(), reason.into()));
    }
    if sections.safeguards.limits.max_calls_per_context.is_some() && !is_searched {
        let key = "safeguards.limits.max_calls_per_context";
        let reason = "needs the own tools of riglm: set search.enabled = true and a \
                      filtering.strategy other than none";
        return Err(value_error(tree, key.into(), reason.into()));
    }
    if !search.enabled {
        return Ok(());
    }
    let recommends = recommend.enabled && recommend.tools;
    // Names within section `search` were compared by its own rules.
    let all = [
        ("search.tool_name", true, &search.tool_name),
        (
            "search.call_tool_name",
            search.call_tool,
            &search.call_tool_name,
        ),
        (
            "search.set_context_name",
            search.set_context,
            &search.set_context_name,
        ),
        (
            "search.show_session_name",
            search.show_session,
            &search.show_session_name,
        ),
        ("recommend.tool_name", recommends, &recommend.tool_name),
        (
            "recommend.rate_tool_name",
            recommends,
            &recommend.rate_tool_name,
        ),
        (
            "safeguards.long_results.tool_name",
            long_results.is_on(),
            &long_results.tool_name,
        ),
    ];
    for (n, (key, is_there, name)) in all.iter().enumerate() {
        let mut before = all[..n].iter().filter(|_| *is_there);
        let same = before.find(|(_, is_there, other)| *is_there && other == name);
        if let Some((other, ..)) = same {
            let reason = format!("{name} is already used by {other}");
            return Err(value_error(tree, (*key).into(), reason));
        }
    }
    Ok(())
}

/// Returns the errors in the keys of the control server.
fn check_control(control: &ControlConfig, tree: &Map<String, Value>) -> Vec<ConfigError> {
    let mut wrong = Vec::new();
    let mut refuse = |key: String, reason: String| wrong.push(value_error(tree, key, reason));
    if let Some(token) = &control.token
        && let Err(error) = token.digest()
    {
        refuse("control.token".into(), error.to_string());
    }
    for (name, key) in &control.keys {
        if let Err(error) = key.key.digest() {
            refuse(format!("control.keys.{name}.key"), error.to_string());
        }
        let scopes = format!("control.keys.{name}.scopes");
        if key.scopes.is_empty() {
            let reason = "expected at least one of read, override, config and data";
            refuse(scopes, reason.into());
        }
    }
    wrong
}

/// Returns the errors of profiles in the sections `filtering` and `safeguards.budget`, and the
/// unknown profiles that pools name.
fn check_profiles(sections: &Sections, tree: &Map<String, Value>) -> Vec<ConfigError> {
    let mut wrong = Vec::new();
    let mut seen: Vec<&ProfileName> = Vec::new();
    for (name, profile) in &sections.profiles {
        let is_same = |one: &&&ProfileName| one.as_str().eq_ignore_ascii_case(name.as_str());
        if let Some(same) = seen.iter().find(is_same) {
            let reason = format!("differs from profiles.{same} only in upper and lower case");
            wrong.push(value_error(tree, format!("profiles.{name}"), reason));
        }
        seen.push(name);
        // Errors of the base sections were reported with them.
        let of_filtering = added_refusals(
            &sections.filtering,
            &sections.filtering.with_profile(&profile.filtering),
        );
        let budget = &sections.safeguards.budget;
        let of_budget = added_refusals(budget, &budget.under(&profile.safeguards.budget));
        let refused = (of_filtering
            .into_iter()
            .map(|refusal| ("filtering", refusal)))
        .chain((of_budget.into_iter()).map(|refusal| ("safeguards.budget", refusal)));
        for (section, refusal) in refused {
            let key = join(&format!("profiles.{name}.{section}"), &refusal.key);
            let key = key.trim_end_matches('.').to_owned();
            wrong.push(value_error(tree, key, refusal.reason));
        }
    }
    for (position, pool) in sections.filtering.pools.iter().enumerate() {
        if let Some(name) = &pool.profile
            && !sections.profiles.contains_key(name)
        {
            let key = format!("filtering.pools[{position}].profile");
            let reason = unknown_profile(name.as_str(), sections);
            wrong.push(value_error(tree, key, reason));
        }
    }
    wrong
}

/// Returns the errors of a section that are not in the section that it is derived from.
fn added_refusals(base: &impl Validate, made: &impl Validate) -> Vec<Refusal> {
    let of = |section: Result<(), ValidationErrors>| {
        section.map_or_else(|errors| refusals(&errors), |()| Vec::new())
    };
    let known = of(base.validate());
    let mut refused = of(made.validate());
    refused.retain(|refusal| known.iter().all(|known| known.key != refusal.key));
    refused
}

fn unknown_profile(name: &str, sections: &Sections) -> String {
    let names: Vec<&str> = sections.profiles.keys().map(ProfileName::as_str).collect();
    let known = if names.is_empty() {
        "section profiles is empty".to_owned()
    } else {
        format!("known are {}", names.join(", "))
    };
    format!("unknown profile {name:?}; {known}")
}

/// Returns the profile of the command line.
fn named_profile(
    sections: &Sections,
    overrides: &Overrides,
) -> Result<Option<ProfileName>, ConfigError> {
    let Some(name) = &overrides.profile else {
        return Ok(None);
    };
    let known = ProfileName::parse(name)
        .ok()
        .filter(|name| sections.profiles.contains_key(name));
    match known {
        Some(name) => Ok(Some(name)),
        None => Err(ConfigError::Value {
            origin: overrides::ORIGIN.into(),
            key: "--profile".into(),
            reason: unknown_profile(name, sections),
        }),
    }
}

/// Replaces the position of an upstream in a key by its name.
fn with_name(key: String, sections: &Sections) -> String {
    let named = || {
        let (position, rest) = key.strip_prefix("upstreams[")?.split_once(']')?;
        let name = sections.upstreams.keys().nth(position.parse().ok()?)?;
        Some(format!("upstreams.{name}{rest}"))
    };
    named().unwrap_or(key)
}

/// Returns the directory of all files that riglm writes.
pub(super) fn data_directory(
    configured: Option<PathBuf>,
    surroundings: &ProcessEnv,
) -> Result<PathBuf, ConfigError> {
    configured
        .map(|directory| surroundings.working_directory.join(directory))
        .or_else(|| {
            surroundings
                .data_directory
                .as_ref()
                .map(|directory| directory.join("riglm"))
        })
        .ok_or(ConfigError::NoDataDirectory)
}

#[cfg(test)]
mod tests;
