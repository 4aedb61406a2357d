//! Rendering of recommendations as text for a model, and as JSON.

use std::fmt::Write as _;

use riglm_domain::recommendation::{Factor, Factors, IntendedAccess, IntentAnalysis};
use serde_json::{Map, Value, json};

use super::reply::{NamedNeighbour, RecommendReply, RecommendedTool};

impl RecommendReply {
    /// Renders the answer as text for a model.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (number, tool) in (1..).zip(&self.tools) {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{number}. {} ({:.2})", tool.name, tool.score);
            if !tool.description.is_empty() {
                let _ = write!(text, ": {}", tool.description);
            }
            let _ = write!(text, "\n   {}", tool.explanation);
            if let Some(workflow) = &tool.workflow {
                let _ = write!(text, " {}", usually(&workflow.steps, workflow.support));
            }
            text.push('\n');
        }
        for left_out in &self.left_out {
            let reason = left_out.reason.sentence();
            let _ = writeln!(text, "Left out: {}, because {reason}.", left_out.name);
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Renders the answer as a JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let left_out = self.left_out.iter().map(|one| {
            json!({
                "name": one.name,
                "reason": one.reason.as_str(),
                "sentence": one.reason.sentence(),
            })
        });
        json!({
            "id": self.id,
            "intent": intent(&self.intent),
            "quality": self.quality.as_str(),
            "tools": self.tools.iter().map(tool).collect::<Vec<_>>(),
            "left_out": left_out.collect::<Vec<_>>(),
            "weights": self.weights.by_name(),
            "weights_version": self.weights_version,
            "experiment": self.experiment,
            "notes": self.notes,
            "cached": self.was_cached,
        })
    }
}

/// Describes a usual sequence of steps and the number of work sessions that had it.
fn usually(steps: &[String], n_sessions: u64) -> String {
    let noun = if n_sessions == 1 {
        "session"
    } else {
        "sessions"
    };
    format!("Usually: {} (in {n_sessions} {noun}).", steps.join(" -> "))
}

fn intent(intent: &IntentAnalysis) -> Value {
    json!({
        "actions": intent.actions,
        "domains": intent.domains,
        "terms": intent.terms,
        "negated": {
            "actions": intent.negated.actions,
            "domains": intent.negated.domains,
            "terms": intent.negated.terms,
        },
        "language": intent.language.code(),
        "access": access(intent.access),
    })
}

/// Returns the published name of an intended access.
#[must_use]
pub fn access(access: IntendedAccess) -> &'static str {
    match access {
        IntendedAccess::Read => "read",
        IntendedAccess::Write => "write",
        IntendedAccess::Unknown => "unknown",
    }
}

fn tool(tool: &RecommendedTool) -> Value {
    json!({
        "name": tool.name,
        "upstream": tool.tool.upstream,
        "description": tool.description,
        "score": tool.score,
        "factors": factors(&tool.factors),
        "explanation": tool.explanation,
        "before": tool.before.iter().map(neighbour).collect::<Vec<_>>(),
        "after": tool.after.iter().map(neighbour).collect::<Vec<_>>(),
        "workflow": tool.workflow.as_ref().map(|workflow| {
            json!({ "steps": workflow.steps, "support": workflow.support })
        }),
    })
}

fn factors(factors: &Factors) -> Map<String, Value> {
    let named = Factor::ALL.iter();
    named
        .map(|factor| (factor.as_str().to_owned(), json!(factors.of(*factor))))
        .collect()
}

fn neighbour(neighbour: &NamedNeighbour) -> Value {
    json!({
        "name": neighbour.name,
        "support": neighbour.support,
        "share": neighbour.share,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_steps_are_rendered_with_their_session_count() {
        let steps = ["a", "b"].map(str::to_owned);
        assert_eq!(usually(&steps, 3), "Usually: a -> b (in 3 sessions).");
        assert_eq!(usually(&steps, 1), "Usually: a -> b (in 1 session).");
    }
}
