//! The part of an answer that shows predicted tools, after the matches.

use std::borrow::Cow;

use riglm_domain::retrieval::ToolText;
use riglm_ports::token_counter::TokenCounter;
use serde::Serialize;
use serde_json::value::RawValue;

use super::schema::input_schema;
use super::token_room::TokenRoom;
use super::{AnswerRules, Detail, FoundTool, entry, plain};

/// A tool that the session is likely to need next.
#[derive(Debug)]
pub(in crate::search) struct PredictedTool<'a> {
    /// The name by which the client calls the tool.
    pub(in crate::search) name: &'a str,
    pub(in crate::search) text: &'a ToolText,
    /// JSON text of the definition.
    pub(in crate::search) definition: &'a str,
    /// The explanation. May be empty.
    pub(in crate::search) reason: &'a str,
}

impl<'a> PredictedTool<'a> {
    fn as_found(&self) -> FoundTool<'a> {
        FoundTool {
            name: self.name,
            text: self.text,
            definition: self.definition,
            score: 0.0,
            same: Vec::new(),
        }
    }
}

/// A predicted tool in the structured content.
#[derive(Debug, Serialize)]
pub(super) struct NextMatch<'a> {
    name: &'a str,
    description: Cow<'a, str>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Box<RawValue>>,
}

/// The entries of predicted tools that fit into the budget.
#[derive(Debug, Default)]
pub(super) struct NextDraft<'a> {
    pub(super) text: String,
    pub(super) matches: Vec<NextMatch<'a>>,
    /// Indexes of the shown tools among the predicted ones.
    pub(super) shown: Vec<usize>,
}

impl<'a> NextDraft<'a> {
    const HEADING: &'static str = "Probably needed next:\n";

    /// Writes entries into the budget that the text before them leaves.
    pub(super) fn new(
        predicted: &'a [PredictedTool<'a>],
        before: &str,
        rules: &AnswerRules,
        counter: &dyn TokenCounter,
    ) -> Self {
        let mut draft = Self::default();
        if predicted.is_empty() {
            return draft;
        }
        let mut room = TokenRoom::new(rules.token_budget, counter);
        room.used = counter.count(&format!("{before}{}", Self::HEADING));
        for (at, tool) in predicted.iter().enumerate() {
            let place = draft.shown.len() + 1;
            let schema = input_schema(tool.definition, room.max_bytes());
            let as_found = tool.as_found();
            let fitting = [Detail::Schema, Detail::Signature, Detail::Name].into_iter();
            let fitting = fitting
                .filter_map(|detail| {
                    let mut entry = entry(place, &as_found, detail, schema.as_deref())?;
                    if detail.has_summary() && !tool.reason.is_empty() {
                        entry.push_str("   why: ");
                        entry.push_str(&plain(tool.reason));
                        entry.push('\n');
                    }
                    Some((detail, entry))
                })
                .find(|(_, entry)| room.reserve(entry));
            if let Some((detail, entry)) = fitting {
                draft.text.push_str(&entry);
                draft.matches.push(NextMatch {
                    name: tool.name,
                    description: detail.summary_of(tool.text),
                    reason: tool.reason,
                    input_schema: schema.filter(|_| detail == Detail::Schema),
                });
                draft.shown.push(at);
            }
        }
        if !draft.text.is_empty() {
            draft.text.insert_str(0, Self::HEADING);
        }
        draft
    }
}
