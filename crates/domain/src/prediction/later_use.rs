//! The tools that a session uses in its further course, not only in the next call.
//!
//! A list stays for a whole session, and so do the tools in the answer of a search. So what counts
//! for them is whether a tool is used at all, and not how soon. The evidence is the memory of
//! earlier sessions of the principal. The weights of the evidence are learned from each ended
//! session, at each point at which it used a new tool.

use serde::{Deserialize, Serialize};

use super::forecast::Forecast;
use super::memory::PrincipalMemory;
use super::numeric::logit;
use super::session_history::{SessionHistory, TextEvidence};
use super::softmax::{FeatureRows, log_linear, log_normalise};
use super::vocabulary::{ToolIx, Vocabulary};
use crate::num::to_f64;

/// Number of pieces of evidence for a tool.
const N_FEATURES: usize = 10;

/// The kinds of moments with separate weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Before the first call.
    Start,
    /// Before the first call, with a text.
    StartWithText,
    /// After a call.
    Later,
    /// After a call, with a text.
    LaterWithText,
}

impl Moment {
    const ALL: [Self; 4] = [
        Self::Start,
        Self::StartWithText,
        Self::Later,
        Self::LaterWithText,
    ];

    fn of(used: &[ToolIx], text: Option<&TextEvidence>) -> Self {
        match (used, text) {
            ([], None) => Self::Start,
            ([], Some(_)) => Self::StartWithText,
            (_, None) => Self::Later,
            (_, Some(_)) => Self::LaterWithText,
        }
    }

    fn index(self) -> usize {
        self as usize
    }

    /// Returns the initial weights, in the order of the rows of [`Evidence::rows`]. They are the
    /// rounded means of the weights after replays of several streams.
    fn initial_weights(self) -> [f64; N_FEATURES] {
        match self {
            Self::Start => [0.1, 0.3, 0.0, 0.0, 0.1, 0.1, 0.3, 0.0, 0.0, 0.2],
            Self::StartWithText => [0.0, 0.2, 0.0, 0.0, 0.1, 0.0, 0.3, 0.5, 0.5, 0.0],
            Self::Later => [0.4, 0.3, 0.7, 0.8, 0.4, 0.2, 0.5, 0.0, 0.0, 0.0],
            Self::LaterWithText => [0.3, 0.3, 0.7, 0.8, 0.4, 0.1, 0.4, 0.3, 0.5, 0.0],
        }
    }

    /// Returns the share of the forecast of the next call in the result. Before the first call and
    /// without a text, that forecast only says how sessions begin.
    fn share_of_next(self) -> f64 {
        match self {
            Self::Start => 0.0,
            Self::StartWithText => 0.2,
            Self::Later | Self::LaterWithText => 0.4,
        }
    }
}

/// The weights of the evidence at one kind of moment, with the sums of the squared gradients
/// (`AdaGrad`, Duchi et al. 2011).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Weights {
    of: [f64; N_FEATURES],
    squares: [f64; N_FEATURES],
}

/// Predicts the tools that a session has yet to use. It belongs to one principal: it learns from
/// its sessions alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LaterUse {
    weights: [Weights; Moment::ALL.len()],
}

impl Default for LaterUse {
    fn default() -> Self {
        Self {
            weights: Moment::ALL.map(|moment| Weights {
                of: moment.initial_weights(),
                squares: [1.0; N_FEATURES],
            }),
        }
    }
}

impl LaterUse {
    /// Step of the weights.
    const RATE: f64 = 0.1;
    /// Maximum number of moments of a session that are learned from, the first ones.
    const MAX_MOMENTS: usize = 16;
    /// The least probability of a next call that counts.
    const LEAST_NEXT: f64 = 1e-6;

    /// Returns the shares of the candidates in the tools that the session has yet to use. `next` is
    /// the forecast of the next call; it counts less, the more sessions are known. Used tools have
    /// the share 0. `None` if nothing is known, or if all candidates are used.
    pub(super) fn forecast(
        &self,
        memory: &PrincipalMemory,
        vocabulary: &Vocabulary,
        history: &SessionHistory,
        candidates: &[usize],
        next: &Forecast,
    ) -> Option<Vec<(usize, f64)>> {
        if memory.n_sessions() == 0 {
            return None;
        }
        let used: Vec<ToolIx> = history.used_tools().collect();
        let is_used = |slot: usize| used.iter().any(|used| used.index() == slot);
        let (gone, new): (Vec<usize>, Vec<usize>) =
            candidates.iter().partition(|slot| is_used(**slot));
        if new.is_empty() {
            return None;
        }
        let evidence = Evidence::new(memory, vocabulary, history.party.client);
        let text = history.text();
        let moment = Moment::of(&used, text);
        let rows = evidence.rows(&used, text, &new);
        let mut log_p = log_linear(&self.weights[moment.index()].of, &rows);
        let unknown = 1.0 / (1.0 + to_f64(memory.n_sessions()));
        let share = moment.share_of_next();
        let share = share + (1.0 - share) * unknown;
        let mut next_of = vec![0.0; vocabulary.len()];
        for (slot, probability) in next.ranking() {
            if let Some(next) = next_of.get_mut(slot.index()) {
                *next = *probability;
            }
        }
        for (log_p, slot) in log_p.iter_mut().zip(&new) {
            let next = next_of[*slot].max(Self::LEAST_NEXT).ln();
            *log_p = (1.0 - share) * *log_p + share * next;
        }
        log_normalise(&mut log_p);
        let later = new.into_iter().zip(log_p.into_iter().map(f64::exp));
        Some(
            later
                .chain(gone.into_iter().map(|slot| (slot, 0.0)))
                .collect(),
        )
    }

    /// Learns from an ended session, before the memory stores it.
    pub(super) fn learn(
        &mut self,
        memory: &PrincipalMemory,
        vocabulary: &Vocabulary,
        history: &SessionHistory,
    ) {
        if memory.n_sessions() == 0 {
            return;
        }
        let used: Vec<ToolIx> = history.used_tools().collect();
        let evidence = Evidence::new(memory, vocabulary, history.party.client);
        let texts = texts_of(history, &used);
        let n_moments = used.len().min(Self::MAX_MOMENTS);
        for n_used in 0..n_moments {
            let (before, later) = used.split_at(n_used);
            // The text of a later moment is that of the last call, as in the answer of a search.
            let text = texts.get(n_used.saturating_sub(1)).copied().flatten();
            let is_used = |slot: &usize| before.iter().any(|used| used.index() == *slot);
            let new: Vec<usize> = (0..vocabulary.len())
                .filter(|slot| !is_used(slot))
                .collect();
            let moment = Moment::of(before, text);
            let rows = evidence.rows(before, text, &new);
            let weights = &mut self.weights[moment.index()];
            let log_p = log_linear(&weights.of, &rows);
            let mut target = vec![0.0; new.len()];
            for tool in later {
                if let Ok(at) = new.binary_search(&tool.index()) {
                    target[at] = 1.0 / to_f64(later.len());
                }
            }
            weights.step(&rows, &log_p, &target, Self::RATE);
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.weights.iter().all(|weights| {
            weights.of.iter().all(|weight| weight.is_finite())
                && (weights.squares.iter()).all(|square| square.is_finite() && *square > 0.0)
        })
    }
}

impl Weights {
    /// Moves the weights towards the target shares.
    fn step(&mut self, rows: &FeatureRows, log_p: &[f64], target: &[f64], rate: f64) {
        let errors: Vec<f64> = target
            .iter()
            .zip(log_p)
            .map(|(target, log_p)| target - log_p.exp())
            .collect();
        let numbers = self.of.iter_mut().zip(&mut self.squares);
        for ((weight, square), row) in numbers.zip(rows.each()) {
            let gradient: f64 = errors.iter().zip(row).map(|(error, x)| error * x).sum();
            *square += gradient * gradient;
            *weight += rate * gradient / square.sqrt();
        }
    }
}

/// Returns the text that was current at the first use of each tool, if there was one.
fn texts_of<'a>(history: &'a SessionHistory, used: &[ToolIx]) -> Vec<Option<&'a TextEvidence>> {
    let text_of = |tool: &ToolIx| {
        let mut episodes = history.episodes.iter();
        let episode = episodes.find(|episode| episode.used.iter().any(|(used, _)| used == tool));
        episode.map(|episode| &episode.text)
    };
    used.iter().map(text_of).collect()
}

/// The evidence of the earlier sessions of a principal about its tools.
#[derive(Debug)]
struct Evidence<'a> {
    memory: &'a PrincipalMemory,
    server_of: &'a [u32],
    n_sessions: f64,
    /// Number of sessions that used each tool.
    n_with: Vec<f64>,
    /// Number of sessions that used each server.
    n_with_server: Vec<f64>,
    /// Share of the sessions that used each tool.
    share: Vec<f64>,
    /// Log-odds of the share of the sessions of the client.
    of_client: Vec<f64>,
}

impl<'a> Evidence<'a> {
    /// Number of sessions at which the share of a client counts as much as the share of all.
    const N_OF_ALL: f64 = 2.0;
    /// Number of sessions with a tool at which another tool's share among them counts as much as
    /// its share of all.
    const N_OF_PAIR: f64 = 2.0;
    /// Gain of the weight of a session with each shared tool, relative to the share of the tool.
    const GAIN: f64 = 4.0;
    /// Weight of the share of all sessions beside the sessions with similar texts.
    const TEXT_PRIOR: f64 = 0.01;
    /// Maximum number of used tools that count, the newest ones.
    const MAX_USED: usize = 16;

    fn new(memory: &'a PrincipalMemory, vocabulary: &'a Vocabulary, client: u64) -> Self {
        let (n, server_of) = (vocabulary.len(), vocabulary.server_of());
        let mut n_with = vec![0.0; n];
        let mut n_with_client = vec![0.0; n];
        let mut n_with_server = vec![0.0; vocabulary.n_servers()];
        let (mut n_sessions, mut n_of_client) = (0.0, 0.0);
        let mut servers = SeenServers::new(vocabulary.n_servers());
        for (of, tools) in memory.sessions() {
            n_sessions += 1.0;
            n_of_client += f64::from(u8::from(of == client));
            servers.clear();
            for slot in slots_below(tools, n) {
                n_with[slot] += 1.0;
                if of == client {
                    n_with_client[slot] += 1.0;
                }
                if servers.insert(server_of[slot]) {
                    n_with_server[server_of[slot] as usize] += 1.0;
                }
            }
        }
        let share: Vec<f64> = n_with
            .iter()
            .map(|n| (n + 0.1) / (n_sessions + 1.0))
            .collect();
        let of_client = n_with_client
            .iter()
            .zip(&share)
            .map(|(n, share)| logit((n + Self::N_OF_ALL * share) / (n_of_client + Self::N_OF_ALL)));
        Self {
            memory,
            server_of,
            n_sessions,
            of_client: of_client.collect(),
            n_with,
            n_with_server,
            share,
        }
    }

    /// Returns the evidence for the tools of `new`, after the tools of `used`.
    fn rows(&self, used: &[ToolIx], text: Option<&TextEvidence>, new: &[usize]) -> FeatureRows {
        let mut rows = FeatureRows::new(new.len(), N_FEATURES);
        let mut row = |value: &dyn Fn(usize) -> f64| rows.push(new.iter().map(|slot| value(*slot)));
        let n_known = self.share.len();
        let used_slots: Vec<usize> = (used.iter().map(|used| used.index()))
            .filter(|slot| *slot < n_known)
            .collect();
        let similar = self.similar_sessions(&used_slots);
        let pairs = self.after_each(&used_slots);
        let server = |slot: usize| self.server_of[slot];
        let mut in_use = SeenServers::new(self.n_with_server.len());
        for slot in &used_slots {
            in_use.insert(server(*slot));
        }
        let last = used_slots.last().map(|slot| server(*slot));
        let flag = |is: bool| f64::from(u8::from(is));
        row(&|slot| similar.tool(slot, self.share[slot]));
        row(&|slot| match &pairs {
            Some(pairs) => pairs[slot],
            None => logit(self.share[slot]),
        });
        row(&|slot| flag(in_use.contains(server(slot))));
        row(&|slot| flag(last == Some(server(slot))));
        row(&|slot| {
            if in_use.contains(server(slot)) {
                return 0.0;
            }
            let n = self.n_with_server[server(slot) as usize];
            similar.server(server(slot) as usize, (n + 0.3) / (self.n_sessions + 1.0))
        });
        row(&|slot| {
            let n = self.n_with_server[server(slot) as usize];
            logit((self.n_with[slot] + 0.3) / (n + 1.0))
        });
        row(&|slot| flag(self.n_with[slot] == 0.0));
        if let Some(text) = text {
            let mut near = vec![0.0; n_known];
            let total = self.memory.add_later(text, &mut near) + Self::TEXT_PRIOR;
            row(&|slot| logit((near[slot] + Self::TEXT_PRIOR * self.share[slot]) / total));
            let best = text
                .scores
                .iter()
                .map(|(_, score)| *score)
                .fold(0.0, f64::max);
            let mut fits = vec![0.0; n_known];
            for (slot, score) in &text.scores {
                if let Some(fit) = fits.get_mut(slot.index()) {
                    *fit = score / best;
                }
            }
            row(&|slot| fits[slot]);
        } else {
            row(&|_| 0.0);
            row(&|_| 0.0);
        }
        row(&|slot| self.of_client[slot]);
        rows
    }

    /// Returns the tools and servers of earlier sessions, weighted by the used tools that they
    /// have: `prod_a (1 + 4 / (s_a |S|))` over the shared tools `a`, with `s_a` the share of the
    /// sessions that used `a`. Only tools after the last shared one count.
    fn similar_sessions(&self, used: &[usize]) -> SimilarSessions {
        let n = self.share.len();
        let mut gains = vec![0.0; n];
        for slot in used {
            gains[*slot] = Self::GAIN * self.n_sessions / self.n_with[*slot].max(0.1);
        }
        let mut similar = SimilarSessions {
            tools: vec![0.0; n],
            servers: vec![0.0; self.n_with_server.len()],
            total: 0.0,
            prior: 0.0,
        };
        let mut servers = SeenServers::new(self.n_with_server.len());
        for (_, tools) in self.memory.sessions() {
            let size = to_f64(tools.len().max(1));
            let (mut weight, mut after) = (1.0, 0);
            for (at, slot) in slots_below(tools, n).enumerate() {
                if gains[slot] > 0.0 {
                    // The limit keeps the product finite in long sessions.
                    weight = f64::min(weight * (1.0 + gains[slot] / size), 1e200);
                    after = at + 1;
                }
            }
            similar.total += weight;
            servers.clear();
            for (at, slot) in slots_below(tools, n).enumerate() {
                if at >= after {
                    similar.tools[slot] += weight;
                }
                if servers.insert(self.server_of[slot]) {
                    similar.servers[self.server_of[slot] as usize] += weight;
                }
            }
        }
        // The share of all sessions counts as much as one mean session.
        similar.prior = similar.total / self.n_sessions;
        similar
    }

    /// Returns the mean log-odds that a tool was used after each of the newest used tools; `None`
    /// without a used tool.
    fn after_each(&self, used: &[usize]) -> Option<Vec<f64>> {
        let newest = &used[used.len().saturating_sub(Self::MAX_USED)..];
        if newest.is_empty() {
            return None;
        }
        let n = self.share.len();
        let mut place_of = vec![None; n];
        for (place, slot) in newest.iter().enumerate() {
            place_of[*slot] = Some(place);
        }
        let mut n_after = vec![0.0; newest.len() * n];
        for (_, tools) in self.memory.sessions() {
            for (at, slot) in slots_below(tools, n).enumerate() {
                if let Some(place) = place_of[slot] {
                    for later in slots_below(tools, n).skip(at + 1) {
                        n_after[place * n + later] += 1.0;
                    }
                }
            }
        }
        let mut means = vec![0.0; n];
        for (slot, n_after) in newest.iter().zip(n_after.chunks_exact(n)) {
            let total = self.n_with[*slot] + Self::N_OF_PAIR;
            for ((mean, n_after), share) in means.iter_mut().zip(n_after).zip(&self.share) {
                *mean += logit((n_after + Self::N_OF_PAIR * share) / total);
            }
        }
        let n_newest = to_f64(newest.len());
        for mean in &mut means {
            *mean /= n_newest;
        }
        Some(means)
    }
}

/// Returns the tools of a stored session as indices below `n`.
fn slots_below(tools: &[u32], n: usize) -> impl Iterator<Item = usize> {
    let slots = tools.iter().map(|slot| *slot as usize);
    slots.filter(move |slot| *slot < n)
}

/// Weighted sums over similar sessions.
#[derive(Debug)]
struct SimilarSessions {
    tools: Vec<f64>,
    servers: Vec<f64>,
    total: f64,
    /// Weight of the share of all sessions.
    prior: f64,
}

impl SimilarSessions {
    fn tool(&self, slot: usize, share: f64) -> f64 {
        logit((self.tools[slot] + self.prior * share) / (self.total + self.prior))
    }

    fn server(&self, server: usize, share: f64) -> f64 {
        logit((self.servers[server] + self.prior * share) / (self.total + self.prior))
    }
}

/// A set of servers.
#[derive(Debug)]
struct SeenServers(Vec<bool>);

impl SeenServers {
    fn new(n_servers: usize) -> Self {
        Self(vec![false; n_servers])
    }

    fn clear(&mut self) {
        self.0.fill(false);
    }

    fn contains(&self, server: u32) -> bool {
        self.0.get(server as usize).copied().unwrap_or(false)
    }

    /// Adds a server and returns whether it is new.
    fn insert(&mut self, server: u32) -> bool {
        let seen = self.0.get_mut(server as usize);
        seen.is_some_and(|seen| !std::mem::replace(seen, true))
    }
}

#[cfg(test)]
mod tests;
