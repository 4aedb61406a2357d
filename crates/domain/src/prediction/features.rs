//! Features: additional evidence for the first use of a tool in a session.

mod server_fit;
mod server_order;
mod task_servers;

use strum::IntoStaticStr;

use super::softmax::FeatureRows;
use super::view::View;
use super::vocabulary::{ToolIx, Vocabulary};
use crate::num::to_f64;
use task_servers::TaskServers;

/// A property of a tool, in addition to the output of the experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Feature {
    /// The principal never used the tool.
    NeverUsed,
    /// The session used the server of the tool.
    ServerInSession,
    /// The last call went to the server of the tool.
    LastServer,
    /// The fit of the tool to the text, in standard deviations.
    Fit,
    /// Number of different tools of its server in the session, as `ln(1 + n)`.
    ToolsOfServer,
    /// The call before the last tool went to the server of the tool.
    ServerBefore,
    /// Similarity of its name to the name of the last tool.
    #[strum(serialize = "name_like_last")]
    LikeLast,
    /// Similarity of its name to the most similar name in the session.
    #[strum(serialize = "name_like_used")]
    LikeUsed,
    /// The principal never used the tool, and the last call went to its server.
    NeverUsedLastServer,
    /// The principal never used the tool, and the session used its server.
    NeverUsedServerInSession,
    /// The principal never used the server of the tool.
    NeverUsedServer,
    /// The fit of the tool if the principal never used it, else 0.
    NeverUsedFit,
    /// The fit of the tool if the session used its server, else 0.
    ServerInSessionFit,
    /// Number of tools of its server that the session has not used, as `ln(n) / 3`.
    ToolsLeft,
    /// The fit of its server to the text, as a logarithm.
    ServerFit,
    /// The frequency of the tool as the first one of its server, relative to its frequency overall,
    /// as a logarithm; 0 if the session used the server.
    Entry,
    /// The frequency of the tool on its server after the last call there, relative to its frequency
    /// overall, as a logarithm; 0 if the session did not use the server, or used it last.
    Resumption,
    /// The probability of its server by similar sessions and texts times its share on this server, as
    /// a logarithm; 0 if the session used the server.
    TaskServer,
}

impl Feature {
    /// All features in the order of their rows, with their initial weights: see
    /// [`super::expert::Expert::start_weights`].
    pub(super) const ALL: [(Self, f64); 18] = [
        (Self::NeverUsed, 1.33),
        (Self::ServerInSession, 0.48),
        (Self::LastServer, 0.34),
        (Self::Fit, 0.16),
        (Self::ToolsOfServer, 0.35),
        (Self::ServerBefore, 0.14),
        (Self::LikeLast, 0.66),
        (Self::LikeUsed, 0.38),
        (Self::NeverUsedLastServer, 0.99),
        (Self::NeverUsedServerInSession, 1.2),
        (Self::NeverUsedServer, 0.13),
        (Self::NeverUsedFit, 0.38),
        (Self::ServerInSessionFit, -0.1),
        (Self::ToolsLeft, -1.02),
        (Self::ServerFit, 0.44),
        (Self::Entry, 0.3),
        (Self::Resumption, 0.2),
        (Self::TaskServer, 0.1),
    ];

    /// Returns the published name of the feature.
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the feature follows from the text of the session alone.
    pub(super) fn reads_text(self) -> bool {
        matches!(
            self,
            Self::Fit | Self::NeverUsedFit | Self::ServerInSessionFit | Self::ServerFit
        )
    }

    /// Returns the evidence in words, for a tool that the feature speaks for.
    pub(super) fn evidence(self, view: &View<'_>, slot: ToolIx) -> Option<String> {
        let server = || view.vocabulary.tool(slot).map(|tool| &tool.upstream);
        Some(match self {
            Self::ServerInSession
            | Self::LastServer
            | Self::ToolsOfServer
            | Self::ServerBefore
            | Self::NeverUsedLastServer
            | Self::NeverUsedServerInSession => format!("server `{}` in use", server()?),
            Self::LikeLast | Self::LikeUsed => "its name is similar to the tools in use".into(),
            Self::Fit | Self::NeverUsedFit | Self::ServerInSessionFit => "fits the text".into(),
            Self::ServerFit => format!("server `{}` fits the text", server()?),
            Self::Entry => format!("often the first tool of server `{}`", server()?),
            Self::Resumption => format!("often next on server `{}`", server()?),
            Self::TaskServer => {
                view.memory?;
                format!("server `{}` used for similar tasks", server()?)
            }
            Self::NeverUsed | Self::NeverUsedServer => "never used so far".into(),
            Self::ToolsLeft => return None,
        })
    }
}

/// Number of tools of a session with which names are compared, the newest ones. At most 8: each has
/// a bit of a byte.
const MAX_COMPARED: usize = 8;

/// Adds a row for each feature, over the tools in `new`, which the session has not used yet. `fits`
/// are the logarithms of the fit of each tool to the text, if there is a text. `task` is the mean
/// distribution over `new` of the experts that know the task, on any scale.
pub(super) fn push_features(
    view: &View<'_>,
    fits: Option<Vec<f64>>,
    task: &[f64],
    new: &[usize],
    rows: &mut FeatureRows,
) {
    let vocabulary = view.vocabulary;
    let mut servers = vec![ServerFeatures::default(); vocabulary.n_servers()];
    let number = |slot: ToolIx| vocabulary.server(slot).map(|server| server as usize);
    for used in view
        .history
        .used
        .iter()
        .filter_map(|used| number(used.slot))
    {
        servers[used].n_used += 1.0;
    }
    let mut before = view.history.changes.iter().rev();
    if let Some(last) = before.next().copied().and_then(number) {
        servers[last].is_last = 1.0;
    }
    if let Some(before) = before.next().copied().and_then(number) {
        servers[before].is_before = 1.0;
    }
    for slot in new {
        servers[vocabulary.server_of()[*slot] as usize].n_left += 1.0;
    }
    let is_used = |slot: u32| {
        let own = view
            .own
            .is_some_and(|own| own.pairs.n_sessions(slot, 1.0) > 0.0);
        f64::from(u8::from(own))
    };
    let never: Vec<f64> = (0..)
        .take(view.n())
        .map(|slot| 1.0 - is_used(slot))
        .collect();
    for (server, never) in vocabulary.server_of().iter().zip(&never) {
        servers[*server as usize].is_known |= *never < 0.5;
    }
    let server_fits = server_fit::of(fits.as_deref(), vocabulary, new);
    let fits = fits.map_or_else(|| vec![0.0; view.n()], standardise);
    let likeness = NameSimilarity::new(view);
    let order = server_order::of(view, new);
    let task = TaskServers::of(task, vocabulary.server_of(), servers.len(), new);
    let values: Vec<[f64; Feature::ALL.len()]> = (new.iter().copied())
        .map(|slot| {
            let number = vocabulary.server_of()[slot] as usize;
            let server = &servers[number];
            let in_session = f64::from(u8::from(server.n_used > 0.0));
            let (never, fit) = (never[slot], fits[slot]);
            let (like_last, like_used) = likeness.of(view.vocabulary, slot);
            let (entry, task_server) = if server.n_used > 0.0 {
                (0.0, 0.0)
            } else {
                (order.gain(slot), task.logarithm(number, &order, slot))
            };
            [
                never,
                in_session,
                server.is_last,
                fit,
                server.n_used.ln_1p(),
                server.is_before,
                like_last,
                like_used,
                never * server.is_last,
                never * in_session,
                f64::from(u8::from(!server.is_known)),
                never * fit,
                in_session * fit,
                server.n_left.max(1.0).ln() / 3.0,
                server_fits[number],
                entry,
                in_session * (1.0 - server.is_last) * order.gain(slot),
                task_server,
            ]
        })
        .collect();
    for feature in 0..Feature::ALL.len() {
        rows.push(values.iter().map(|values| values[feature]));
    }
}

#[derive(Clone, Debug, Default)]
struct ServerFeatures {
    n_used: f64,
    n_left: f64,
    is_last: f64,
    is_before: f64,
    is_known: bool,
}

fn standardise(mut values: Vec<f64>) -> Vec<f64> {
    let n = to_f64(values.len().max(1));
    let mean = values.iter().sum::<f64>() / n;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / n;
    let deviation = variance.sqrt() + 1e-6;
    for value in &mut values {
        *value = (*value - mean) / deviation;
    }
    values
}

/// Similarity of tool names to the names in the session: the cosine of their words.
struct NameSimilarity {
    /// For each word, a bit for each compared tool that has it. The last tool is bit 0.
    tools_with: Vec<u8>,
    /// The weight of a shared word for each compared tool: 1 / sqrt(number of its words).
    counts: Vec<f64>,
}

impl NameSimilarity {
    fn new(view: &View<'_>) -> Self {
        let mut compared: Vec<ToolIx> = view.history.last().into_iter().collect();
        for used in view.history.used.iter().rev() {
            if compared.len() < MAX_COMPARED && !compared.contains(&used.slot) {
                compared.push(used.slot);
            }
        }
        let mut tools_with = vec![0; view.vocabulary.n_words()];
        let mut counts = Vec::with_capacity(compared.len());
        for (at, slot) in compared.into_iter().enumerate() {
            let words = view.vocabulary.words_of(slot);
            for word in words {
                tools_with[*word as usize] |= 1 << at;
            }
            counts.push(1.0 / to_f64(words.len().max(1)).sqrt());
        }
        Self { tools_with, counts }
    }

    /// Returns the similarity of the name to the name of the last tool, and to the most similar
    /// name.
    fn of(&self, vocabulary: &Vocabulary, slot: usize) -> (f64, f64) {
        let words = vocabulary.words_of_index(slot);
        let mut shared = [0.0; MAX_COMPARED];
        for word in words {
            let mut tools = self.tools_with[*word as usize];
            while tools != 0 {
                shared[tools.trailing_zeros() as usize] += 1.0;
                tools &= tools - 1;
            }
        }
        let root = to_f64(words.len().max(1)).sqrt();
        let cosine = |at: usize| shared[at] * self.counts[at] / root;
        let best = (0..self.counts.len()).map(cosine).fold(0.0, f64::max);
        let last = if self.counts.is_empty() {
            0.0
        } else {
            cosine(0)
        };
        (last, best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_features_are_stable() {
        let names = Feature::ALL.map(|(feature, _)| feature.as_str());
        assert_eq!(
            names,
            [
                "never_used",
                "server_in_session",
                "last_server",
                "fit",
                "tools_of_server",
                "server_before",
                "name_like_last",
                "name_like_used",
                "never_used_last_server",
                "never_used_server_in_session",
                "never_used_server",
                "never_used_fit",
                "server_in_session_fit",
                "tools_left",
                "server_fit",
                "entry",
                "resumption",
                "task_server"
            ]
        );
    }
}
