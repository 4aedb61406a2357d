//! Replay of a log, and the list that each session should have had.
//!
//! The replay is prequential: the tools are ranked at the first call of a session from earlier calls
//! only, and each call is learned after that. The size of a list is chosen in hindsight: it is the
//! one with the lowest price for the calls that the session then made.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::jiff::Timestamp;
use riglm_domain::num::to_f64;
use riglm_domain::prediction::{
    ClientKey, Engine, LearningScope, PredictionMethod, SessionHistory, ToolIx, Vocabulary,
};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::economics::CostModel;
use riglm_domain::selection::{
    ReadOnlyHint, SessionUse, UnknownTool, initial_order, rank_for_session,
};

use crate::log::Call;

/// The half-life of learned counts, as in the proxy.
const HALF_LIFE_DAYS: f64 = 30.0;

/// The advice for a log.
#[derive(Debug)]
pub(crate) struct Advice {
    /// All tools, in the order of their names.
    pub(crate) catalog: Vec<ToolRef>,
    /// In the order of their first calls.
    pub(crate) sessions: Vec<SessionAdvice>,
    /// The tools that no session called.
    pub(crate) never_used: Vec<ToolRef>,
    /// The one size with the lowest price for all sessions together.
    pub(crate) fixed: FixedSize,
    pub(crate) n_calls: usize,
}

/// A list of one size in every session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FixedSize {
    pub(crate) n_tools: usize,
    /// The price of all sessions.
    pub(crate) price: f64,
}

/// The list that a session should have had. Prices are in tokens; see [`CostModel`].
#[derive(Debug)]
pub(crate) struct SessionAdvice {
    pub(crate) session: String,
    pub(crate) client: String,
    pub(crate) started_at: Timestamp,
    pub(crate) n_calls: usize,
    /// The tools of the list, the most likely first.
    pub(crate) list: Vec<ToolRef>,
    /// The called tools that the list has, in the order of their first calls.
    pub(crate) covered: Vec<ToolRef>,
    /// The called tools that the list does not have: each needs one search.
    pub(crate) missing: Vec<ToolRef>,
    pub(crate) price: f64,
    /// The price of a list with all tools.
    pub(crate) price_of_all: f64,
}

impl SessionAdvice {
    /// Returns the tools of the list that the session did not call.
    pub(crate) fn unused(&self) -> impl Iterator<Item = &ToolRef> {
        let is_used = |tool: &&ToolRef| self.covered.contains(tool);
        self.list.iter().filter(move |tool| !is_used(tool))
    }
}

/// There are more tools than can be learned.
#[derive(Debug)]
pub(crate) struct TooManyTools;

impl fmt::Display for TooManyTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = Vocabulary::MAX_TOOLS;
        write!(f, "more than {most} tools")
    }
}

impl std::error::Error for TooManyTools {}

/// Replays calls, in the order of their times, over the tools in them and the known ones.
pub(crate) fn advise(
    calls: &[Call],
    known: &[ToolRef],
    prices: &CostModel,
) -> Result<Advice, TooManyTools> {
    // Sorted, so that the order of tools without any evidence does not tell which is used first.
    let used: BTreeSet<&ToolRef> = calls.iter().map(|call| &call.tool).collect();
    let catalog: BTreeSet<&ToolRef> = used.iter().copied().chain(known).collect();
    let catalog: Vec<ToolRef> = catalog.into_iter().cloned().collect();
    let mut replay = Replay::new(&catalog)?;
    let mut ordered: Vec<&Call> = calls.iter().collect();
    ordered.sort_by_key(|call| call.at);
    let last: HashMap<&str, usize> = (ordered.iter().enumerate())
        .map(|(at, call)| (call.session.as_str(), at))
        .collect();
    let mut open: HashMap<&str, OpenSession> = HashMap::new();
    let mut ended = Vec::new();
    for (at, call) in ordered.into_iter().enumerate() {
        let session = (open.entry(&call.session)).or_insert_with(|| replay.begin(call));
        replay.call(session, call);
        if last.get(call.session.as_str()) == Some(&at)
            && let Some(session) = open.remove(call.session.as_str())
        {
            replay.end(&session);
            ended.push(session);
        }
    }
    ended.sort_by_key(|session| session.n_before);
    Ok(Advice {
        never_used: (catalog.iter().filter(|tool| !used.contains(tool)))
            .cloned()
            .collect(),
        sessions: (ended.iter())
            .map(|session| session.advise(&catalog, prices))
            .collect(),
        fixed: best_fixed_size(&ended, catalog.len(), prices),
        n_calls: calls.len(),
        catalog,
    })
}

/// The learned state between two calls.
struct Replay {
    engine: Engine,
    session_use: SessionUse,
    /// All tools, in the order of the catalog, which is also that of the vocabulary.
    tools: Vec<ToolIx>,
    /// The tools in the order of lists before anything is learned.
    first_order: Vec<ToolIx>,
    n_calls: usize,
}

/// A session with the ranking from before its first call.
struct OpenSession {
    session: String,
    client: String,
    started_at: Timestamp,
    /// Number of calls of all sessions before its first one.
    n_before: usize,
    history: SessionHistory,
    ranking: Vec<ToolIx>,
}

impl Replay {
    fn new(catalog: &[ToolRef]) -> Result<Self, TooManyTools> {
        let mut engine = Engine::new(PredictionMethod::Mix, HALF_LIFE_DAYS);
        let tools: Vec<ToolIx> = (catalog.iter())
            .map(|tool| engine.intern(tool).ok_or(TooManyTools))
            .collect::<Result<_, _>>()?;
        let unknown: Vec<UnknownTool<'_>> = (catalog.iter())
            .map(|tool| UnknownTool {
                server: tool.upstream.as_str(),
                name: tool.tool.as_str(),
                read_only: ReadOnlyHint::Unsaid,
                n_bytes: 0,
            })
            .collect();
        let first_order = initial_order(&unknown).into_iter();
        Ok(Self {
            first_order: first_order.map(|at| tools[at]).collect(),
            engine,
            session_use: SessionUse::default(),
            tools,
            n_calls: 0,
        })
    }

    fn begin(&self, first: &Call) -> OpenSession {
        let client = ClientKey::new(&Principal::local(), &first.client);
        let mut history = SessionHistory::new(client);
        history.set_time(first.at);
        let ranking = if self.n_calls == 0 {
            self.first_order.clone()
        } else {
            let forecast = self.engine.predict(&history, &self.tools);
            let shares = self.session_use.shares(client);
            let share = |tool: ToolIx| shares.get(&tool).copied().unwrap_or(0.0);
            let ranked = rank_for_session(forecast.ranking(), share);
            ranked.into_iter().map(|(tool, _)| tool).collect()
        };
        OpenSession {
            session: first.session.clone(),
            client: first.client.clone(),
            started_at: first.at,
            n_before: self.n_calls,
            history,
            ranking,
        }
    }

    fn call(&mut self, session: &mut OpenSession, call: &Call) {
        session.history.set_time(call.at);
        // Every tool of the log is in the vocabulary.
        if let Some(called) = self.engine.vocabulary().slot(&call.tool) {
            let everything = LearningScope::Everything;
            (self.engine).learn(&mut session.history, &self.tools, called, everything);
        }
        self.n_calls += 1;
    }

    fn end(&mut self, session: &OpenSession) {
        self.engine.end_session(&session.history);
        let used: Vec<ToolIx> = session.history.used_tools().collect();
        self.session_use.add(session.history.party(), &used);
    }
}

impl OpenSession {
    /// Returns the number of tools before each called tool in the ranking, ascending.
    fn places(&self) -> Vec<usize> {
        let mut place_of = vec![usize::MAX; self.ranking.len()];
        for (place, tool) in self.ranking.iter().enumerate() {
            place_of[tool.index()] = place;
        }
        let mut places: Vec<usize> = (self.history.used_tools())
            .map(|tool| place_of[tool.index()])
            .collect();
        places.sort_unstable();
        places
    }

    fn advise(&self, catalog: &[ToolRef], prices: &CostModel) -> SessionAdvice {
        let places = self.places();
        let n_calls = self.history.n_calls();
        let price = |n_listed: usize| {
            let n_missing = places.len() - places.partition_point(|place| *place < n_listed);
            session_price(prices, n_listed, n_calls, n_missing)
        };
        // A list is worth its last tool only if the session calls it; any other list is longer
        // without being better than one of these.
        let sizes = std::iter::once(0).chain(places.iter().map(|place| place + 1));
        let (n_listed, least) = sizes.map(|size| (size, price(size))).fold(
            (catalog.len(), price(catalog.len())),
            |best, other| {
                if other.1 < best.1 { other } else { best }
            },
        );
        let listed = &self.ranking[..n_listed];
        let (covered, missing): (Vec<ToolIx>, Vec<ToolIx>) =
            (self.history.used_tools()).partition(|tool| listed.contains(tool));
        let named = |tools: &[ToolIx]| -> Vec<ToolRef> {
            (tools.iter().map(|tool| catalog[tool.index()].clone())).collect()
        };
        SessionAdvice {
            session: self.session.clone(),
            client: self.client.clone(),
            started_at: self.started_at,
            n_calls,
            list: named(listed),
            covered: named(&covered),
            missing: named(&missing),
            price: least,
            price_of_all: price(catalog.len()),
        }
    }
}

/// Returns the price of a session: its list, its calls, and one search for each called tool that
/// the list does not have. The answer of a search has the definition of the found tool.
fn session_price(prices: &CostModel, n_listed: usize, n_calls: usize, n_missing: usize) -> f64 {
    prices.first_list(n_listed)
        + to_f64(n_calls) * prices.call(n_listed)
        + to_f64(n_missing) * prices.search_with_inline(n_listed, 1)
}

/// Returns the size with the lowest price for all sessions together; of equal ones the shortest.
fn best_fixed_size(sessions: &[OpenSession], n_tools: usize, prices: &CostModel) -> FixedSize {
    let mut first_uses_at = vec![0_usize; n_tools];
    for place in sessions.iter().flat_map(OpenSession::places) {
        first_uses_at[place] += 1;
    }
    let n_calls: usize = (sessions.iter())
        .map(|session| session.history.n_calls())
        .sum();
    let mut n_missing: usize = first_uses_at.iter().sum();
    let mut best = FixedSize {
        n_tools: 0,
        price: f64::INFINITY,
    };
    for n_listed in 0..=n_tools {
        if n_listed > 0 {
            n_missing -= first_uses_at[n_listed - 1];
        }
        let lists = to_f64(sessions.len()) * prices.first_list(n_listed);
        let price = lists + session_price(prices, n_listed, n_calls, n_missing)
            - prices.first_list(n_listed);
        if price < best.price {
            best = FixedSize {
                n_tools: n_listed,
                price,
            };
        }
    }
    best
}
