//! Tools that the operator forbids: their calls are refused, and nothing that the proxy writes names
//! them.
//!
//! Bans and the strategies by names only hide tools; what is forbidden here cannot be called either,
//! whatever the strategy is and whether lists are filtered at all. Patterns come from the
//! configuration, names from overrides. All of them add up: no narrower rule lifts a wider one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::{SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::naming::names_of;
use riglm_domain::prediction::NamePattern;
use riglm_domain::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_ports::analytics::{ChangeFeed, OverrideRepository, StoreError, Topic};
use riglm_ports::clock::Clock;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether other processes changed overrides.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The patterns of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForbiddenNames {
    /// Those of everybody who is connected under no profile.
    pub general: Vec<NamePattern>,
    /// Those of the clients under a profile, the general ones among them.
    pub profiles: HashMap<String, Vec<NamePattern>>,
}

/// Where overrides are kept.
#[derive(Clone, Debug)]
pub struct OverrideStores {
    /// The overrides.
    pub overrides: Arc<dyn OverrideRepository>,
    /// Says whether they changed.
    pub changes: Arc<dyn ChangeFeed>,
}

/// Whom a tool may be forbidden to.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The profile under which the client is connected.
    pub profile: Option<&'a str>,
    /// The keyed hash of the client.
    pub client_hash: Option<KeyedHash>,
    /// Its connection.
    pub connection: Option<SessionId>,
    /// Its work session.
    pub work_session: Option<WorkSessionId>,
    /// The moment.
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

/// Which rule forbids a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForbiddenBy<'a> {
    /// A pattern of the configuration.
    Configuration,
    /// An override, with the reason that the operator gave.
    Override(Option<&'a str>),
}

/// What is forbidden to somebody at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForbidRules {
    patterns: Vec<NamePattern>,
    /// Names of tools, each with the reason.
    decided: Vec<(String, Option<String>)>,
}

impl ForbidRules {
    /// Returns the rules of these patterns and of those overrides that forbid.
    #[must_use]
    pub fn new(patterns: Vec<NamePattern>, overrides: &[ToolOverride]) -> Self {
        let forbidding = overrides
            .iter()
            .filter(|one| one.action == OverrideAction::Forbid);
        let decided = forbidding.map(|one| (one.tool.clone(), one.reason.clone()));
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

    /// Returns what forbids a tool, which is compared by all its [names](names_of), and by the one that
    /// clients see, where that is another one.
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
        let mut names = names_of(upstream, own);
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

/// Knows which tools are forbidden to whom.
#[derive(Debug)]
pub struct Forbidden {
    configured: ArcSwap<ForbiddenNames>,
    /// The overrides that forbid.
    decided: ArcSwap<Vec<ToolOverride>>,
    stores: Option<OverrideStores>,
    clock: Arc<dyn Clock>,
    /// Counts what changed.
    revision: AtomicU64,
    /// The overrides of the store were read once.
    was_read: AtomicBool,
    /// Held while overrides are read, so that no older answer takes the place of a newer one.
    reading: tokio::sync::Mutex<()>,
}

impl Forbidden {
    /// Returns what knows these patterns, and the overrides of a store once they were read.
    #[must_use]
    pub fn new(
        names: ForbiddenNames,
        stores: Option<OverrideStores>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            configured: ArcSwap::from_pointee(names),
            decided: ArcSwap::default(),
            stores,
            clock,
            revision: AtomicU64::new(0),
            was_read: AtomicBool::new(false),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Has other patterns hold from now on.
    pub fn set_names(&self, names: ForbiddenNames) {
        if **self.configured.load() != names {
            self.configured.store(Arc::new(names));
            self.revision.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns how often what is forbidden changed. What is asked for after it is at least that new.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns whether it is known which tools overrides forbid: they were read since the start, or
    /// there is no store of them.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.stores.is_none() || self.was_read.load(Ordering::Acquire)
    }

    /// Returns whether any tool is forbidden to anybody.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        let names = self.configured.load();
        !names.general.is_empty()
            || names
                .profiles
                .values()
                .any(|of_profile| !of_profile.is_empty())
            || !self.decided.load().is_empty()
    }

    /// Returns what is forbidden to somebody.
    #[must_use]
    pub fn rules(&self, subject: &Subject<'_>) -> ForbidRules {
        let names = self.configured.load();
        let of_profile = subject.profile.and_then(|name| names.profiles.get(name));
        let decided = self.decided.load();
        let holding = (decided.iter())
            .filter(|one| one.is_active(subject.now) && subject.is_in(&one.scope))
            .map(|one| (one.tool.clone(), one.reason.clone()));
        ForbidRules {
            patterns: of_profile.unwrap_or(&names.general).clone(),
            decided: holding.collect(),
        }
    }

    /// Reads the overrides of the store.
    ///
    /// # Errors
    ///
    /// Returns what the store says; what was known before holds then.
    pub async fn read_again(&self) -> Result<(), StoreError> {
        let Some(stores) = &self.stores else {
            return Ok(());
        };
        let _reading = self.reading.lock().await;
        let mut all = stores.overrides.overrides(self.clock.now()).await?;
        all.retain(|one| one.action == OverrideAction::Forbid);
        if **self.decided.load() != all {
            self.decided.store(Arc::new(all));
            self.revision.fetch_add(1, Ordering::AcqRel);
        }
        self.was_read.store(true, Ordering::Release);
        Ok(())
    }

    /// Follows what other processes decide, until it is told to stop.
    pub async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        let Some(stores) = self.stores.clone() else {
            return;
        };
        let mut known = None;
        loop {
            if let Ok(revisions) = stores.changes.revisions().await {
                let revision = Some(Topic::Overrides.revision(&revisions));
                let now = self.clock.now();
                let has_ended = self.decided.load().iter().any(|one| !one.is_active(now));
                // A change counts as seen once it was read.
                if (revision != known || has_ended) && self.read_again().await.is_ok() {
                    known = revision;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use riglm_domain::id::OverrideId;
    use riglm_domain::principal::Principal;
    use riglm_ports::fake::{ManualClock, MemoryStore};

    use super::*;
    use crate::filtering::unreadable::Unreadable;

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

    fn decided(tool: &str, scope: OverrideScope) -> ToolOverride {
        ToolOverride {
            id: OverrideId::new(NOW, [3; 10]),
            tool: tool.into(),
            action: OverrideAction::Forbid,
            scope,
            expires_at: Some(NOW + jiff::SignedDuration::from_secs(60)),
            reason: Some("not here".into()),
            created_by: Principal::local(),
            created_at: NOW,
        }
    }

    fn forbidden(names: ForbiddenNames) -> Forbidden {
        Forbidden::new(names, None, Arc::new(ManualClock::at(NOW)))
    }

    fn by<'a>(rules: &'a ForbidRules, own: &str) -> Option<ForbiddenBy<'a>> {
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
            ["write_file", "rm", "read_file"].map(|own| by(rules, own).is_some())
        };
        assert_eq!(is_forbidden(&general), [true, true, false]);
        let ops = forbidden.rules(&subject(Some("ops")));
        assert_eq!(is_forbidden(&ops), [false, true, true]);
        assert_eq!(forbidden.rules(&subject(Some("other"))), general);
        forbidden.set_names(ForbiddenNames::default());
        assert!(!forbidden.is_in_use() && forbidden.rules(&subject(None)).is_empty());
    }

    #[test]
    fn a_pattern_or_an_override_with_the_upstream_in_front_fits_names_that_lists_show_changed() {
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
                assert!(by(&rules, own).is_some(), "{own}");
            }
            assert_eq!(by(&rules, "other.rm"), None);
        }
    }

    #[test]
    fn an_override_holds_in_its_scope_until_its_end() {
        let forbidden = forbidden(ForbiddenNames::default());
        let work = WorkSessionId::new(NOW, [2; 10]).to_string();
        forbidden.decided.store(Arc::new(vec![
            decided("files__write", OverrideScope::Session(work)),
            decided("rm", OverrideScope::Profile("ops".into())),
            decided("all", OverrideScope::Global),
        ]));
        let rules = forbidden.rules(&subject(None));
        let expected = Some(ForbiddenBy::Override(Some("not here")));
        assert_eq!(by(&rules, "write"), expected);
        assert_eq!(by(&rules, "all"), expected);
        assert_eq!(by(&rules, "rm"), None);
        assert_eq!(by(&forbidden.rules(&subject(Some("ops"))), "rm"), expected);
        let later = Subject {
            now: NOW + jiff::SignedDuration::from_secs(60),
            ..subject(Some("ops"))
        };
        assert!(forbidden.rules(&later).is_empty());
    }

    #[tokio::test]
    async fn what_overrides_forbid_is_known_once_they_were_read() {
        let none = forbidden(ForbiddenNames::default());
        assert!(none.is_known(), "there are no overrides");
        let overrides = Arc::new(Unreadable::default());
        overrides.is_failing.store(true, Ordering::SeqCst);
        let stores = OverrideStores {
            overrides: Arc::<Unreadable>::clone(&overrides),
            changes: Arc::<MemoryStore>::clone(&overrides.store),
        };
        let clock = Arc::new(ManualClock::at(NOW));
        let forbidden = Forbidden::new(ForbiddenNames::default(), Some(stores), clock);
        assert!(forbidden.read_again().await.is_err() && !forbidden.is_known());
        overrides.is_failing.store(false, Ordering::SeqCst);
        forbidden.read_again().await.unwrap();
        overrides.is_failing.store(true, Ordering::SeqCst);
        assert!(forbidden.read_again().await.is_err());
        assert!(forbidden.is_known(), "what was read holds");
    }

    proptest! {
        #[test]
        fn a_tool_is_forbidden_if_and_only_if_a_pattern_fits_one_of_its_names(
            own in "[ab_]{1,6}", text in "[ab_*]{0,6}"
        ) {
            let pattern = NamePattern::new(&text);
            let names = [own.clone(), format!("files__{own}")];
            let fits = names.iter().any(|name| pattern.matches(&name.as_str().into()));
            let rules = ForbidRules { patterns: vec![pattern], decided: Vec::new() };
            prop_assert_eq!(by(&rules, &own).is_some(), fits);
        }
    }
}
