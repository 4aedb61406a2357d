//! The fit of a server to a text, over all its tools.

use super::super::vocabulary::Vocabulary;
use crate::num::to_f64;

/// Share that is spread evenly over all servers, so that none is ruled out.
const FLOOR: f64 = 0.01;

/// Returns for each server the logarithm of the share of its tools in `new` in the total fit of all
/// tools in `new`; zeros without a text. `fits` are logarithms, by index. It raises tools that fit
/// little themselves, if other tools of their server fit well.
pub(super) fn of(fits: Option<&[f64]>, vocabulary: &Vocabulary, new: &[usize]) -> Vec<f64> {
    let n = vocabulary.n_servers();
    let mut shares = vec![0.0; n];
    let Some(fits) = fits else {
        return shares;
    };
    for slot in new {
        shares[vocabulary.server_of()[*slot] as usize] += fits[*slot].exp();
    }
    let sum = shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    for share in &mut shares {
        *share = ((1.0 - FLOOR) * *share / sum + FLOOR / to_f64(n)).ln();
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tool::ToolRef;
    use crate::id::UpstreamName;

    #[test]
    fn a_server_has_the_share_of_its_new_tools() {
        let mut vocabulary = Vocabulary::default();
        for (server, tool) in [("a", "x"), ("a", "y"), ("b", "z"), ("c", "w")] {
            let upstream = UpstreamName::parse(server).unwrap();
            let tool = tool.into();
            vocabulary.intern(&ToolRef { upstream, tool }).unwrap();
        }
        let fits = [0.4, 0.2, 0.2, 0.2].map(f64::ln);
        let shares = of(Some(&fits), &vocabulary, &[1, 2]);
        let expected = [0.5, 0.5, 0.0].map(|share: f64| 0.99 * share + 0.01 / 3.0);
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share.exp() - expected).abs() < 1e-12);
        }
        assert_eq!(of(None, &vocabulary, &[1]), [0.0; 3]);
    }
}
