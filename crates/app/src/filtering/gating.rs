//! Whether somebody only reads, as they say or as it is read out of what they say: then tools that
//! may change something are kept from them where the operator wants that.

use std::sync::Arc;

use riglm_domain::intent::StatedIntent;
use riglm_domain::listing::{Access, ReadOnly, intended_access};
use riglm_domain::recommender::IntentAnalysis;
use riglm_domain::tool::ToolRef;

use super::ask::ListAsk;
use super::lists::Lists;
use super::marks::{Mark, marks};
use super::options::ListOptions;
use crate::search::OfferedTool;

impl Lists {
    /// Returns whether tools that may change something are kept from who asks.
    pub(super) fn is_gated(&self, options: &ListOptions, ask: &ListAsk<'_>) -> bool {
        let stated = ask.stated.filter(|_| options.gate_writes);
        stated.is_some_and(|stated| self.access(stated) == Some(Access::Read))
    }

    /// Returns whether calls of clients under a profile may be refused at all: what they do and who they
    /// are has to be found out of no others.
    #[must_use]
    pub fn enforces(&self, profile: Option<&str>) -> bool {
        let options = self.options_under(profile);
        options.enforce && options.gate_writes
    }

    /// Returns whether some calls by who asks are to be refused: they only read, and the operator wants
    /// that to hold.
    #[must_use]
    pub fn may_refuse(&self, ask: &ListAsk<'_>) -> bool {
        let options = self.options(ask);
        options.enforce && self.is_gated(&options, ask)
    }

    /// Returns whether a call of a tool by who asks is to be refused, because the tool may change
    /// something and they only read. A tool of which nothing is known may. A pin or an override that
    /// shows a tool lets it be called.
    #[must_use]
    pub fn refuses(
        &self,
        ask: &ListAsk<'_>,
        tool: &ToolRef,
        offered: Option<&OfferedTool>,
    ) -> bool {
        if !self.may_refuse(ask) {
            return false;
        }
        let unknown = || OfferedTool {
            name: tool.tool.as_str().to_owned(),
            tool: tool.clone(),
            definition: Arc::default(),
            is_hidden: false,
        };
        let offered = [offered.cloned().unwrap_or_else(unknown)];
        if ReadOnly::of_definition(&offered[0].definition) == ReadOnly::Yes {
            return false;
        }
        let overrides = self.overrides.load_full();
        let marks = marks((&self.options(ask), true), &overrides, ask, &offered);
        !matches!(marks.first(), Some(Mark::Pin | Mark::Include))
    }

    /// Returns how like recent calls of who asks must be to what they said that they do, so that it
    /// counts as what they do: from 0 to 1, 0 for always.
    #[must_use]
    pub fn context_shift(&self, ask: &ListAsk<'_>) -> f64 {
        self.options(ask).context_shift
    }

    /// Returns what a client wants by what it said: by its context, and where that does not say, by
    /// what it looked for. Arguments and results of calls say nothing of it: who may only read must not
    /// be let write by what somebody else wrote.
    fn access(&self, stated: &StatedIntent) -> Option<Access> {
        let of = |text: &str| {
            let analysis = IntentAnalysis::of(text, &self.words.lexicon);
            intended_access(text, &analysis)
        };
        let declared = stated.declared.as_deref().and_then(of);
        declared.or_else(|| of(&stated.sought))
    }
}
