//! The servers that belong to the task of a session.

use super::server_order::ServerOrder;
use crate::num::to_f64;

/// Share that is spread evenly over all tools, so that none is ruled out.
const FLOOR: f64 = 0.001;

/// The probability of each server.
#[derive(Debug)]
pub(super) struct TaskServers {
    probabilities: Vec<f64>,
    n_tools: f64,
}

impl TaskServers {
    /// Returns the servers by the mass of their tools in `new`. `task` has the mass of each tool, 0 or
    /// more. Without any mass, all logarithms are 0.
    pub(super) fn of(task: &[f64], server_of: &[u32], n_servers: usize, new: &[usize]) -> Self {
        let mut probabilities = vec![0.0; n_servers];
        let mut total = 0.0;
        for slot in new {
            probabilities[server_of[*slot] as usize] += task[*slot];
            total += task[*slot];
        }
        for probability in &mut probabilities {
            *probability /= f64::max(total, f64::MIN_POSITIVE);
        }
        let n_tools = if total > 0.0 { to_f64(new.len()) } else { 0.0 };
        Self {
            probabilities,
            n_tools,
        }
    }

    /// Returns the probability of the server times the share of the tool on it, as a logarithm
    /// relative to equal probabilities. A tool that similar sessions never used is thus likely if
    /// they used others of its server.
    pub(super) fn logarithm(&self, server: usize, order: &ServerOrder, slot: usize) -> f64 {
        if self.n_tools <= 0.0 {
            return 0.0;
        }
        let p = self.probabilities[server] * order.share(slot);
        ((1.0 - FLOOR) * self.n_tools * p + FLOOR).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_shares_its_mass_among_its_tools_in_order() {
        // Tools 0 to 2 are on one server, of which 2 is used; 3 is on another one.
        let shares = vec![(0.25, 0.0), (0.75, 0.0), (0.0, 0.0), (1.0, 0.0)];
        let order = ServerOrder { shares };
        let servers = |task: &[f64]| TaskServers::of(task, &[0, 0, 0, 1], 2, &[0, 1, 3]);
        let known = servers(&[1.2, 0.0, 9.0, 0.4]);
        for (slot, server, p) in [(0, 0, 0.25 * 0.75), (1, 0, 0.75 * 0.75), (3, 1, 0.25)] {
            let expected = 0.999 * 3.0 * p + 0.001;
            let logarithm = known.logarithm(server, &order, slot);
            assert!((logarithm.exp() - expected).abs() < 1e-12);
            let unknown = servers(&[0.0; 4]).logarithm(server, &order, slot);
            assert!(unknown.abs() < 1e-12);
        }
    }
}
