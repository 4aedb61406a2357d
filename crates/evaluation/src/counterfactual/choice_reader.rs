//! Logged list sizes of a store, with the outcomes of their sessions.
//!
//! A session counts under the size that was first drawn for it, whatever it saw and did later
//! (intention to treat; Hollis and Campbell 1999, <https://doi.org/10.1136/bmj.319.7211.670>). To
//! leave out sessions because of what they did would bias the estimates: whether a session makes a
//! call at all may depend on the size of its list.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use riglm_discovery::activity_units::{ActivityUnits, CONNECTIONS_PER_READ, MAX_ACTIVITY_ROWS};
use riglm_domain::id::SessionId;
use riglm_domain::num::{ratio, to_f64};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::account::{ListActivity, SeenList, weighed_cost};
use riglm_domain::selection::{ListPrices, ListSize, SizeChoice, SizeDraw};
use riglm_domain::usage::invocation::ToolSource;
use riglm_ports::analytics::{ListRepository, StoreError};

use super::log::{LoggedChoice, SessionOutcome};

/// A session is over after this time without activity.
const OVER_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// The weight of the assumed number of calls in the mean of earlier sessions, in sessions.
const N_ASSUMED: f64 = 2.0;

/// The unit whose sessions count as dependent on each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterBy {
    /// The draw: one work session, or all sessions that share a list.
    #[default]
    Draw,
    /// The principal. It is for few draws of many principals whose sessions resemble each other.
    Principal,
}

/// The options of reading.
#[derive(Clone, Copy, Debug)]
pub struct StoredOptions<'a> {
    /// The earliest start of a connection.
    pub since: Timestamp,
    /// The maximum number of connections, and of work sessions, the newest first.
    pub limit: u32,
    /// The present time. Sessions with later activity than an hour before it are not over.
    pub now: Timestamp,
    /// The prices of the cost of a session.
    pub prices: &'a ListPrices,
    /// The unit of dependence.
    pub cluster: ClusterBy,
}

/// The principal and the client of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionOwner {
    /// The principal.
    pub principal: Principal,
    /// The name that the client gives itself.
    pub client: String,
}

impl Default for SessionOwner {
    fn default() -> Self {
        Self {
            principal: Principal::local(),
            client: String::new(),
        }
    }
}

/// The logged choices of a store, and the numbers of sessions that were left out or are unusual.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredChoices {
    /// The sessions, in the order of their first lists.
    pub choices: Vec<LoggedChoice>,
    /// The number of connections that were read.
    pub n_connections: usize,
    /// Whether older connections or work sessions were left out.
    pub is_cut: bool,
    /// Sessions whose list size was not explored.
    pub n_unexplored: usize,
    /// Sessions that are not over yet.
    pub n_running: usize,
    /// Sessions whose lists have no token counts.
    pub n_uncounted: usize,
    /// Connections without calls and searches that belong to another session: their client was
    /// active over another connection.
    pub n_parts: usize,
    /// Sessions among the choices without calls and searches. They sent no prompt, so they cost
    /// nothing.
    pub n_idle: usize,
    /// Sessions among the choices that later saw a list of another draw.
    pub n_mixed: usize,
}

/// A session with a logged choice, before its features are known.
struct ExploredSession {
    begins: Timestamp,
    owner: SessionOwner,
    choice: SizeChoice,
    n_tools: usize,
    available_tokens: u64,
    n_calls: usize,
    /// Whether it made no call and no search.
    is_idle: bool,
    /// Whether it later saw a list of another draw.
    is_mixed: bool,
    outcome: SessionOutcome,
}

/// The period in which a client made calls and searches.
struct ActivePeriod {
    /// The draws of its lists. It has none if the lists were shown over another connection.
    draws: BTreeSet<SizeDraw>,
    from: Timestamp,
    to: Timestamp,
}

impl ActivePeriod {
    /// Returns the period of an activity; `None` without calls and searches.
    fn of(activity: &ListActivity) -> Option<Self> {
        let uses = uses(activity);
        let (from, to) = (uses.clone().min()?, uses.max()?);
        let choices = activity
            .lists
            .iter()
            .filter_map(|list| list.size_choice.as_ref());
        Some(Self {
            draws: choices.map(|choice| choice.draw).collect(),
            from,
            to,
        })
    }

    /// Returns whether an idle connection is a part of the session of this period: the period is at
    /// its time, and has the same list, or none of its own.
    fn has_part(&self, idle: &ExploredSession) -> bool {
        let is_near = |at: Timestamp| {
            self.from.duration_since(at) < OVER_AFTER && at.duration_since(self.to) < OVER_AFTER
        };
        let has_list = self.draws.is_empty() || self.draws.contains(&idle.choice.draw);
        has_list && is_near(idle.begins)
    }
}

/// Returns the times of the calls and searches.
fn uses(activity: &ListActivity) -> impl Iterator<Item = Timestamp> + Clone + '_ {
    let searches = activity.searches.iter().map(|search| search.at);
    activity.calls.iter().map(|call| call.at).chain(searches)
}

/// Reads the sessions whose list size was explored. The features of a session are, as natural
/// logarithms of one more: the tokens of all tools, the size of the greedy rule, and the mean calls
/// of earlier sessions of the same client under other draws.
///
/// `owners` has the principals and clients of connections.
///
/// # Errors
///
/// Returns [`StoreError`] if the store fails.
pub async fn stored_choices(
    store: &dyn ListRepository,
    owners: &BTreeMap<SessionId, SessionOwner>,
    options: &StoredOptions<'_>,
) -> Result<StoredChoices, StoreError> {
    let units = ActivityUnits::read(store, options.since, options.limit).await?;
    let mut read = StoredChoices {
        n_connections: units.n_connections,
        is_cut: units.is_cut,
        ..StoredChoices::default()
    };
    let owner = |connection: &SessionId| owners.get(connection).cloned().unwrap_or_default();
    let mut sessions = Vec::new();
    let mut active: BTreeMap<SessionOwner, Vec<ActivePeriod>> = BTreeMap::new();
    let mut add = |activity: &ListActivity, owner: SessionOwner| {
        let periods = active.entry(owner.clone()).or_default();
        periods.extend(ActivePeriod::of(activity));
        sessions.extend(read.explored_session(activity, owner, options));
    };
    for page in units.connections.chunks(CONNECTIONS_PER_READ) {
        for (connection, activity) in store.list_activities(page, MAX_ACTIVITY_ROWS).await? {
            add(&activity, owner(&connection));
        }
    }
    for (work_session, connection) in units.work_sessions {
        let activity = store
            .list_activity_of(work_session, MAX_ACTIVITY_ROWS)
            .await?;
        add(&activity, owner(&connection));
    }
    let n_all = sessions.len();
    sessions.retain(|session: &ExploredSession| {
        let mut periods = active.get(&session.owner).into_iter().flatten();
        !session.is_idle || !periods.any(|period| period.has_part(session))
    });
    read.n_parts = n_all - sessions.len();
    read.n_idle = sessions.iter().filter(|session| session.is_idle).count();
    read.n_mixed = sessions.iter().filter(|session| session.is_mixed).count();
    sessions.sort_by(|one, other| {
        let key = |session: &ExploredSession| (session.begins, session.choice.draw);
        key(one).cmp(&key(other))
    });
    read.choices = with_features(sessions, options);
    Ok(read)
}

impl StoredChoices {
    /// Returns the session of an activity, or counts the reason for which it is left out.
    fn explored_session(
        &mut self,
        activity: &ListActivity,
        owner: SessionOwner,
        options: &StoredOptions<'_>,
    ) -> Option<ExploredSession> {
        let newest = activity.newest_list()?;
        let mut lists: Vec<&SeenList> = activity.lists.iter().collect();
        lists.sort_by_key(|list| list.at);
        let explored = |list: &&SeenList| list.size_choice.is_some();
        let Some(first) = lists.iter().find(|list| explored(list)) else {
            self.n_unexplored += 1;
            return None;
        };
        let last_use = uses(activity).max();
        let last_activity = last_use.map_or(newest.at, |at| at.max(newest.at));
        if options.now.duration_since(last_activity) < OVER_AFTER {
            self.n_running += 1;
            return None;
        }
        let choice = first.size_choice.clone()?;
        let used = (lists.iter()).filter(|list| last_use.is_some_and(|last| list.at <= last));
        let mut choices = used.filter_map(|list| list.size_choice.as_ref());
        let is_mixed = choices.any(|other| other.draw != choice.draw);
        let cost = weighed_cost(activity, options.prices);
        let Some((cost, tokens)) = cost.zip(first.tokens) else {
            self.n_uncounted += 1;
            return None;
        };
        Some(ExploredSession {
            begins: first.at,
            owner,
            choice,
            n_tools: usize::try_from(first.n_available).unwrap_or(usize::MAX),
            available_tokens: tokens.available,
            n_calls: activity.calls.len(),
            is_idle: last_use.is_none(),
            is_mixed,
            outcome: SessionOutcome {
                cost: cost.max(0.0),
                searches: to_f64(activity.searches.len()),
                coverage: coverage(activity),
            },
        })
    }
}

/// Returns the share of the calls of listed tools among the calls of all tools of the catalog; 1
/// without such calls.
fn coverage(activity: &ListActivity) -> f64 {
    let count = |is_counted: fn(ToolSource) -> bool| {
        let calls = activity.calls.iter();
        calls.filter(|call| is_counted(call.source)).count()
    };
    let shown = count(|source| source == ToolSource::Shown);
    let hidden = count(|source| matches!(source, ToolSource::Found | ToolSource::Hidden));
    if shown + hidden == 0 {
        return 1.0;
    }
    ratio(shown, shown + hidden)
}

/// Sums of the calls of earlier sessions.
#[derive(Clone, Copy, Debug, Default)]
struct EarlierCalls {
    n_sessions: f64,
    logarithms: f64,
}

impl EarlierCalls {
    fn add(&mut self, logarithm: f64) {
        self.n_sessions += 1.0;
        self.logarithms += logarithm;
    }
}

fn with_features(sessions: Vec<ExploredSession>, options: &StoredOptions<'_>) -> Vec<LoggedChoice> {
    let mut totals: BTreeMap<SessionOwner, EarlierCalls> = BTreeMap::new();
    // Sessions of the same draw may depend on its size, which must not become a feature.
    let mut of_draws: BTreeMap<(SessionOwner, SizeDraw), EarlierCalls> = BTreeMap::new();
    let assumed = options.prices.shape.n_calls.ln_1p();
    let mut choices = Vec::with_capacity(sessions.len());
    for session in sessions {
        let draw = session.choice.draw;
        let total = totals.entry(session.owner.clone()).or_default();
        let of_draw = of_draws.entry((session.owner.clone(), draw)).or_default();
        let n_sessions = total.n_sessions - of_draw.n_sessions;
        let logarithms = total.logarithms - of_draw.logarithms;
        let earlier = (logarithms + N_ASSUMED * assumed) / (n_sessions + N_ASSUMED);
        let logarithm = to_f64(session.n_calls).ln_1p();
        total.add(logarithm);
        of_draw.add(logarithm);
        let greedy = match session.choice.greedy {
            ListSize::Tools(n) => n,
            ListSize::All => session.n_tools,
        };
        choices.push(LoggedChoice {
            cluster: match options.cluster {
                ClusterBy::Draw => format!("{:08x}{:08x}", draw.coin, draw.place),
                ClusterBy::Principal => session.owner.principal.to_string(),
            },
            features: vec![
                to_f64(session.available_tokens).ln_1p(),
                to_f64(greedy).ln_1p(),
                earlier,
            ],
            choice: session.choice,
            n_tools: session.n_tools,
            outcome: session.outcome,
        });
    }
    choices
}

#[cfg(test)]
mod tests;
