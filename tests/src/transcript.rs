//! Transcripts: the received messages of a run, step by step, in a comparable form.

use std::fmt::Write as _;

use crate::envelope::{Envelope, raw_at};
use crate::inbox::ReceivedMessage;
use crate::normalise::Masks;

/// The path of the subscription id in a notification. Each subscription has its own stream.
const SUBSCRIPTION: [&str; 3] = ["params", "_meta", "io.modelcontextprotocol/subscriptionId"];

/// The messages that were received in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepMessages {
    /// The name of the step.
    pub name: String,
    /// The normalised messages. See [`Transcript::add`] for their order.
    pub messages: Vec<String>,
}

/// The steps of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    steps: Vec<StepMessages>,
}

impl Transcript {
    /// Adds a step.
    ///
    /// Streams of HTTP race each other, so messages are grouped by kind, responses last. Within a
    /// group they keep the order of receipt.
    pub fn add(&mut self, name: &str, received: &[ReceivedMessage], masks: &Masks) {
        let mut messages: Vec<(String, String)> = received
            .iter()
            .map(|message| (sort_group(&message.text), masks.apply(&message.text)))
            .collect();
        messages.sort_by(|a, b| a.0.cmp(&b.0));
        self.steps.push(StepMessages {
            name: name.to_owned(),
            messages: messages.into_iter().map(|(_, text)| text).collect(),
        });
    }

    /// Returns the steps.
    pub fn steps(&self) -> &[StepMessages] {
        &self.steps
    }

    /// Returns the number of messages in all steps.
    pub fn n_messages(&self) -> usize {
        self.steps.iter().map(|step| step.messages.len()).sum()
    }

    /// Returns a description of every difference to `other`, or `None` if they are equal.
    ///
    /// For each step that differs, it shows the first message that differs, from both sides.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let mut report = String::new();
        if self.steps.len() != other.steps.len() {
            let _ = writeln!(
                report,
                "{} steps against {}",
                self.steps.len(),
                other.steps.len()
            );
        }
        for (ours, theirs) in self.steps.iter().zip(&other.steps) {
            describe(ours, theirs, &mut report);
        }
        (!report.is_empty()).then_some(report)
    }
}

fn sort_group(message: &str) -> String {
    let envelopes = Envelope::all(message);
    match envelopes.first() {
        Some(first) => match first.method() {
            Some(method) => format!(
                "0 {method} {}",
                raw_at(message, &SUBSCRIPTION).unwrap_or_default()
            ),
            None => format!("1 {}", first.id().unwrap_or_default()),
        },
        None => "2".into(),
    }
}

fn describe(expected: &StepMessages, seen: &StepMessages, report: &mut String) {
    if expected == seen {
        return;
    }
    let at = expected
        .messages
        .iter()
        .zip(&seen.messages)
        .position(|(a, b)| a != b)
        .unwrap_or(expected.messages.len().min(seen.messages.len()));
    let _ = writeln!(
        report,
        "step {:?} ({} messages against {}), message {at}:",
        expected.name,
        expected.messages.len(),
        seen.messages.len()
    );
    let nothing = "(nothing)".to_owned();
    let a = expected.messages.get(at).unwrap_or(&nothing);
    let b = seen.messages.get(at).unwrap_or(&nothing);
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let _ = writeln!(report, "  first difference at character {same}");
    let _ = writeln!(report, "  direct:  {}", window(a, same));
    let _ = writeln!(report, "  proxied: {}", window(b, same));
}

fn window(text: &str, around: usize) -> String {
    const BEFORE: usize = 160;
    const AFTER: usize = 400;
    let from = around.saturating_sub(BEFORE);
    let shown: String = text.chars().skip(from).take(BEFORE + AFTER).collect();
    if from == 0 {
        shown
    } else {
        format!(".. {shown}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Stream;

    fn received_message(text: &str) -> ReceivedMessage {
        ReceivedMessage {
            stream: Stream::Stdio,
            text: text.into(),
            event_id: None,
        }
    }

    fn transcript(texts: &[&str]) -> Transcript {
        let mut transcript = Transcript::default();
        let messages: Vec<ReceivedMessage> =
            texts.iter().map(|text| received_message(text)).collect();
        transcript.add("step", &messages, &Masks::default());
        transcript
    }

    #[test]
    fn racing_streams_make_no_difference() {
        let a = transcript(&[r#"{"method":"n/x"}"#, r#"{"id":1,"result":{}}"#]);
        let b = transcript(&[r#"{"id":1,"result":{}}"#, r#"{"method":"n/x"}"#]);
        assert_eq!(a.difference(&b), None);
    }

    #[test]
    fn another_number_form_is_a_difference() {
        let a = transcript(&[r#"{"id":1,"result":{"n":1.0}}"#]);
        let b = transcript(&[r#"{"id":1,"result":{"n":1}}"#]);
        let report = a.difference(&b).expect("1.0 is not 1");
        assert!(
            report.contains("first difference at character 23"),
            "{report}"
        );
    }

    #[test]
    fn a_lost_message_is_a_difference() {
        let a = transcript(&[r#"{"method":"n/x"}"#, r#"{"method":"n/x"}"#]);
        let b = transcript(&[r#"{"method":"n/x"}"#]);
        assert!(a.difference(&b).expect("one is lost").contains("(nothing)"));
    }
}
