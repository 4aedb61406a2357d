//! Predictions for lists: the learned predictor, asked in the terms of a list request.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::SessionId;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::prediction::{ClientKey, Explanation};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::{ExpectedCoverage, SessionOutlook, SessionShape, SizeHistory};
use riglm_domain::usage::invocation::SessionKey;

use super::list_request::ListRequest;
use riglm_discovery::learning::{
    Intent, LivePredictions, NextTool, NextTools, Prediction, SessionView,
};
use riglm_discovery::search::Catalog;

/// The predictor of the next tools of a list request. Without learning it predicts nothing.
#[derive(Clone, Debug)]
pub(super) struct ListPredictor(LivePredictions);

impl ListPredictor {
    pub(super) fn new(predictions: LivePredictions) -> Self {
        Self(predictions)
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.are_on()
    }

    /// Returns whether anything was learned that applies to the principal of a request.
    pub(super) fn has_learned(&self, request: &ListRequest<'_>) -> bool {
        let next_tools = self.0.get();
        next_tools.is_some_and(|next| next.has_learned(request.principal))
    }

    /// Returns the prediction of the next tools; `None` if the predictor failed or is missing.
    pub(super) fn predict(
        &self,
        request: &ListRequest<'_>,
        catalog: &Catalog,
    ) -> Option<Prediction> {
        let next_tools = self.0.get()?;
        let prediction = next_tools.predict(&session_view(request), &refs(catalog));
        prediction.fallback.is_none().then_some(prediction)
    }

    /// Asks the external predictor, if there is one, so that a prediction for the same request uses
    /// its scores.
    pub(super) async fn consult(&self, request: &ListRequest<'_>, catalog: &Catalog) {
        let next_tools = self.0.get();
        // Without an external predictor, the tools must not be copied for nothing.
        if let Some(next_tools) = next_tools.filter(|next| next.advice_counts().is_some()) {
            let tools = refs(catalog);
            next_tools.consult(&session_view(request), &tools).await;
        }
    }

    /// Returns the prediction for a list that is shown, and notes the exposure to the experiment.
    pub(super) async fn predict_for_list(
        &self,
        request: &ListRequest<'_>,
        catalog: &Catalog,
    ) -> Option<Prediction> {
        self.consult(request, catalog).await;
        let prediction = self.predict(request, catalog)?;
        if let Some(next_tools) = self.0.get() {
            next_tools.record_exposure(&session_view(request));
        }
        Some(prediction)
    }

    /// Returns the explanations of the probabilities of some tools, given by their positions.
    pub(super) fn explain(
        &self,
        request: &ListRequest<'_>,
        catalog: &Catalog,
        positions: &[usize],
    ) -> Vec<Option<Explanation>> {
        let explain =
            |next: Arc<NextTools>| next.explain(&session_view(request), &refs(catalog), positions);
        self.0.get().map(explain).unwrap_or_default()
    }

    /// Returns the expected number of calls and searches of the client's session. For a shared list
    /// it is the expectation over all sessions of the principal.
    pub(super) fn outlook(
        &self,
        request: &ListRequest<'_>,
        shape: &SessionShape,
    ) -> SessionOutlook {
        let Some(next_tools) = self.0.get() else {
            let client = ClientKey::new(request.principal, request.client);
            return SizeHistory::default().outlook(client, request.era == Era::Modern, shape);
        };
        next_tools.outlook(&session_view(request), request.era == Era::Modern, shape)
    }

    /// Returns the share of each tool in the uses of earlier sessions of the client, by position.
    pub(super) fn session_use(&self, request: &ListRequest<'_>, catalog: &Catalog) -> Vec<f64> {
        let shares =
            |next: Arc<NextTools>| next.session_use(&session_view(request), &refs(catalog));
        self.0.get().map(shares).unwrap_or_default()
    }

    /// Returns whether predictions for the client use the texts of intents.
    pub(super) fn knows_texts(&self, request: &ListRequest<'_>) -> bool {
        let next_tools = self.0.get();
        next_tools.is_some_and(|next| next.knows_texts(&session_view(request)))
    }

    /// Returns the probability that a client searches for a hidden tool that it needs.
    pub(super) fn search_probability(&self, principal: &Principal, client: &str) -> Option<f64> {
        self.0.get()?.search_probability(principal, client)
    }
}

fn refs(catalog: &Catalog) -> Vec<ToolRef> {
    let tools = catalog.tools().iter();
    tools.map(|tool| tool.tool.clone()).collect()
}

/// Returns the input of a prediction for this request.
fn session_view<'a>(request: &'a ListRequest<'_>) -> SessionView<'a> {
    let (session, client) = match request.era {
        Era::Legacy => (request.session, request.client),
        Era::Modern => {
            // A shared list gets an id that no session has.
            let id = SessionId::new(jiff::Timestamp::UNIX_EPOCH, [0; 10]);
            (SessionKey::Connection(id), "")
        }
    };
    SessionView {
        session,
        principal: request.principal,
        client,
        intent: request.own_intent().map(|intent| Intent {
            text: &intent.text,
            fits: &intent.fits,
            vector: intent.vector.as_ref(),
        }),
        now: request.now,
    }
}

/// Returns the positions of predicted tools with their probabilities, in the same order.
pub(super) fn ranking(tools: &[NextTool]) -> Vec<(usize, f64)> {
    let ranked = tools.iter().map(|tool| (tool.position, tool.probability));
    ranked.collect()
}

/// Returns the summed probability of the tools at `positions`, which must be ascending; `None` if it
/// is not a probability.
pub(super) fn expected_coverage(
    ranked: &[(usize, f64)],
    positions: &[usize],
) -> Option<ExpectedCoverage> {
    let chosen = (ranked.iter()).filter(|(at, _)| positions.binary_search(at).is_ok());
    let sum: f64 = chosen.map(|(_, probability)| probability).sum();
    // Of many probabilities, the sum may be rounded to more than 1.
    ExpectedCoverage::try_from(sum.min(1.0)).ok()
}
