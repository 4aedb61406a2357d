//! The instruments for recommendations.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::observer::Event;

use super::SECONDS;

pub(super) struct RecommendationInstruments {
    answered: Counter<u64>,
    duration: Histogram<f64>,
    followed: Counter<u64>,
    time_to_success: Histogram<f64>,
    calls: Counter<u64>,
    ratings: Counter<u64>,
    stars: Counter<u64>,
    feedback_refused: Counter<u64>,
}

impl RecommendationInstruments {
    pub(super) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, text: &'static str| {
            meter.u64_counter(name).with_description(text).build()
        };
        let seconds = |name: &'static str, text: &'static str| {
            let histogram = meter.f64_histogram(name).with_description(text);
            let histogram = histogram.with_unit("s").with_boundaries(SECONDS.to_vec());
            histogram.build()
        };
        Self {
            answered: counter(
                "riglm_recommendations",
                "Answers of the recommender, by quality and by whether the ranking is from the \
                 cache.",
            ),
            duration: seconds(
                "riglm_recommendation_duration",
                "Duration of recommendations.",
            ),
            followed: counter(
                "riglm_recommendations_followed",
                "Recommendations with a successful call of one of their tools, by place in the \
                 ranking.",
            ),
            time_to_success: seconds(
                "riglm_recommendation_time_to_success",
                "Time from a recommendation to the end of the first successful call of one of its \
                 tools.",
            ),
            calls: counter(
                "riglm_recommended_calls",
                "Calls of tools that were recommended shortly before.",
            ),
            ratings: counter("riglm_tool_ratings", "Ratings of tools."),
            stars: counter(
                "riglm_tool_rating_stars",
                "Sum of the stars of all ratings.",
            ),
            feedback_refused: counter(
                "riglm_feedback_refused",
                "Ratings that were refused because the tool was not offered to the session.",
            ),
        }
    }

    // Creates all series with zeros.
    pub(super) fn create_series(&self) {
        for &quality in SearchQuality::ALL {
            for is_cached in [false, true] {
                self.answered.add(0, &of_answer(quality, is_cached));
            }
        }
        for place in [0, 1, 3] {
            self.followed.add(0, &[of_place(place)]);
        }
        for &outcome in Outcome::ALL {
            self.calls.add(0, &[of_outcome(outcome)]);
        }
        for counter in [&self.ratings, &self.stars, &self.feedback_refused] {
            counter.add(0, &[]);
        }
    }

    /// Counts an event of recommendations; ignores other events.
    pub(super) fn count(&self, event: &Event<'_>) {
        match event {
            Event::Recommended {
                quality,
                is_cached,
                took,
                ..
            } => {
                self.answered.add(1, &of_answer(*quality, *is_cached));
                self.duration.record(took.as_secs_f64(), &[]);
            }
            Event::RecommendationFollowed { place, took } => {
                self.followed.add(1, &[of_place(*place)]);
                self.time_to_success.record(took.as_secs_f64(), &[]);
            }
            Event::RecommendedCalled { outcome } => self.calls.add(1, &[of_outcome(*outcome)]),
            Event::ToolRated { stars } => {
                self.ratings.add(1, &[]);
                self.stars.add(u64::from(*stars), &[]);
            }
            Event::FeedbackRefused => self.feedback_refused.add(1, &[]),
            _ => {}
        }
    }
}

fn of_answer(quality: SearchQuality, is_cached: bool) -> [KeyValue; 2] {
    [
        KeyValue::new("quality", quality.as_str()),
        KeyValue::new("cached", is_cached),
    ]
}

fn of_place(place: usize) -> KeyValue {
    let place = match place {
        0 => "first",
        1 | 2 => "first_three",
        _ => "later",
    };
    KeyValue::new("place", place)
}

fn of_outcome(outcome: Outcome) -> KeyValue {
    KeyValue::new("outcome", outcome.as_str())
}
