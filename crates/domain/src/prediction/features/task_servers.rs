//! The servers that belong to the task of a session.

use super::server_order::ServerOrder;
use crate::num::to_f64;

/// Share that is spread evenly over all tools, so that none is ruled out.
const FLOOR: f64 = 0.001;

/// Returns for each tool in `new` the probability of its server times its share on this server, as a
/// logarithm relative to equal probabilities; zeros if `task` has no mass. The probability of a
/// server is the mass of its tools in `task`, which has a value of 0 or more for each tool. A tool
/// that similar sessions never used is thus likely if they used others of its server.
pub(super) fn of(task: &[f64], order: &ServerOrder, server_of: &[u32], new: &[usize]) -> Vec<f64> {
    let mut logarithms = vec![0.0; task.len()];
    let n_servers = server_of.iter().max().map_or(0, |last| *last as usize + 1);
    let mut masses = vec![0.0; n_servers];
    for slot in new {
        masses[server_of[*slot] as usize] += task[*slot];
    }
    let total: f64 = masses.iter().sum();
    if total <= 0.0 {
        return logarithms;
    }
    let n = to_f64(new.len());
    for slot in new {
        let p = masses[server_of[*slot] as usize] / total * order.share(*slot);
        logarithms[*slot] = ((1.0 - FLOOR) * n * p + FLOOR).ln();
    }
    logarithms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_shares_its_mass_among_its_tools_in_order() {
        // Tools 0 to 2 are on one server, of which 2 is used; 3 is on another one.
        let shares = vec![(0.5, 0.25), (0.5, 0.75), (0.0, 0.0), (1.0, 1.0)];
        let order = ServerOrder { shares };
        let logarithms = of(&[1.2, 0.0, 9.0, 0.4], &order, &[0, 0, 0, 1], &[0, 1, 3]);
        let expected = [0.25 * 0.75, 0.75 * 0.75, 0.25].map(|p: f64| 0.999 * 3.0 * p + 0.001);
        for (slot, expected) in [0, 1, 3].into_iter().zip(expected) {
            assert!((logarithms[slot].exp() - expected).abs() < 1e-12);
        }
        assert_eq!(of(&[0.0; 4], &order, &[0, 0, 0, 1], &[0, 1, 3]), [0.0; 4]);
    }
}
