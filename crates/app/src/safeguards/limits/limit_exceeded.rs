//! The limit that refuses a call, and the text for the model.

use std::fmt::Write as _;
use std::time::Duration;

use riglm_domain::prediction::NamePattern;
use riglm_domain::safeguards::limiter::{LimitScope, Rate, whole_seconds};
use riglm_ports::observer::CallLimit;

use super::LimitRule;

/// The most patterns in a text.
const MAX_PATTERNS: usize = 3;

/// The limit that refuses a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LimitExceeded {
    /// The rate limit of tools is reached.
    Rate {
        calls: usize,
        per: Duration,
        scope: LimitScope,
        tools: String,
        wait: Duration,
    },
    /// The limit of parallel calls is reached.
    Concurrent {
        max: usize,
        scope: LimitScope,
        /// The tools of the rule; `None` for all tools of the server.
        tools: Option<String>,
    },
    /// The limit of calls before the next declaration of a context is reached.
    Context { max: usize, tools: Vec<String> },
}

impl LimitExceeded {
    pub(super) fn rate(rule: &LimitRule, wait: Duration) -> Self {
        Self::Rate {
            calls: rule.rate().map_or(0, Rate::calls),
            per: rule.rate().map_or(Duration::ZERO, Rate::per),
            scope: rule.scope,
            tools: pattern_list(&rule.tools),
            wait,
        }
    }

    /// Returns the refusal by a limit of parallel calls, of a rule or else of an upstream.
    pub(super) fn concurrent(rule: Option<&LimitRule>, max: usize) -> Self {
        Self::Concurrent {
            max,
            scope: rule.map_or(LimitScope::Global, |rule| rule.scope),
            tools: rule.map(|rule| pattern_list(&rule.tools)),
        }
    }

    pub(super) fn limit(&self) -> CallLimit {
        match self {
            Self::Rate { .. } => CallLimit::Rate,
            Self::Concurrent { .. } => CallLimit::Concurrent,
            Self::Context { .. } => CallLimit::Context,
        }
    }

    pub(super) fn scope(&self) -> LimitScope {
        match self {
            Self::Rate { scope, .. } | Self::Concurrent { scope, .. } => *scope,
            Self::Context { .. } => LimitScope::Session,
        }
    }

    /// Returns the text for the model; `similar` has the names of tools that can be called instead.
    pub(super) fn text(&self, similar: &[String]) -> String {
        let mut text = "This call was not made: ".to_owned();
        // Writing to a String cannot fail.
        let _ = match self {
            Self::Rate {
                calls,
                per,
                scope,
                tools,
                wait,
            } => write!(
                text,
                "tools like {tools} may be called {calls} {} in {}{}. Try again in {} s.",
                if *calls == 1 { "time" } else { "times" },
                period(*per),
                scope_text(*scope),
                whole_seconds(*wait)
            ),
            Self::Concurrent { max, scope, tools } => {
                let tools = tools.as_ref().map_or_else(
                    || "the tools of this server".to_owned(),
                    |tools| format!("tools like {tools}"),
                );
                let shared = scope_text(*scope);
                write!(
                    text,
                    "{max} {} of {tools} may run at the same time{shared}. The limit is reached. \
                     Try again in 1 s, or when one of them has ended.",
                    if *max == 1 { "call" } else { "calls" }
                )
            }
            Self::Context { max, tools } => write!(
                text,
                "{max} {} made since the task was last declared, which is the limit. Call {} with \
                 your current task first, then repeat this call.",
                if *max == 1 { "call was" } else { "calls were" },
                tools.join(" or ")
            ),
        };
        let _ = match similar {
            [] => Ok(()),
            [one] => write!(text, " A similar tool that is free now: {one}."),
            several => write!(
                text,
                " Similar tools that are free now: {}.",
                several.join(", ")
            ),
        };
        text
    }
}

/// Returns a period in the largest unit that divides it.
fn period(per: Duration) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let whole = per.as_secs();
    let is_whole = per.subsec_nanos() == 0;
    let found = (units.into_iter()).find(|(unit, _)| is_whole && whole.is_multiple_of(*unit));
    match found {
        Some((unit, name)) if whole == unit => format!("a {name}").replace("a hour", "an hour"),
        Some((unit, name)) => format!("{} {name}s", whole / unit),
        None if per == Duration::from_secs(1) => "a second".into(),
        None => format!("{} s", per.as_secs_f64()),
    }
}

fn scope_text(scope: LimitScope) -> &'static str {
    match scope {
        LimitScope::Session => " in a session",
        LimitScope::Principal => " by all your sessions together",
        LimitScope::Global => " by all clients together",
    }
}

fn pattern_list(patterns: &[NamePattern]) -> String {
    let shown = patterns.iter().take(MAX_PATTERNS).map(NamePattern::as_str);
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if patterns.len() > MAX_PATTERNS {
        text.push_str(", ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_to_whole_seconds() {
        let ms = Duration::from_millis;
        let all = [1, 999, 1_000, 1_001, 60_000].map(|wait| whole_seconds(ms(wait)));
        assert_eq!(all, [1, 1, 1, 2, 60]);
    }

    #[test]
    fn periods_are_named_in_their_largest_unit() {
        let said = |secs| period(Duration::from_secs(secs));
        let all = [1, 60, 120, 3_600, 86_400, 90, 7_200].map(said);
        assert_eq!(
            all,
            [
                "a second",
                "a minute",
                "2 minutes",
                "an hour",
                "a day",
                "90 s",
                "2 hours"
            ]
        );
        assert_eq!(period(Duration::from_millis(1_500)), "1.5 s");
    }

    #[test]
    fn refusals_name_the_limit_and_the_remedy() {
        let patterns = ["*search*", "find_*", "web_*", "x"].map(NamePattern::new);
        let rate = LimitExceeded::Rate {
            calls: 5,
            per: Duration::from_mins(1),
            scope: LimitScope::Session,
            tools: pattern_list(&patterns),
            wait: Duration::from_millis(11_400),
        };
        assert_eq!(
            rate.text(&["notes__list".into()]),
            "This call was not made: tools like *search*, find_*, web_*, ... may be called 5 times \
             in a minute in a session. Try again in 12 s. A similar tool that is free now: \
             notes__list."
        );
        let running = LimitExceeded::Concurrent {
            max: 1,
            scope: LimitScope::Global,
            tools: None,
        };
        assert_eq!(
            running.text(&["a".into(), "b".into()]),
            "This call was not made: 1 call of the tools of this server may run at the same time by \
             all clients together. The limit is reached. Try again in 1 s, or when one of them has \
             ended. Similar tools that are free now: a, b."
        );
        let context = LimitExceeded::Context {
            max: 5,
            tools: vec!["set_context".into(), "search_tools".into()],
        };
        assert_eq!(
            context.text(&[]),
            "This call was not made: 5 calls were made since the task was last declared, which is \
             the limit. Call set_context or search_tools with your current task first, then repeat \
             this call."
        );
    }
}
