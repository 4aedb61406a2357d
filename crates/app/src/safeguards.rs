//! What keeps agents from burning tokens without noticing: calls are held back, answered with what is
//! known, or told something at the end of their results, as the operator wants it.
//!
//! Nothing here blocks by itself: a pattern is noticed, a line is put at the end of a result, where it
//! costs no prompt cache, and the model decides. Only what the operator says is refused.
//!
//! Each safeguard is a module of its own; [`Safeguards`] asks them in their order.

mod budget;
mod call;
mod circles;
mod guard;
mod limits;
mod names;
mod notice;
mod repeated;
mod rest;
#[cfg(test)]
mod testing;
mod traits;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::prediction::NamePattern;
use riglm_domain::search::ScoredTool;
use riglm_domain::tool::ToolRef;
use riglm_ports::observer::Observer;
use riglm_ports::token_counter::TokenCounter;

use crate::search::Offer;

pub(crate) use budget::Budgets;
pub use budget::{BudgetOptions, BudgetPlan, OnExhausted};
pub(crate) use call::{Asker, GuardedCall, OwnKind};
pub use circles::CircleOptions;
pub(crate) use circles::Circles;
pub(crate) use guard::{Guard, Permit};
use limits::Unmatched;
pub use limits::{LimitOptions, LimitRule, Limiter, LimiterParts};
pub(crate) use limits::{LimitPermit, Whose, whole_seconds};
use names::Names;
pub use notice::NoticePlace;
pub(crate) use notice::{Notice, with_text};
pub(crate) use repeated::RepeatedCalls;
pub use repeated::RepeatedOptions;
use repeated::{Begun, Effect, Trace};
pub use rest::LongResultOptions;
pub(crate) use rest::{LongResults, Rest};
use traits::{KnownTraits, Traits};

/// After how long a silence a connection is at something else, where no work sessions are told apart:
/// as learning has it. A work session has an end of its own.
const CONNECTION_SILENCE: Duration = Duration::from_mins(10);

/// What the operator wants of safeguards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SafeguardOptions {
    /// Where notices stand.
    pub notices: NoticePlace,
    /// Whether calls that repeat another are answered with what is known; `None` for not at all.
    pub repeated: Option<RepeatedOptions>,
    /// Whether long results are cut; `None` for not at all.
    pub long_results: Option<LongResultOptions>,
    /// The budgets of tokens of work sessions; `None` for none at all.
    pub budgets: Option<BudgetOptions>,
    /// Whether it is told who searches in circles; `None` for nobody.
    pub circles: Option<CircleOptions>,
}

/// What safeguards are made of, beside what the operator wants.
#[derive(Clone, Debug)]
pub struct SafeguardParts {
    /// Counts tokens.
    pub counter: Arc<dyn TokenCounter>,
    /// Is told what happens.
    pub observer: Arc<dyn Observer>,
}

/// What becomes of a call before it goes to its tool.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It goes on.
    Goes(Permit),
    /// It is not passed on: this is the JSON text of its result.
    Known(String),
}

/// Why a call is not passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What the model is told.
    pub(crate) text: String,
}

/// The safeguards of a proxy.
#[derive(Debug)]
pub struct Safeguards {
    notices: NoticePlace,
    repeated: Option<RepeatedCalls>,
    long_results: Option<LongResults>,
    budgets: Option<Budgets>,
    circles: Option<Circles>,
    limiter: Option<Limiter>,
    known_traits: KnownTraits,
    /// The patterns of all but the limits.
    unmatched: Vec<Unmatched>,
}

impl Safeguards {
    /// Returns the safeguards that an operator wants; `None` where there are none.
    #[must_use]
    pub fn new(
        options: SafeguardOptions,
        limiter: Option<Limiter>,
        parts: &SafeguardParts,
    ) -> Option<Self> {
        let unmatched = unmatched(&options);
        let budgets = options.budgets.filter(BudgetOptions::is_any);
        let is_any = options.repeated.is_some()
            || options.long_results.is_some()
            || limiter.is_some()
            || budgets.is_some()
            || options.circles.is_some();
        let observer = || Arc::clone(&parts.observer);
        is_any.then(|| Self {
            notices: options.notices,
            repeated: options.repeated.map(RepeatedCalls::new),
            long_results: options.long_results.map(LongResults::new),
            limiter,
            budgets: budgets
                .map(|budgets| Budgets::new(budgets, Arc::clone(&parts.counter), observer())),
            circles: options
                .circles
                .map(|circles| Circles::new(circles, observer())),
            known_traits: KnownTraits::new(),
            unmatched,
        })
    }

    /// Decides whether a call goes to its tool.
    ///
    /// # Errors
    ///
    /// Returns why it does not, for the model.
    pub(crate) fn admit(&self, call: &GuardedCall<'_>) -> Result<Admission, Refusal> {
        let traits = self.traits(call);
        if let Some(budgets) = &self.budgets {
            budgets.admit(call)?;
        }
        let repeated = self.repeated.as_ref();
        let begun = repeated.map(|repeated| repeated.begin(call, traits.effect));
        let (known, trace) = match begun {
            Some(Begun::Known(result, notice)) => (Some((result, notice)), Trace::None),
            Some(Begun::Goes(trace)) => (None, trace),
            None => (None, Trace::None),
        };
        let limiter = self.limiter.as_ref().filter(|_| known.is_none());
        // Last, so that what is not passed on for another reason does not count.
        let limits = limiter.map(|limiter| limiter.admit(call, &traits.limits));
        let limits = limits.transpose()?;
        // From here on it is a call that was made, whoever answers it.
        if let Some(circles) = &self.circles {
            circles.admitted(call, traits.is_search);
        }
        Ok(match known {
            Some((known, notice)) => {
                let given = self.given(call, &traits, &known, Some(notice));
                Admission::Known(given.unwrap_or_else(|| known.to_string()))
            }
            None => Admission::Goes(Permit::new(limits, trace, traits)),
        })
    }

    /// Returns what a call holds that goes on although it was admitted when it came first.
    pub(crate) fn admit_again(&self, call: &GuardedCall<'_>) -> Permit {
        let traits = self.traits(call);
        let limiter = self.limiter.as_ref();
        let repeated = self.repeated.as_ref();
        let trace = repeated.map(|repeated| repeated.begin_again(call, traits.effect));
        let limits = limiter.map(|limiter| limiter.admit_again(call, &traits.limits));
        Permit::new(limits, trace.unwrap_or_default(), traits)
    }

    /// Returns what the tool of a call is to the safeguards.
    fn traits(&self, call: &GuardedCall<'_>) -> Arc<Traits> {
        self.known_traits.of(call, || {
            let names = Names::of_call(call);
            let limiter = self.limiter.as_ref();
            let repeated = self.repeated.as_ref();
            let circles = self.circles.as_ref();
            let long = self.long_results.as_ref();
            Traits {
                limits: limiter.map_or_else(Box::default, |it| it.rules_of(&names)),
                effect: repeated.map_or_else(Effect::default, |it| it.effect(call, &names)),
                is_search: circles.is_some_and(|it| it.is_search(call, &names)),
                is_never_cut: long.is_some_and(|it| it.excepts(&names)),
            }
        })
    }

    /// Takes note of tools that an upstream lists; `is_last` says that there are no more of it.
    pub(crate) fn tools_listed(
        &self,
        upstream: &UpstreamName,
        tools: &[ToolName],
        (is_last, n_upstreams): (bool, usize),
    ) {
        if let Some(limiter) = &self.limiter {
            limiter.listed(upstream, tools, (is_last, n_upstreams));
        }
        for patterns in &self.unmatched {
            patterns.listed(upstream, tools, (is_last, n_upstreams));
        }
    }

    /// Returns which tools of an offer were called as often as they may be, and for how long that
    /// holds.
    pub(crate) fn limited(
        &self,
        offer: &Offer,
        whose: Whose<'_>,
        at: Instant,
    ) -> HashMap<ToolRef, Duration> {
        let limiter = self.limiter.as_ref();
        limiter.map_or_else(HashMap::new, |limiter| limiter.hindered(offer, whose, at))
    }

    /// Notes what a call came to, which is JSON text.
    fn noted(&self, call: &GuardedCall<'_>, trace: &Trace, result: &str) {
        if let Some(repeated) = &self.repeated {
            repeated.ended(trace, call.at, result);
        }
        if let Some(limiter) = &self.limiter {
            limiter.ended(call, result);
        }
    }

    /// Notes that a call is over, whatever came of it.
    fn over(&self, trace: &Trace) {
        if let Some(repeated) = &self.repeated {
            repeated.over(trace);
        }
    }

    /// Returns what the client is given in place of the result of a call, which is JSON text; `None`
    /// where it is given that. `notice` is the first thing to be said of it.
    fn given(
        &self,
        call: &GuardedCall<'_>,
        traits: &Traits,
        result: &str,
        notice: Option<Notice>,
    ) -> Option<String> {
        let long = self.long_results.as_ref().filter(|_| !traits.is_never_cut);
        let cut = long.and_then(|long| long.cut(call, result));
        let given = cut.as_deref().unwrap_or(result);
        let circles = self.circles.as_ref();
        let searches = circles.and_then(|circles| circles.ended(call, traits.is_search, result));
        self.told(call, given, [notice, searches]).or(cut)
    }

    /// Returns what the client is given as the result of a call, with what there is to say of it;
    /// `None` where there is nothing.
    fn told(
        &self,
        call: &GuardedCall<'_>,
        given: &str,
        notices: [Option<Notice>; 2],
    ) -> Option<String> {
        let budgets = self.budgets.as_ref();
        let budget = budgets.and_then(|budgets| budgets.ended(call, given));
        let notices = notices.into_iter().chain([budget]);
        let notices: Vec<Notice> = notices.flatten().collect();
        notice::with_notices(given, &notices, self.notices)
    }

    /// Counts a result in which nothing can be said.
    fn counted(&self, call: &GuardedCall<'_>, result: &str) {
        if let Some(budgets) = &self.budgets {
            budgets.counted(call, result);
        }
    }

    /// Notes a search for tools that was received at a moment, and what it found, best first.
    pub(crate) fn searched(
        &self,
        search: (CallSession, Instant),
        query: &str,
        results: &[ScoredTool],
    ) {
        if let Some(circles) = &self.circles {
            circles.searched(search, query, results);
        }
    }

    /// Notes that a work session was shown a list of tools, a result as JSON text.
    pub(crate) fn listed(
        &self,
        together: CallSession,
        said: (Option<&str>, Option<u64>),
        result: &str,
    ) {
        if let Some(budgets) = &self.budgets {
            budgets.listed(together, said, result, Instant::now());
        }
    }

    /// Returns a part of a result that the client reads on in, with what there is to say of it.
    pub(crate) fn read_on(&self, call: &GuardedCall<'_>, part: String) -> String {
        self.told(call, &part, [None, None]).unwrap_or(part)
    }

    /// Returns the rest of a result that was cut, from a place on.
    pub(crate) fn rest(&self, call: &GuardedCall<'_>, handle: &str, offset: usize) -> Option<Rest> {
        self.long_results.as_ref()?.rest(call, handle, offset)
    }

    /// Returns a call that was admitted, for the time until its answer.
    pub(crate) fn guard(self: &Arc<Self>, call: &GuardedCall<'_>, permit: Permit) -> Guard {
        Guard::new(Arc::clone(self), call, permit)
    }
}

/// Returns the patterns of tools that safeguards have, by their keys in the configuration.
fn unmatched(options: &SafeguardOptions) -> Vec<Unmatched> {
    let of = |patterns: &[NamePattern], key| {
        let all = patterns.iter().cloned().enumerate();
        Unmatched::of(all.collect(), key)
    };
    let repeated = options.repeated.as_ref();
    let long = options.long_results.as_ref();
    let circles = options.circles.as_ref();
    let patterns = [
        repeated.map(|it| of(&it.tools, |_| "safeguards.result_cache.tools".into())),
        long.map(|it| of(&it.except, |_| "safeguards.long_results.except".into())),
        circles.map(|it| of(&it.tools, |_| "safeguards.searches.tools".into())),
    ];
    patterns.into_iter().flatten().collect()
}
