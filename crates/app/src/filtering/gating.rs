//! Write gating: whether a client only reads, by its declared context or by its queries. Tools that
//! may change data are then hidden from it, if the operator enabled this.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::intent::StatedIntent;
use riglm_domain::recommendation::IntentAnalysis;
use riglm_domain::selection::{Access, ReadOnlyHint, intended_access};

use super::list_request::ListRequest;
use super::lists::Lists;
use super::marks::{ToolMark, marks};
use super::options::ListOptions;
use riglm_discovery::search::CatalogTool;

impl Lists {
    /// Returns whether tools that may change data are hidden for this request.
    pub(super) fn is_gated(&self, options: &ListOptions, ask: &ListRequest<'_>) -> bool {
        let stated = ask.stated.filter(|_| options.gate_writes);
        stated.is_some_and(|stated| self.access(stated) == Some(Access::Read))
    }

    /// Returns whether calls of clients under a profile may be refused at all. Only then the intent
    /// and the identity of a client are needed.
    #[must_use]
    pub fn enforces(&self, profile: Option<&str>) -> bool {
        let options = self.options_under(profile);
        options.enforce && options.gate_writes
    }

    /// Returns whether some calls of this client are refused: the client only reads, and the
    /// operator enforces it.
    #[must_use]
    pub fn may_refuse(&self, ask: &ListRequest<'_>) -> bool {
        let options = self.options(ask);
        options.enforce && self.is_gated(&options, ask)
    }

    /// Returns whether a call is refused, because the tool may change data and the client only
    /// reads. A tool without a definition counts as one that may. A pin or an override that shows a
    /// tool permits the call.
    #[must_use]
    pub fn refuses(
        &self,
        ask: &ListRequest<'_>,
        tool: &ToolRef,
        offered: Option<&CatalogTool>,
    ) -> bool {
        if !self.may_refuse(ask) {
            return false;
        }
        let unknown = || CatalogTool {
            name: tool.tool.as_str().to_owned(),
            tool: tool.clone(),
            definition: Arc::default(),
            is_hidden: false,
        };
        let offered = [offered.cloned().unwrap_or_else(unknown)];
        if ReadOnlyHint::of_definition(&offered[0].definition) == ReadOnlyHint::Yes {
            return false;
        }
        let overrides = self.overrides.load_full();
        let marks = marks((&self.options(ask), true), &overrides, ask, &offered);
        !matches!(marks.first(), Some(ToolMark::Pin | ToolMark::Include))
    }

    /// Returns the least similarity of recent calls to the declared context at which the context
    /// still counts: from 0 to 1, 0 for always.
    #[must_use]
    pub fn context_shift(&self, ask: &ListRequest<'_>) -> f64 {
        self.options(ask).context_shift
    }

    /// Returns the access that a client asks for: by its declared context, or else by its queries.
    /// Arguments and results of calls are ignored, because a third party may have written them;
    /// their text must not unlock writing.
    fn access(&self, stated: &StatedIntent) -> Option<Access> {
        let of = |text: &str| {
            let analysis = IntentAnalysis::of(text, &self.words.lexicon);
            intended_access(text, &analysis)
        };
        let declared = stated.declared.as_deref().and_then(of);
        declared.or_else(|| of(&stated.sought))
    }
}
