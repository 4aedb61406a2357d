//! What becomes of values in rows: times are kept to the microsecond, counts as signed 64-bit
//! integers.

use jiff::Timestamp;
use riglm_domain::audit::AuditEntry;
use riglm_domain::context::Context;
use riglm_domain::exchange::Exchange;
use riglm_domain::experiment::{Assignment, ExperimentStop};
use riglm_domain::feedback::Feedback;
use riglm_domain::invocation::{CallTokens, Invocation, InvocationEnd};
use riglm_domain::learned_state::Snapshot;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::{ListShown, SelectionDetails};
use riglm_domain::recommendation::Recommendation;
use riglm_domain::search::Search;
use riglm_domain::session::Session;
use riglm_domain::tool_approval::ToolApproval;
use riglm_domain::tool_override::ToolOverride;
use riglm_domain::weights::WeightVersion;
use riglm_domain::work_session::WorkSession;

/// Something that is kept in a row.
pub(super) trait Stored {
    /// Returns it as it is read back.
    fn stored(&self) -> Self;
}

/// Returns a moment as it is read back.
pub(super) fn micros(moment: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(moment.as_microsecond()).unwrap_or(moment)
}

fn count(n: u64) -> u64 {
    n.min(i64::MAX.unsigned_abs())
}

impl Stored for Session {
    fn stored(&self) -> Self {
        Self {
            started_at: micros(self.started_at),
            ..self.clone()
        }
    }
}

impl Stored for Invocation {
    fn stored(&self) -> Self {
        Self {
            started_at: micros(self.started_at),
            sequence: count(self.sequence),
            request_bytes: count(self.request_bytes),
            list_epoch: self.list_epoch.map(count),
            ..self.clone()
        }
    }
}

impl Stored for InvocationEnd {
    fn stored(&self) -> Self {
        Self {
            duration_us: count(self.duration_us),
            wait_us: count(self.wait_us),
            response_bytes: count(self.response_bytes),
            ..self.clone()
        }
    }
}

impl Stored for CallTokens {
    fn stored(&self) -> Self {
        Self {
            id: self.id,
            request: self.request.map(count),
            response: self.response.map(count),
        }
    }
}

impl Stored for Exchange {
    fn stored(&self) -> Self {
        Self {
            started_at: micros(self.started_at),
            duration_us: count(self.duration_us),
            ..self.clone()
        }
    }
}

impl Stored for ListShown {
    fn stored(&self) -> Self {
        Self {
            shown_at: micros(self.shown_at),
            epoch: count(self.epoch),
            n_available: count(self.n_available),
            selection: self.selection.as_ref().map(Stored::stored),
            ..self.clone()
        }
    }
}

impl Stored for SelectionDetails {
    fn stored(&self) -> Self {
        Self {
            shown_tokens: count(self.shown_tokens),
            available_tokens: count(self.available_tokens),
            ..self.clone()
        }
    }
}

impl Stored for Search {
    fn stored(&self) -> Self {
        Self {
            searched_at: micros(self.searched_at),
            duration_us: count(self.duration_us),
            ..self.clone()
        }
    }
}

impl Stored for Context {
    fn stored(&self) -> Self {
        Self {
            given_at: micros(self.given_at),
            ..self.clone()
        }
    }
}

impl Stored for Recommendation {
    fn stored(&self) -> Self {
        Self {
            shown_at: micros(self.shown_at),
            weights: self.weights.map(count),
            ..self.clone()
        }
    }
}

impl Stored for Feedback {
    fn stored(&self) -> Self {
        Self {
            given_at: micros(self.given_at),
            ..self.clone()
        }
    }
}

impl Stored for WorkSession {
    fn stored(&self) -> Self {
        Self {
            started_at: micros(self.started_at),
            last_active_at: micros(self.last_active_at),
            ..self.clone()
        }
    }
}

impl Stored for ListEpoch {
    fn stored(&self) -> Self {
        Self {
            began_at: micros(self.began_at),
            ..self.clone()
        }
    }
}

impl Stored for ToolOverride {
    fn stored(&self) -> Self {
        Self {
            expires_at: self.expires_at.map(micros),
            created_at: micros(self.created_at),
            ..self.clone()
        }
    }
}

impl Stored for ToolApproval {
    fn stored(&self) -> Self {
        Self {
            approved_at: micros(self.approved_at),
            ..self.clone()
        }
    }
}

impl Stored for AuditEntry {
    fn stored(&self) -> Self {
        Self {
            at: micros(self.at),
            ..self.clone()
        }
    }
}

impl Stored for WeightVersion {
    fn stored(&self) -> Self {
        Self {
            created_at: micros(self.created_at),
            ..self.clone()
        }
    }
}

impl Stored for Snapshot {
    fn stored(&self) -> Self {
        Self {
            taken_at: micros(self.taken_at),
            ..self.clone()
        }
    }
}

impl Stored for Assignment {
    fn stored(&self) -> Self {
        Self {
            assigned_at: micros(self.assigned_at),
            ..self.clone()
        }
    }
}

impl Stored for ExperimentStop {
    fn stored(&self) -> Self {
        Self {
            stopped_at: micros(self.stopped_at),
            ..self.clone()
        }
    }
}
