//! The instruments for counting events.

mod escalation;
mod recommendations;
mod work;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};
use riglm_domain::id::UpstreamName;
use riglm_domain::intent::ContextShift;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::safeguards::limiter::LimitScope;
use riglm_domain::usage::invocation::ToolSource;
use riglm_ports::observer::{
    CallLimit, Event, ListShownEvent, RequestEndedEvent, ResourceLimit, ToolCalledEvent,
};

use self::escalation::EscalationInstruments;
use self::recommendations::RecommendationInstruments;
use self::work::WorkSessionInstruments;
use super::labels::Labels;

/// The bucket bounds of latencies in seconds, from the overhead of the proxy to slow tools.
const SECONDS: [f64; 15] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0,
    60.0,
];
/// The bucket bounds of the overhead of the proxy, in seconds.
const OWN_SECONDS: [f64; 10] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0,
];
const TOOLS: [f64; 10] = [
    5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0, 1_000.0,
];

pub(super) struct Instruments {
    labels: Labels,
    requests: Counter<u64>,
    request_duration: Histogram<f64>,
    proxy_duration: Histogram<f64>,
    tool_calls: Counter<u64>,
    tool_duration: Counter<f64>,
    calls_by_source: Counter<u64>,
    sessions_opened: Counter<u64>,
    sessions_closed: Counter<u64>,
    lists_shown: Counter<u64>,
    list_tools: Histogram<u64>,
    list_tools_available: Histogram<u64>,
    list_tokens_shown: Counter<u64>,
    list_tokens_saved: Counter<u64>,
    list_changes: Counter<u64>,
    searches: Counter<u64>,
    search_duration: Histogram<f64>,
    predicted_calls: Counter<u64>,
    covered_calls: Counter<u64>,
    predicted_mass: Counter<f64>,
    escalation: EscalationInstruments,
    recommendations: RecommendationInstruments,
    work: WorkSessionInstruments,
    budget_short: Counter<u64>,
    limits_reached: Counter<u64>,
    calls_limited: Counter<u64>,
    upstream_changes: Counter<u64>,
    context_shifts: Counter<u64>,
    override_changes: Counter<u64>,
    tool_changes_held: Counter<u64>,
    config_version: Gauge<u64>,
}

impl Instruments {
    /// Returns instruments with all counts at zero. Series with few labels exist from the start
    /// with zeros, so that a first event is visible as an increase.
    pub(super) fn new(meter: &Meter) -> Self {
        let instruments = Self::without_series(meter);
        instruments.create_series();
        instruments
    }

    #[expect(clippy::too_many_lines, reason = "it is a list of what there is")]
    fn without_series(meter: &Meter) -> Self {
        let counter = |name: &'static str, text: &'static str| {
            meter.u64_counter(name).with_description(text).build()
        };
        let seconds = |name: &'static str, text: &'static str, bounds: &[f64]| {
            let histogram = meter.f64_histogram(name).with_description(text);
            let histogram = histogram.with_unit("s").with_boundaries(bounds.to_vec());
            histogram.build()
        };
        let tools = |name: &'static str, text: &'static str| {
            let histogram = meter.u64_histogram(name).with_description(text);
            histogram.with_boundaries(TOOLS.to_vec()).build()
        };
        let amount =
            |name: &'static str, text: &'static str| meter.f64_counter(name).with_description(text);
        Self {
            labels: Labels::new(),
            requests: counter("riglm_requests", "Requests of clients that ended."),
            request_duration: seconds(
                "riglm_request_duration",
                "Time from the receipt of a request until its answer was sent.",
                &SECONDS,
            ),
            proxy_duration: seconds(
                "riglm_proxy_duration",
                "Part of the request duration that was not spent at an upstream.",
                &OWN_SECONDS,
            ),
            tool_calls: counter(
                "riglm_tool_calls",
                "Tool calls that were sent to an upstream.",
            ),
            tool_duration: amount(
                "riglm_tool_call_duration",
                "Total time that upstreams took for the calls of a tool.",
            )
            .with_unit("s")
            .build(),
            calls_by_source: counter(
                "riglm_tool_calls_by_source",
                "Tool calls by where the client found the tool: its list, a search, or neither.",
            ),
            sessions_opened: counter("riglm_sessions_opened", "Sessions opened."),
            sessions_closed: counter("riglm_sessions_closed", "Sessions ended."),
            lists_shown: counter(
                "riglm_lists_shown",
                "Tool lists that differ from the list that the session had before.",
            ),
            list_tools: tools("riglm_list_tools", "Number of tools in such a list."),
            list_tools_available: tools(
                "riglm_list_tools_available",
                "Number of tools in the catalog at that time.",
            ),
            list_tokens_shown: counter(
                "riglm_list_tokens_shown",
                "Tokens of the definitions in such lists.",
            ),
            list_tokens_saved: counter(
                "riglm_list_tokens_saved",
                "Tokens of the definitions that such lists hide.",
            ),
            list_changes: counter(
                "riglm_list_changes_told",
                "Notifications to clients that their list changed.",
            ),
            searches: counter("riglm_searches", "Searches for tools."),
            search_duration: seconds("riglm_search_duration", "Duration of searches.", &SECONDS),
            predicted_calls: counter(
                "riglm_prediction_calls",
                "Tool calls by clients whose list was selected by a prediction.",
            ),
            covered_calls: counter(
                "riglm_prediction_covered_calls",
                "The calls of riglm_prediction_calls whose tool was in the list.",
            ),
            predicted_mass: amount(
                "riglm_prediction_mass",
                "Predicted probability of the tools in the list, summed over \
                 riglm_prediction_calls.",
            )
            .build(),
            escalation: EscalationInstruments::new(meter),
            recommendations: RecommendationInstruments::new(meter),
            work: WorkSessionInstruments::new(meter),
            budget_short: counter(
                "riglm_list_budget_short",
                "Selections that filtering.token_budget cut.",
            ),
            limits_reached: counter(
                "riglm_limits_reached",
                "Refusals because a limit was reached.",
            ),
            calls_limited: counter(
                "riglm_calls_limited",
                "Tool calls that were refused because of section safeguards.limits.",
            ),
            upstream_changes: counter(
                "riglm_upstream_changes",
                "Changes of an upstream between available and unavailable.",
            ),
            context_shifts: counter(
                "riglm_context_shifts",
                "Changes of the task of a session, by cause.",
            ),
            override_changes: counter("riglm_override_changes", "Changes of overrides."),
            tool_changes_held: counter(
                "riglm_tool_changes_held",
                "Changes of tools that are held back until approval.",
            ),
            config_version: meter
                .u64_gauge("riglm_config_version")
                .with_description("Number of configurations taken into use since the start.")
                .build(),
        }
    }

    fn create_series(&self) {
        let alone = [
            &self.list_changes,
            &self.predicted_calls,
            &self.covered_calls,
            &self.budget_short,
            &self.override_changes,
        ];
        for counter in alone {
            counter.add(0, &[]);
        }
        self.predicted_mass.add(0.0, &[]);
        self.escalation.create_series();
        self.recommendations.create_series();
        self.work.create_series();
        self.config_version.record(0, &[]);
        for limit in ResourceLimit::ALL {
            let limit = KeyValue::new("limit", limit.as_str());
            self.limits_reached.add(0, &[limit]);
        }
        for shift in ContextShift::ALL {
            let cause = KeyValue::new("cause", shift.as_str());
            self.context_shifts.add(0, &[cause]);
        }
        for &limit in CallLimit::ALL {
            for scope in limit.scopes() {
                self.calls_limited.add(0, &of_limit(limit, *scope));
            }
        }
        for transport in Transport::ALL {
            let transport = KeyValue::new("transport", transport.as_str());
            self.sessions_opened
                .add(0, std::slice::from_ref(&transport));
            self.sessions_closed.add(0, &[transport]);
        }
        for source in [ToolSource::Shown, ToolSource::Found, ToolSource::Hidden] {
            for is_first_use in [true, false] {
                self.calls_by_source.add(0, &of_call(source, is_first_use));
            }
        }
        for &quality in SearchQuality::ALL {
            for is_repeated in [true, false] {
                self.searches.add(0, &of_search(quality, is_repeated));
            }
        }
    }

    /// Creates the series of an upstream with zeros.
    pub(super) fn register_upstream(&self, upstream: &UpstreamName) {
        for is_available in [true, false] {
            let labels = self.of_upstream(upstream, is_available);
            self.upstream_changes.add(0, &labels);
        }
        let labels = self.of_upstream(upstream, true);
        self.tool_changes_held.add(0, &labels[..1]);
    }

    fn of_upstream(&self, upstream: &UpstreamName, is_available: bool) -> [KeyValue; 2] {
        [
            KeyValue::new("upstream", self.labels.upstream(Some(upstream))),
            KeyValue::new("available", is_available),
        ]
    }

    pub(super) fn count(&self, event: &Event<'_>) {
        match event {
            Event::SessionOpened { transport } => {
                let transport = KeyValue::new("transport", transport.as_str());
                self.sessions_opened.add(1, &[transport]);
            }
            // A session was counted when it was opened, and a gauge has the state of the pause.
            Event::SessionIntroduced { .. } | Event::PauseChanged { .. } => {}
            Event::SessionClosed { transport } => {
                let transport = KeyValue::new("transport", transport.as_str());
                self.sessions_closed.add(1, &[transport]);
            }
            Event::RequestEnded(request) => self.request_ended(request),
            Event::ToolCalled(call) => self.tool_called(call),
            Event::ToolsSeen { upstream, tools } => self.labels.register_tools(upstream, tools),
            Event::ListShown(list) => self.list_shown(list),
            Event::ListChangeTold => self.list_changes.add(1, &[]),
            Event::Searched {
                quality,
                is_repeated,
                took,
                ..
            } => {
                self.searches.add(1, &of_search(*quality, *is_repeated));
                self.search_duration.record(took.as_secs_f64(), &[]);
            }
            Event::SearchCurated | Event::SearchExpanded { .. } | Event::ModelAsked(_) => {
                self.escalation.count(event);
            }
            Event::Recommended { .. }
            | Event::RecommendationFollowed { .. }
            | Event::RecommendedCalled { .. }
            | Event::ToolRated { .. }
            | Event::FeedbackRefused => self.recommendations.count(event),
            Event::Budget(event) => self.work.count_budget(*event),
            Event::DiminishingReturns(event) => self.work.count_searches(event),
            Event::BudgetShort => self.budget_short.add(1, &[]),
            Event::LimitReached(limit) => {
                let limit = KeyValue::new("limit", limit.as_str());
                self.limits_reached.add(1, &[limit]);
            }
            Event::CallLimited { limit, scope } => {
                self.calls_limited.add(1, &of_limit(*limit, *scope));
            }
            Event::UpstreamChanged {
                upstream,
                is_available,
            } => {
                let labels = self.of_upstream(upstream, *is_available);
                self.upstream_changes.add(1, &labels);
            }
            Event::ContextShifted(shift) => {
                let cause = KeyValue::new("cause", shift.as_str());
                self.context_shifts.add(1, &[cause]);
            }
            Event::OverrideChanged => self.override_changes.add(1, &[]),
            Event::ChangeHeld { upstream, .. } => {
                let labels = self.of_upstream(upstream, true);
                self.tool_changes_held.add(1, &labels[..1]);
            }
            Event::ConfigChanged { version } => self.config_version.record(*version, &[]),
        }
    }

    fn request_ended(&self, request: &RequestEndedEvent<'_>) {
        let labels = [
            KeyValue::new("method", request.method),
            KeyValue::new("upstream", self.labels.upstream(request.upstream)),
            KeyValue::new("outcome", request.outcome.as_str()),
        ];
        self.requests.add(1, &labels);
        self.request_duration
            .record(request.took.as_secs_f64(), &labels);
        if let Some(with_upstream) = request.with_upstream {
            let own = request.took.saturating_sub(with_upstream);
            self.proxy_duration.record(own.as_secs_f64(), &labels[..1]);
        }
        if let (Some(upstream), Some(tool)) = (request.upstream, request.tool) {
            let [_, of_upstream, outcome] = labels;
            let tool = KeyValue::new("tool", self.labels.tool(upstream, tool));
            let labels = [of_upstream, tool, outcome];
            self.tool_calls.add(1, &labels);
            self.tool_duration
                .add(seconds(request.duration), &labels[..2]);
        }
    }

    fn tool_called(&self, call: &ToolCalledEvent<'_>) {
        self.calls_by_source
            .add(1, &of_call(call.source, call.is_first_use));
        // One sum that is no number would spoil the counter for good.
        if let Some(mass) = call.predicted_mass.filter(|mass| mass.is_finite()) {
            self.predicted_calls.add(1, &[]);
            self.predicted_mass.add(mass, &[]);
            self.covered_calls.add(u64::from(call.is_shown()), &[]);
        }
    }

    fn list_shown(&self, list: &ListShownEvent<'_>) {
        let policy = KeyValue::new("policy", list.policy.to_owned());
        let labels = [policy, KeyValue::new("mode", list.mode.as_str())];
        self.lists_shown.add(1, &labels);
        self.list_tools
            .record(histogram_value(list.n_shown as u64), &labels[..1]);
        self.list_tools_available
            .record(histogram_value(list.n_available as u64), &[]);
        self.list_tokens_shown.add(list.shown_tokens, &labels[..1]);
        let saved = list.available_tokens.saturating_sub(list.shown_tokens);
        self.list_tokens_saved.add(saved, &labels[..1]);
    }
}

fn of_call(source: ToolSource, is_first_use: bool) -> [KeyValue; 2] {
    [
        KeyValue::new("source", source.as_str()),
        KeyValue::new("first_use", is_first_use),
    ]
}

fn of_search(quality: SearchQuality, is_repeated: bool) -> [KeyValue; 2] {
    [
        KeyValue::new("quality", quality.as_str()),
        KeyValue::new("repeated", is_repeated),
    ]
}

fn of_limit(limit: CallLimit, scope: LimitScope) -> [KeyValue; 2] {
    [
        KeyValue::new("limit", limit.as_str()),
        KeyValue::new("scope", scope.as_str()),
    ]
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// The largest number in a histogram. Its sum takes more records of it than a process can make.
const MAX_RECORDED: u64 = 1 << 32;

/// Returns the number for a histogram, whose sum must not overflow.
fn histogram_value(number: u64) -> u64 {
    number.min(MAX_RECORDED)
}
