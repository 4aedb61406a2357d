//! Explanation of recommendations in sentences.

use riglm_domain::recommendation::{CandidateSignals, Factor, Factors, ToolPerformance};

/// Threshold of the relevance for "best match".
const FITS_WELL: f64 = 0.8;
/// Threshold of the relevance for "good match".
const FITS: f64 = 0.4;
/// Threshold of the session share at which the explanation mentions the session.
const SESSION: f64 = 0.3;

/// Returns the reasons for a recommendation: the match with the intent, and the past performance of
/// the tool.
pub(super) fn sentence(
    signals: &CandidateSignals,
    factors: &Factors,
    standing: Option<&ToolPerformance>,
    session_share: f64,
) -> String {
    let relevance = factors.of(Factor::Relevance);
    let fit = match relevance {
        value if value >= FITS_WELL => "Best match",
        value if value >= FITS => "Good match",
        _ => "Weak match",
    };
    let named = words(signals);
    let mut parts = vec![if named.is_empty() {
        fit.to_owned()
    } else {
        format!("{fit} ({})", named.join(", "))
    }];
    if session_share >= SESSION {
        parts.push("Goes with what this session does".into());
    }
    if let Some(standing) = standing {
        parts.extend(performance(standing));
    }
    let mut sentence = parts.join(". ");
    sentence.push('.');
    sentence
}

/// Returns the words of the intent that name the tool, without repetitions.
fn words(signals: &CandidateSignals) -> Vec<&str> {
    let all = [&signals.actions, &signals.domains, &signals.terms];
    let mut words: Vec<&str> = Vec::new();
    for word in all.into_iter().flatten() {
        if !words.contains(&word.as_str()) {
            words.push(word);
        }
    }
    words
}

/// Returns the parts of the sentence about the past performance of a tool.
fn performance(standing: &ToolPerformance) -> Vec<String> {
    let mut parts = Vec::new();
    let endings = standing.endings;
    if endings.n_ended > 0 {
        let calls = if endings.n_ended == 1 {
            "call"
        } else {
            "calls"
        };
        parts.push(format!(
            "{} of {} {calls} succeeded",
            endings.n_ok, endings.n_ended
        ));
    }
    if let Some((latency, _)) = standing.latency {
        let ms = latency.as_secs_f64() * 1e3;
        parts.push(if ms < 1.0 {
            "Typical time below 1 ms".into()
        } else {
            format!("Typical time {ms:.0} ms")
        });
    }
    if let Some(stars) = standing.mean_stars() {
        let (n, _) = standing.ratings;
        parts.push(format!("Rated {stars:.1} of 5 by {n}"));
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use riglm_domain::recommendation::CallOutcomes;

    use super::*;

    #[test]
    fn a_sentence_states_the_match_and_the_performance() {
        let factors = |relevance| Factors::new([relevance, 0.5, 0.5, 0.5, 0.5]);
        let bare = sentence(&CandidateSignals::default(), &factors(0.1), None, 0.0);
        assert_eq!(bare, "Weak match.");
        let standing = ToolPerformance {
            endings: CallOutcomes {
                n_ended: 50,
                n_ok: 48,
            },
            latency: Some((Duration::from_micros(15_300), 48)),
            ratings: (12, 57.6),
            ..ToolPerformance::default()
        };
        let full = sentence(
            &CandidateSignals::default(),
            &factors(0.9),
            Some(&standing),
            0.5,
        );
        assert_eq!(
            full,
            "Best match. Goes with what this session does. 48 of 50 calls succeeded. Typical time 15 \
             ms. Rated 4.8 of 5 by 12."
        );
    }
}
