//! History of the searches that lists of each size would have needed in earlier sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::prices::SessionShape;
use super::session_trial::TrialOutcome;
use super::size::{LIST_SIZES, SessionOutlook};
use crate::prediction::ClientKey;

/// Upper limit of the decay with each later session: half after 34 sessions. The first sessions
/// decay faster, because predictions were still poor then.
const DECAY: f64 = 0.98;
/// Weight of the initial assumptions, in sessions.
const N_ASSUMED: f64 = 5.0;
/// Assumed searches of a session with a list of 20 tools. With this number a list of 20 costs as
/// much as one of 35 tools without any search.
const SEARCHES_AT_20: f64 = 0.4;
/// Exponent of the decrease of the assumed searches with the list size.
const SEARCHES_FALL: f64 = 0.66;
/// Weight of the sessions of all principals in the estimate for one principal, in sessions.
const N_OF_ALL: f64 = 10.0;
/// Weight of the sessions of a principal in the estimate for one of its clients, in sessions.
const N_OF_PRINCIPAL: f64 = 5.0;
/// Weight of the wider estimate of `seeks`, in needed hidden tools.
const N_WIDER_NEEDS: f64 = 2.0;
/// Maximum number of principals and clients. Above it, the ones without a session for the longest
/// time are dropped.
const MAX_PARTIES: usize = 10_000;
/// Minimum number of recent sessions with a context, so that predictions have learned from texts.
const LEAST_CONTEXTS: f64 = 5.0;
/// Minimum share of recent sessions with a context, for the same reason.
const LEAST_CONTEXT_SHARE: f64 = 0.75;

/// Sums over sessions, weighted by recency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SizeSums {
    /// Number of sessions, unweighted.
    n_seen: u32,
    n_sessions: f64,
    n_calls: f64,
    searches: [f64; LIST_SIZES.len()],
    loads: [f64; LIST_SIZES.len()],
    needs: [f64; LIST_SIZES.len()],
    /// Predicted number of needed hidden tools.
    needed: f64,
    /// Number of times that the client looked for one.
    sought: f64,
}

impl SizeSums {
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

/// The need of a session for hidden tools, and whether its client looked for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HiddenNeed {
    /// Predicted probability that a hidden tool was needed.
    pub expected: f64,
    /// 1 if the client searched, called a hidden tool or used the tool for calling others; else 0.
    pub sought: f64,
}

/// Sums of a principal or one of its clients, and the time of the last addition as a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ClientSums {
    sums: SizeSums,
    last: u64,
}

/// The searches that lists of each size would have needed in earlier sessions: of all principals,
/// of each principal, and of each kind of client of a principal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeHistory {
    all: SizeSums,
    /// By principal and client. The entry of a principal itself has the client 0.
    parties: BTreeMap<(u64, u64), ClientSums>,
    n_added: u64,
    contexts: ContextShare,
}

/// Numbers of recent sessions, and of those with a context, weighted by recency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ContextShare {
    n_sessions: f64,
    n_with: f64,
}

impl SizeHistory {
    /// Adds an ended session: the outcomes of lists of each size.
    pub fn add(&mut self, party: ClientKey, outcome: &TrialOutcome) {
        self.update_sums(party, |sums| sums.add(outcome));
    }

    /// Adds whether an ended session had a context.
    pub fn add_context(&mut self, has_context: bool) {
        let ContextShare { n_sessions, n_with } = &mut self.contexts;
        *n_sessions = *n_sessions * DECAY + 1.0;
        *n_with = *n_with * DECAY + f64::from(u8::from(has_context));
    }

    /// Adds the need of an ended session for hidden tools.
    pub fn add_need(&mut self, party: ClientKey, need: HiddenNeed) {
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
        self.update_sums(party, |sums| sums.add_need(need));
    }

    fn update_sums(&mut self, party: ClientKey, add: impl Fn(&mut SizeSums)) {
        add(&mut self.all);
        self.n_added += 1;
        let last = self.n_added;
        for key in [party.of_principal(), party.of_client()] {
            let kept = self.parties.entry(key).or_default();
            kept.last = last;
            add(&mut kept.sums);
        }
        // Drops a tenth at once, so that not every later session has to.
        if self.parties.len() > MAX_PARTIES {
            let mut ages: Vec<u64> = self.parties.values().map(|kept| kept.last).collect();
            let (_, oldest, _) = ages.select_nth_unstable(MAX_PARTIES / 10);
            let oldest = *oldest;
            self.parties.retain(|_, kept| kept.last > oldest);
        }
    }

    /// Returns the expectation for a session of a client; if `is_shared`, of any client of its
    /// principal. `shape` is assumed before anything is known.
    #[must_use]
    pub fn outlook(
        &self,
        party: ClientKey,
        is_shared: bool,
        shape: &SessionShape,
    ) -> SessionOutlook {
        let sums = |key| self.parties.get(&key).map(|kept| kept.sums);
        let of_principal = sums(party.of_principal()).unwrap_or_default();
        let of_client = sums(party.of_client()).filter(|_| !is_shared);
        let levels = [
            (N_ASSUMED, Some(self.all)),
            (N_OF_ALL, Some(of_principal)),
            (N_OF_PRINCIPAL, of_client),
        ];
        let mut outlook = initial_outlook(shape);
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
            // Clients that do not look for hidden tools do not call them, so their sessions do not
            // show the missing tools. The wider estimates count more for them.
            let told = outlook.seeks;
            for at in 0..LIST_SIZES.len() {
                outlook.searches[at] = mean(sums.searches[at], told, outlook.searches[at]);
                outlook.loads[at] = mean(sums.loads[at], told, outlook.loads[at]);
                outlook.needs[at] = mean(sums.needs[at], told, outlook.needs[at]);
            }
        }
        outlook
    }

    /// Returns the share of the needed hidden tools that clients of all principals looked for, from
    /// 0 to 1; `None` before any was needed.
    #[must_use]
    pub fn seek_rate(&self) -> Option<f64> {
        let SizeSums { needed, sought, .. } = self.all;
        (needed >= 1.0).then(|| (sought / needed).clamp(0.0, 1.0))
    }

    /// Returns whether predictions have learned from texts: most of the recent sessions had a
    /// context.
    #[must_use]
    pub fn knows_texts(&self) -> bool {
        let ContextShare { n_sessions, n_with } = self.contexts;
        n_with >= LEAST_CONTEXTS && n_with >= LEAST_CONTEXT_SHARE * n_sessions
    }
}

/// Returns the assumptions about a session without any knowledge.
fn initial_outlook(shape: &SessionShape) -> SessionOutlook {
    let searches = LIST_SIZES.map(|size| {
        let times = 20.0 / f64::from(u32::try_from(size).unwrap_or(u32::MAX));
        SEARCHES_AT_20 * times.powf(SEARCHES_FALL)
    });
    SessionOutlook {
        n_sessions: 0.0,
        n_calls: shape.n_calls,
        searches,
        // Each own search loads half as many tools.
        loads: searches.map(|n| 1.5 * n),
        needs: searches,
        seeks: 1.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::privacy::principal::Principal;
    use crate::selection::{CatalogSize, HiddenToolSearch, ListPrices, ListSize};

    fn party(principal: &str, client: &str) -> ClientKey {
        ClientKey::new(&Principal::from_name(principal), client)
    }

    fn session(n_calls: u32, searches: [u32; 5]) -> TrialOutcome {
        TrialOutcome {
            n_calls,
            searches,
            loads: searches,
            needs: searches.map(f64::from),
        }
    }

    fn outlook(history: &SizeHistory, party: ClientKey) -> SessionOutlook {
        history.outlook(party, false, &SessionShape::TYPICAL)
    }

    fn size(outlook: &SessionOutlook) -> ListSize {
        let catalog = CatalogSize {
            n_tools: 500,
            tokens: 100_000.0,
        };
        ListPrices::default().best_size(&catalog, outlook, HiddenToolSearch::ProxySearch)
    }

    #[test]
    fn the_list_size_follows_the_sessions_of_the_client() {
        let mut history = SizeHistory::default();
        let (plain, broad) = (party("p", "plain"), party("p", "broad"));
        assert!(!outlook(&history, plain).is_learned());
        for _ in 0..40 {
            history.add(plain, &session(10, [0; 5]));
            history.add(broad, &session(10, [9, 7, 5, 3, 0]));
        }
        // Sessions of other clients count a little, too.
        assert_eq!(size(&outlook(&history, plain)), ListSize::Tools(10));
        assert_eq!(size(&outlook(&history, broad)), ListSize::Tools(80));
        // A new client begins with the estimate for all.
        let new = outlook(&history, party("q", "new"));
        assert!(new.is_learned() && new.searches[0] > 3.0 && new.searches[0] < 6.0);
        let shared = history.outlook(broad, true, &SessionShape::TYPICAL);
        assert!((shared.searches[0] - 4.5).abs() < 0.5, "{shared:?}");
    }

    #[test]
    fn eight_needs_identify_a_client_without_searches() {
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
    fn clients_without_searches_for_hidden_tools_have_longer_lists() {
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
    fn the_oldest_clients_beyond_the_maximum_are_forgotten() {
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
        fn an_outlook_is_finite_and_within_the_observed_range(
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
