//! Tools that the operator forbids: their calls are refused, and no text of the proxy names them.
//!
//! Bans and the policies by names only hide tools. A forbidden tool cannot be called either, under
//! any policy and even if lists are not filtered. Patterns come from the configuration, names from
//! overrides. The rules add up: a narrower rule never lifts a wider one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use riglm_domain::catalog::naming::tool_aliases;
use riglm_domain::catalog::tool_override::{OverrideScope, ToolOverride};
use riglm_domain::id::{SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::prediction::NamePattern;
use riglm_domain::privacy::canonical::KeyedHash;

use super::operator_overrides::{OperatorOverrides, forbidding};

/// The forbidden patterns of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForbiddenNames {
    /// The patterns for clients without a profile.
    pub general: Vec<NamePattern>,
    /// The patterns for clients under a profile, including the general ones.
    pub profiles: HashMap<String, Vec<NamePattern>>,
}

/// The client that a rule may apply to.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The profile under which the client is connected.
    pub profile: Option<&'a str>,
    /// The keyed hash of the client.
    pub client_hash: Option<KeyedHash>,
    /// The connection of the client.
    pub connection: Option<SessionId>,
    /// The work session of the client.
    pub work_session: Option<WorkSessionId>,
    /// The time of the request; overrides expire.
    pub now: Timestamp,
}

impl Subject<'_> {
    fn is_in(&self, scope: &OverrideScope) -> bool {
        match scope {
            OverrideScope::Global => true,
            OverrideScope::Profile(profile) => self.profile == Some(profile),
            OverrideScope::Client(client) => {
                (self.client_hash).is_some_and(|hash| hash.to_string() == *client)
            }
            OverrideScope::Session(session) => {
                (self.work_session).is_some_and(|id| id.to_string() == *session)
                    || (self.connection).is_some_and(|id| id.to_string() == *session)
            }
        }
    }
}

/// The rule that forbids a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForbiddenBy<'a> {
    /// A pattern of the configuration.
    Configuration,
    /// An override, with the reason that the operator gave.
    Override(Option<&'a str>),
}

/// The rules for one client at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForbidRules {
    patterns: Vec<NamePattern>,
    /// Tool names, each with the reason of its override.
    decided: Vec<(String, Option<String>)>,
}

impl ForbidRules {
    /// Creates the rules from patterns and from the overrides that forbid.
    #[must_use]
    pub fn new(patterns: Vec<NamePattern>, overrides: &[ToolOverride]) -> Self {
        let decided = forbidding(overrides).map(|one| (one.tool.clone(), one.reason.clone()));
        Self {
            patterns,
            decided: decided.collect(),
        }
    }

    /// Returns whether nothing is forbidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.decided.is_empty()
    }

    /// Returns the rule that forbids a tool, if any. Compares all [names](tool_aliases) of the tool and
    /// the name in lists (`shown`), if that differs.
    #[must_use]
    pub fn forbids(
        &self,
        upstream: &UpstreamName,
        own: &ToolName,
        shown: Option<&str>,
    ) -> Option<ForbiddenBy<'_>> {
        if self.is_empty() {
            return None;
        }
        let mut names = tool_aliases(upstream, own);
        names.extend(shown.map(ToolName::from));
        let fits = |pattern: &NamePattern| names.iter().any(|name| pattern.matches(name));
        if self.patterns.iter().any(fits) {
            return Some(ForbiddenBy::Configuration);
        }
        let is_it = |text: &str| names.iter().any(|name| name.as_str() == text);
        let found = self.decided.iter().find(|(name, _)| is_it(name));
        found.map(|(_, reason)| ForbiddenBy::Override(reason.as_deref()))
    }
}

/// The registry of forbidden tools.
#[derive(Debug)]
pub struct Forbidden {
    configured: ArcSwap<ForbiddenNames>,
    overrides: Arc<OperatorOverrides>,
    /// Counts the changes of the patterns.
    revision: AtomicU64,
}

impl Forbidden {
    /// Creates the registry with these patterns and with the overrides that forbid.
    #[must_use]
    pub fn new(names: ForbiddenNames, overrides: Arc<OperatorOverrides>) -> Self {
        Self {
            configured: ArcSwap::from_pointee(names),
            overrides,
            revision: AtomicU64::new(0),
        }
    }

    /// Replaces the patterns of the configuration.
    pub fn set_names(&self, names: ForbiddenNames) {
        if **self.configured.load() != names {
            self.configured.store(Arc::new(names));
            self.revision.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the revision; it grows with each change. Rules that are requested afterwards are at
    /// least that new.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire) + self.overrides.forbid_revision()
    }

    /// Returns whether any tool is forbidden to any client.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        let names = self.configured.load();
        let mut patterns = names.profiles.values().chain([&names.general]);
        patterns.any(|patterns| !patterns.is_empty()) || !self.overrides.forbidding().is_empty()
    }

    /// Returns the rules for a client.
    #[must_use]
    pub fn rules(&self, subject: &Subject<'_>) -> ForbidRules {
        let names = self.configured.load();
        let of_profile = subject.profile.and_then(|name| names.profiles.get(name));
        let forbidding = self.overrides.forbidding();
        let holding = (forbidding.iter())
            .filter(|one| one.is_active(subject.now) && subject.is_in(&one.scope))
            .map(|one| (one.tool.clone(), one.reason.clone()));
        ForbidRules {
            patterns: of_profile.unwrap_or(&names.general).clone(),
            decided: holding.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use riglm_domain::catalog::tool_override::OverrideAction;

    use super::*;
    use crate::selection::test_overrides::override_for_all;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn subject(profile: Option<&str>) -> Subject<'_> {
        Subject {
            profile,
            client_hash: None,
            connection: Some(SessionId::new(NOW, [1; 10])),
            work_session: Some(WorkSessionId::new(NOW, [2; 10])),
            now: NOW,
        }
    }

    fn patterns(texts: &[&str]) -> Vec<NamePattern> {
        texts.iter().map(|text| NamePattern::new(text)).collect()
    }

    fn forbid_override(tool: &str, scope: OverrideScope) -> ToolOverride {
        ToolOverride {
            scope,
            expires_at: Some(NOW + jiff::SignedDuration::from_secs(60)),
            reason: Some("not here".into()),
            ..override_for_all(tool, OverrideAction::Forbid)
        }
    }

    fn forbidden(names: ForbiddenNames) -> Forbidden {
        Forbidden::new(names, Arc::default())
    }

    fn forbidden_by<'a>(rules: &'a ForbidRules, own: &str) -> Option<ForbiddenBy<'a>> {
        rules.forbids(&UpstreamName::parse("files").unwrap(), &own.into(), None)
    }

    #[test]
    fn patterns_fit_either_name_and_those_of_a_profile_hold_there() {
        let forbidden = forbidden(ForbiddenNames {
            general: patterns(&["files__write_*", "rm"]),
            profiles: HashMap::from([("ops".into(), patterns(&["rm", "read_*"]))]),
        });
        assert!(forbidden.is_in_use());
        let general = forbidden.rules(&subject(None));
        let is_forbidden = |rules: &ForbidRules| {
            ["write_file", "rm", "read_file"].map(|own| forbidden_by(rules, own).is_some())
        };
        assert_eq!(is_forbidden(&general), [true, true, false]);
        let ops = forbidden.rules(&subject(Some("ops")));
        assert_eq!(is_forbidden(&ops), [false, true, true]);
        assert_eq!(forbidden.rules(&subject(Some("other"))), general);
        forbidden.set_names(ForbiddenNames::default());
        assert!(!forbidden.is_in_use() && forbidden.rules(&subject(None)).is_empty());
    }

    #[test]
    fn rules_with_upstream_prefix_match_original_tool_names() {
        let long = "x".repeat(70);
        let names = patterns(&["files__fs.*", "files__a/b", "files__xxx*"]);
        let by_pattern = ForbidRules {
            patterns: names,
            decided: Vec::new(),
        };
        let decided = [
            "files__fs.rm".to_owned(),
            "files__a/b".into(),
            format!("files__{long}"),
        ];
        let by_name = ForbidRules {
            patterns: Vec::new(),
            decided: decided.map(|name| (name, None)).into(),
        };
        for rules in [by_pattern, by_name] {
            for own in ["fs.rm", "a/b", &long] {
                assert!(forbidden_by(&rules, own).is_some(), "{own}");
            }
            assert_eq!(forbidden_by(&rules, "other.rm"), None);
        }
    }

    #[test]
    fn an_override_holds_in_its_scope_until_its_end() {
        let forbidden = forbidden(ForbiddenNames::default());
        let work = WorkSessionId::new(NOW, [2; 10]).to_string();
        forbidden.overrides.set(vec![
            forbid_override("files__write", OverrideScope::Session(work)),
            forbid_override("rm", OverrideScope::Profile("ops".into())),
            forbid_override("all", OverrideScope::Global),
        ]);
        let rules = forbidden.rules(&subject(None));
        let expected = Some(ForbiddenBy::Override(Some("not here")));
        assert_eq!(forbidden_by(&rules, "write"), expected);
        assert_eq!(forbidden_by(&rules, "all"), expected);
        assert_eq!(forbidden_by(&rules, "rm"), None);
        assert_eq!(
            forbidden_by(&forbidden.rules(&subject(Some("ops"))), "rm"),
            expected
        );
        let later = Subject {
            now: NOW + jiff::SignedDuration::from_secs(60),
            ..subject(Some("ops"))
        };
        assert!(forbidden.rules(&later).is_empty());
    }

    proptest! {
        #[test]
        fn tools_are_forbidden_exactly_by_patterns_matching_a_name(
            own in "[ab_]{1,6}", text in "[ab_*]{0,6}"
        ) {
            let pattern = NamePattern::new(&text);
            let names = [own.clone(), format!("files__{own}")];
            let fits = names.iter().any(|name| pattern.matches(&name.as_str().into()));
            let rules = ForbidRules { patterns: vec![pattern], decided: Vec::new() };
            prop_assert_eq!(forbidden_by(&rules, &own).is_some(), fits);
        }
    }
}
