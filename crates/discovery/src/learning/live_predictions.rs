//! The predictions in use, which a change of the configuration may replace.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::next_tools::NextTools;

/// The predictions of next tools that a running proxy uses. A change of the configuration may
/// replace them or switch them off. All clones share them.
#[derive(Clone, Default)]
pub struct LivePredictions(Arc<ArcSwapOption<NextTools>>);

impl LivePredictions {
    /// Returns the predictions in use; `None` while nothing is predicted.
    #[must_use]
    pub fn get(&self) -> Option<Arc<NextTools>> {
        self.0.load_full()
    }

    /// Replaces the predictions; `None` switches them off.
    pub fn set(&self, predictions: Option<Arc<NextTools>>) {
        self.0.store(predictions);
    }

    /// Returns whether anything is predicted.
    #[must_use]
    pub fn are_on(&self) -> bool {
        self.0.load().is_some()
    }
}

impl From<Arc<NextTools>> for LivePredictions {
    fn from(predictions: Arc<NextTools>) -> Self {
        Self(Arc::new(ArcSwapOption::from(Some(predictions))))
    }
}

impl fmt::Debug for LivePredictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePredictions")
            .field("are_on", &self.are_on())
            .finish()
    }
}
