//! The order in which the tools of a server are first used.

use crate::prediction::session_history::ToolUsage;
use crate::prediction::tables::on_server_key;
use crate::prediction::view::View;
use crate::prediction::vocabulary::ToolIx;

/// Discount of each count, in calls. The discounted mass is distributed by frequency.
const DISCOUNT: f64 = 0.6;

/// The tools as the next ones of their servers.
#[derive(Debug)]
pub(super) struct ServerOrder {
    /// For each tool its share on its server, and the logarithm of this share relative to the share
    /// by frequency.
    pub(super) shares: Vec<(f64, f64)>,
}

impl ServerOrder {
    /// Returns the share of the tool as the next one of its server.
    pub(super) fn share(&self, slot: usize) -> f64 {
        self.shares[slot].0
    }

    /// Returns the logarithm of this share relative to the share by frequency.
    pub(super) fn gain(&self, slot: usize) -> f64 {
        self.shares[slot].1
    }
}

/// Returns the shares over the tools in `new`. The next tool of a server is predicted from the last
/// tool of this server that the session called, whatever was called on other servers since; for
/// a server that the session has not used, from the tools with which sessions began to use it.
pub(super) fn of(view: &View<'_>, new: &[usize]) -> ServerOrder {
    let server_of = view.vocabulary.server_of();
    let mut is_new = vec![false; view.n()];
    let mut totals = vec![0.0; view.vocabulary.n_servers()];
    for slot in new {
        is_new[*slot] = true;
        totals[server_of[*slot] as usize] += view.frequency[*slot];
    }
    // First only the counted part of each share. Tools that are not in `new` keep zeros.
    let mut shares = vec![(0.0, 0.0); view.n()];
    let mut rest = vec![1.0; totals.len()];
    for ((server, last), rest) in (0..).zip(last_calls(view)).zip(&mut rest) {
        let key = on_server_key(server, last);
        let mut scopes = view.scopes.iter().rev();
        let Some(node) = scopes.find_map(|scope| scope.node(key)) else {
            continue;
        };
        let counts = || {
            node.each()
                .filter(|(slot, _)| is_new.get(*slot) == Some(&true))
        };
        let off = |count: f64| DISCOUNT * count.min(1.0);
        let total: f64 = counts().map(|(_, count)| count).sum();
        if total > 0.0 {
            *rest = counts().map(|(_, count)| off(count)).sum::<f64>() / total;
            for (slot, count) in counts() {
                shares[slot].0 = (count - off(count)) / total;
            }
        }
    }
    let log_rest: Vec<f64> = rest.iter().map(|rest| rest.ln()).collect();
    for slot in new {
        let server = server_of[*slot] as usize;
        let frequency = view.frequency[*slot] / totals[server].max(f64::MIN_POSITIVE);
        let (share, gain) = &mut shares[*slot];
        let counted = *share;
        *share += rest[server] * frequency;
        *gain = if counted > 0.0 {
            (*share / frequency.max(f64::MIN_POSITIVE)).ln()
        } else {
            log_rest[server]
        };
    }
    ServerOrder { shares }
}

/// Returns for each server the last of its tools that the session called.
fn last_calls(view: &View<'_>) -> Vec<Option<ToolIx>> {
    let mut last: Vec<Option<&ToolUsage>> = vec![None; view.vocabulary.n_servers()];
    for used in &view.history.used {
        if let Some(server) = view.vocabulary.server(used.slot) {
            let last = &mut last[server as usize];
            if last.is_none_or(|last| last.last_call < used.last_call) {
                *last = Some(used);
            }
        }
    }
    last.into_iter().map(|used| Some(used?.slot)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tool::ToolRef;
    use crate::id::UpstreamName;
    use crate::prediction::session_history::{ClientKey, SessionHistory};
    use crate::prediction::tables::Scopes;
    use crate::prediction::vocabulary::Vocabulary;
    use crate::privacy::principal::Principal;

    /// Tools 0 to 3 are on one server, 4 and 5 on another.
    const SERVERS: [&str; 6] = ["a", "a", "a", "a", "b", "b"];

    fn history() -> SessionHistory {
        SessionHistory::new(ClientKey::new(&Principal::local(), "client"))
    }

    /// Returns the gains of the tools that a session with these calls has not used.
    fn gains(calls: &[u32]) -> Vec<Option<f64>> {
        let mut vocabulary = Vocabulary::default();
        for (at, server) in SERVERS.iter().enumerate() {
            let upstream = UpstreamName::parse(server).unwrap();
            let tool = format!("tool_{at}").as_str().into();
            vocabulary.intern(&ToolRef { upstream, tool }).unwrap();
        }
        let mut scopes = Scopes::default();
        for _ in 0..6 {
            let mut session = history();
            for call in [0, 2, 2, 2, 4, 1, 5, 3] {
                scopes.learn(&session, ToolIx(call), &vocabulary, 1.0);
                session.push(ToolIx(call));
            }
        }
        let mut session = history();
        for call in calls {
            session.push(ToolIx(*call));
        }
        let view = View::new(&vocabulary, &scopes, None, 1.0, &session);
        let is_used = |slot: &usize| session.has_used(ToolIx(u32::try_from(*slot).unwrap()));
        let new: Vec<usize> = (0..6).filter(|slot| !is_used(slot)).collect();
        let order = of(&view, &new);
        for server in ["a", "b"] {
            let members = new.iter().filter(|slot| SERVERS[**slot] == server);
            let sum: f64 = members.map(|slot| order.share(*slot)).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{server} {sum}");
        }
        let gain = |slot: usize| new.contains(&slot).then(|| order.gain(slot));
        (0..6).map(gain).collect()
    }

    fn best(gains: &[Option<f64>]) -> Option<usize> {
        let known = gains.iter().enumerate();
        let known = known.filter_map(|(slot, gain)| Some((slot, (*gain)?)));
        let best = known.max_by(|a, b| a.1.total_cmp(&b.1));
        best.map(|(slot, _)| slot)
    }

    #[test]
    fn first_tools_of_a_server_gain_over_frequent_ones() {
        let gains = gains(&[]);
        // Tool 2 is called most often, but sessions begin with tool 0.
        assert!(gains[0] > Some(0.5) && gains[2] < Some(-0.5), "{gains:?}");
        assert!(gains[4] > gains[5], "{gains:?}");
    }

    #[test]
    fn the_next_tool_follows_the_last_call_on_its_server() {
        // The last call was on the other server.
        for (calls, next) in [(&[0, 2, 4][..], 1), (&[0, 2, 4, 1], 3)] {
            let gains = gains(calls);
            assert_eq!(best(&gains[..4]), Some(next), "{gains:?}");
        }
    }
}
