//! Searches that lists of each size would have cost the sessions so far.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::prices::SessionShape;
use super::session_trial::TrialOutcome;
use super::size::{LIST_SIZES, SessionOutlook};
use crate::prediction::Party;

/// Greatest weight of a session once the next one is counted: half after 34 of them. The
/// first ones count less sooner, since much was still to be learned then.
const DECAY: f64 = 0.98;
/// Number of sessions as which the assumptions count that hold before any.
const N_ASSUMED: f64 = 5.0;
/// Assumed searches of a session with a list of 20 tools: then a list of 20 costs as
/// much as one of 35 tools without any search.
const SEARCHES_AT_20: f64 = 0.4;
/// Exponent with which the assumed searches fall with the size.
const SEARCHES_FALL: f64 = 0.66;
/// Number of sessions of everybody that count beside those of a principal.
const N_OF_ALL: f64 = 10.0;
/// Number of sessions of a principal that count beside those of one of its clients.
const N_OF_PRINCIPAL: f64 = 5.0;
/// Number of needed hidden tools of everybody that count beside those of a client.
const N_WIDER_NEEDS: f64 = 2.0;
/// The most principals and clients that are told apart. Beyond that those are forgotten that had no
/// session for longest.
const MAX_PARTIES: usize = 10_000;
/// Least number of recent sessions that said what they do, so that predictions know what texts mean.
const LEAST_CONTEXTS: f64 = 5.0;
/// The share of recent sessions that must have said what they do, for the same.
const LEAST_CONTEXT_SHARE: f64 = 0.75;

/// Sums over sessions, in which the older ones count less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    /// Number of sessions, each counted once.
    n_seen: u32,
    n_sessions: f64,
    n_calls: f64,
    searches: [f64; LIST_SIZES.len()],
    loads: [f64; LIST_SIZES.len()],
    needs: [f64; LIST_SIZES.len()],
    /// Predicted number of times that a tool was needed which the list left out.
    needed: f64,
    /// Number of times that the client looked for one.
    sought: f64,
}

impl Sums {
    fn add(&mut self, outcome: &TrialOutcome) {
        let n_seen = f64::from(self.n_seen);
        let decay = (n_seen / (n_seen + 1.0)).min(DECAY);
        let follow = |sum: &mut f64, value: f64| *sum = *sum * decay + value;
        self.n_seen = self.n_seen.saturating_add(1);
        follow(&mut self.n_sessions, 1.0);
        follow(&mut self.n_calls, f64::from(outcome.n_calls));
        for at in 0..LIST_SIZES.len() {
            follow(&mut self.searches[at], f64::from(outcome.searches[at]));
            follow(&mut self.loads[at], f64::from(outcome.loads[at]));
            follow(&mut self.needs[at], outcome.needs[at]);
        }
    }

    fn add_need(&mut self, need: HiddenNeed) {
        self.needed = self.needed * DECAY + need.expected;
        self.sought = self.sought * DECAY + need.sought;
    }
}

/// The need of a session for tools that its list left out, and whether its client looked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HiddenNeed {
    /// The predicted probability that a tool was needed which the list left out.
    pub expected: f64,
    /// 1 if the client searched, called such a tool or used the tool for calling others; else 0.
    pub sought: f64,
}

/// Sums of a principal or of one of its clients, and when they were last added to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    sums: Sums,
    last: u64,
}

/// Searches that lists of each size would have cost the sessions so far: of everybody, of each principal,
/// and of each kind of client of a principal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeHistory {
    all: Sums,
    /// Those of a principal have the client 0 in place of one.
    parties: BTreeMap<(u64, u64), Kept>,
    n_added: u64,
    contexts: Contexts,
}

/// Counts of the recent sessions, and of those that said what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Contexts {
    n_sessions: f64,
    n_with: f64,
}

impl SizeHistory {
    /// Adds a session that is over: what lists of each size would have meant for it.
    pub fn add(&mut self, party: Party, outcome: &TrialOutcome) {
        self.each(party, |sums| sums.add(outcome));
    }

    /// Adds whether a session that is over said what it does.
    pub fn add_context(&mut self, has_context: bool) {
        let Contexts { n_sessions, n_with } = &mut self.contexts;
        *n_sessions = *n_sessions * DECAY + 1.0;
        *n_with = *n_with * DECAY + f64::from(u8::from(has_context));
    }

    /// Adds how a session met what its list left out.
    pub fn add_need(&mut self, party: Party, need: HiddenNeed) {
        let whole = |value: f64| {
            if value.is_finite() {
                value.clamp(0.0, 1.0)
            } else {
                0.0
            }
        };
        let need = HiddenNeed {
            expected: whole(need.expected),
            sought: whole(need.sought),
        };
        self.each(party, |sums| sums.add_need(need));
    }

    fn each(&mut self, party: Party, add: impl Fn(&mut Sums)) {
        add(&mut self.all);
        self.n_added += 1;
        let last = self.n_added;
        for key in [party.of_principal(), party.of_client()] {
            let kept = self.parties.entry(key).or_default();
            kept.last = last;
            add(&mut kept.sums);
        }
        if self.parties.len() > MAX_PARTIES {
            let mut ages: Vec<u64> = self.parties.values().map(|kept| kept.last).collect();
            let (_, oldest, _) = ages.select_nth_unstable(MAX_PARTIES / 10);
            let oldest = *oldest;
            self.parties.retain(|_, kept| kept.last > oldest);
        }
    }

    /// Returns the expectation of a session of a client, or of any client of its principal
    /// where `is_shared`. `shape` is assumed before anything is known.
    #[must_use]
    pub fn outlook(&self, party: Party, is_shared: bool, shape: &SessionShape) -> SessionOutlook {
        let sums = |key| self.parties.get(&key).map(|kept| kept.sums);
        let of_principal = sums(party.of_principal()).unwrap_or_default();
        let of_client = sums(party.of_client()).filter(|_| !is_shared);
        let levels = [
            (N_ASSUMED, Some(self.all)),
            (N_OF_ALL, Some(of_principal)),
            (N_OF_PRINCIPAL, of_client),
        ];
        let mut outlook = assumed(shape);
        outlook.n_sessions = self.all.n_sessions;
        for (n_wider, sums) in levels {
            let Some(sums) = sums else {
                continue;
            };
            let sought = sums.sought + N_WIDER_NEEDS * outlook.seeks;
            outlook.seeks = (sought / (sums.needed + N_WIDER_NEEDS)).clamp(0.0, 1.0);
            let mean = |sum: f64, told: f64, wider: f64| {
                (told * sum + n_wider * wider) / (told * sums.n_sessions + n_wider)
            };
            outlook.n_calls = mean(sums.n_calls, 1.0, outlook.n_calls);
            // Who does not look for hidden tools does not call them: such sessions do not tell what
            // they lacked, and those of others count more.
            let told = outlook.seeks;
            for at in 0..LIST_SIZES.len() {
                outlook.searches[at] = mean(sums.searches[at], told, outlook.searches[at]);
                outlook.loads[at] = mean(sums.loads[at], told, outlook.loads[at]);
                outlook.needs[at] = mean(sums.needs[at], told, outlook.needs[at]);
            }
        }
        outlook
    }

    /// Returns the share of the needed hidden tools that clients looked for, of everybody: from 0
    /// to 1; `None` where none was needed yet.
    #[must_use]
    pub fn share_sought(&self) -> Option<f64> {
        let Sums { needed, sought, .. } = self.all;
        (needed >= 1.0).then(|| (sought / needed).clamp(0.0, 1.0))
    }

    /// Returns whether predictions were taught what texts mean: most of the recent sessions said what
    /// they do.
    #[must_use]
    pub fn knows_texts(&self) -> bool {
        let Contexts { n_sessions, n_with } = self.contexts;
        n_with >= LEAST_CONTEXTS && n_with >= LEAST_CONTEXT_SHARE * n_sessions
    }
}

/// Returns the assumptions about a session while nothing is known.
fn assumed(shape: &SessionShape) -> SessionOutlook {
    let searches = LIST_SIZES.map(|size| {
        let times = 20.0 / f64::from(u32::try_from(size).unwrap_or(u32::MAX));
        SEARCHES_AT_20 * times.powf(SEARCHES_FALL)
    });
    SessionOutlook {
        n_sessions: 0.0,
        n_calls: shape.n_calls,
        searches,
        // Each loads half as many tools.
        loads: searches.map(|n| 1.5 * n),
        needs: searches,
        seeks: 1.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::listing::{CatalogSize, Finding, ListPrices, ListSize};
    use crate::principal::Principal;

    fn party(principal: &str, client: &str) -> Party {
        Party::new(&Principal::named(principal), client)
    }

    fn session(n_calls: u32, searches: [u32; 5]) -> TrialOutcome {
        TrialOutcome {
            n_calls,
            searches,
            loads: searches,
            needs: searches.map(f64::from),
        }
    }

    fn outlook(history: &SizeHistory, party: Party) -> SessionOutlook {
        history.outlook(party, false, &SessionShape::TYPICAL)
    }

    fn size(outlook: &SessionOutlook) -> ListSize {
        let catalog = CatalogSize {
            n_tools: 500,
            tokens: 100_000.0,
        };
        ListPrices::default().best_size(&catalog, outlook, Finding::ProxySearch)
    }

    #[test]
    fn a_client_has_the_size_that_its_own_sessions_needed() {
        let mut history = SizeHistory::default();
        let (plain, broad) = (party("p", "plain"), party("p", "broad"));
        assert!(!outlook(&history, plain).is_learned());
        for _ in 0..40 {
            history.add(plain, &session(10, [0; 5]));
            history.add(broad, &session(10, [9, 7, 5, 3, 0]));
        }
        // Those of others count a little, too.
        assert_eq!(size(&outlook(&history, plain)), ListSize::Tools(10));
        assert_eq!(size(&outlook(&history, broad)), ListSize::Tools(80));
        // Somebody new begins with what all need.
        let new = outlook(&history, party("q", "new"));
        assert!(new.is_learned() && new.searches[0] > 3.0 && new.searches[0] < 6.0);
        let shared = history.outlook(broad, true, &SessionShape::TYPICAL);
        assert!((shared.searches[0] - 4.5).abs() < 0.5, "{shared:?}");
    }

    #[test]
    fn a_client_that_never_looks_for_hidden_tools_is_known_after_eight_of_them() {
        let mut history = SizeHistory::default();
        let (blind, seeing) = (party("p", "blind"), party("p", "seeing"));
        for _ in 0..8 {
            let expected = 1.0;
            history.add_need(
                blind,
                HiddenNeed {
                    expected,
                    sought: 0.0,
                },
            );
            history.add_need(
                seeing,
                HiddenNeed {
                    expected,
                    sought: 1.0,
                },
            );
        }
        assert!(outlook(&history, blind).seeks < 0.25);
        assert!(outlook(&history, seeing).seeks > 0.8);
        let odd = HiddenNeed {
            expected: f64::NAN,
            sought: f64::INFINITY,
        };
        history.add_need(seeing, odd);
        assert!(outlook(&history, seeing).seeks <= 1.0);
    }

    #[test]
    fn a_client_that_never_looks_for_hidden_tools_has_longer_lists() {
        let mut history = SizeHistory::default();
        let (blind, seeing) = (party("p", "blind"), party("p", "seeing"));
        for n in 0..40 {
            // One session in five needs a tool that only a list of 20 has.
            let missed = u32::from(n % 5 == 0);
            let needed = session(10, [1 + missed, missed, 0, 0, 0]);
            history.add(seeing, &needed);
            let mut silent = session(10, [0; 5]);
            silent.needs = needed.needs;
            history.add(blind, &silent);
            let expected = 0.5;
            history.add_need(
                seeing,
                HiddenNeed {
                    expected,
                    sought: 1.0,
                },
            );
            history.add_need(
                blind,
                HiddenNeed {
                    expected,
                    sought: 0.0,
                },
            );
        }
        assert_eq!(size(&outlook(&history, seeing)), ListSize::Tools(10));
        assert_eq!(size(&outlook(&history, blind)), ListSize::Tools(20));
    }

    #[test]
    fn texts_are_known_once_most_sessions_have_one() {
        let mut history = SizeHistory::default();
        for _ in 0..9 {
            history.add_context(true);
        }
        assert!(history.knows_texts());
        for _ in 0..9 {
            history.add_context(false);
        }
        assert!(!history.knows_texts());
    }

    #[test]
    fn parties_beyond_the_most_are_forgotten_the_oldest_first() {
        let mut history = SizeHistory::default();
        for n in 0..MAX_PARTIES {
            history.add(party(&format!("p{n}"), "c"), &session(1, [1; 5]));
        }
        assert!(history.parties.len() <= MAX_PARTIES);
        let newest = party(&format!("p{}", MAX_PARTIES - 1), "c");
        assert!(history.parties.contains_key(&newest.of_client()));
    }

    proptest! {
        #[test]
        fn an_outlook_is_finite_and_lies_between_what_was_seen(
            sessions in proptest::collection::vec((0..3_u8, 1..200_u32, 0..20_u32), 0..60),
        ) {
            let mut history = SizeHistory::default();
            for (client, n_calls, n) in sessions {
                let searches = [n, n / 2, n / 3, n / 4, n / 5];
                history.add(party("p", &client.to_string()), &session(n_calls, searches));
            }
            let outlook = outlook(&history, party("p", "1"));
            prop_assert!(outlook.n_calls.is_finite() && outlook.n_calls > 0.0);
            prop_assert!(outlook.searches.is_sorted_by(|a, b| a >= b));
            prop_assert!(outlook.searches[0] <= 20.0 && (0.0..=1.0).contains(&outlook.seeks));
        }
    }
}
