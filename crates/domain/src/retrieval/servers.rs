//! Scores of servers, from the scores of their tools.

use crate::num::to_f64;

/// The number of best tools that decide the score of a server.
const N_BEST: usize = 3;

/// Returns the mean of the three best scores for each server, with negative scores as zero. A
/// server with fewer tools has zeros for the missing ones, since one tool alone is no evidence
/// beyond itself. `server_of` has the number of the server of each tool.
pub(super) fn server_scores(scores: &[f64], server_of: &[usize], n_servers: usize) -> Vec<f64> {
    let mut best = vec![[0.0_f64; N_BEST]; n_servers];
    for (score, server) in scores.iter().zip(server_of) {
        let best = &mut best[*server];
        let mut score = *score;
        for held in best {
            if score > *held {
                std::mem::swap(held, &mut score);
            }
        }
    }
    best.iter()
        .map(|best| best.iter().sum::<f64>() / to_f64(N_BEST))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_as_good_as_its_three_best_tools() {
        let scores = [0.9, 0.1, 0.6, 0.3, -0.5, 0.2];
        let found = server_scores(&scores, &[0, 0, 0, 0, 1, 1], 2);
        assert!((found[0] - 0.6).abs() < 1e-12 && (found[1] - 0.2 / 3.0).abs() < 1e-12);
    }
}
