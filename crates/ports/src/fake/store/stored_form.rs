//! Conversion of values as a database stores them: times with microseconds, counts as signed 64-bit
//! integers.

use jiff::Timestamp;
use riglm_domain::catalog::tool_approval::ToolApproval;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::experiment::{Assignment, ExperimentStop};
use riglm_domain::intent::context::Context;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::recommendation::weights::WeightVersion;
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::{ListShown, SelectionDetails};
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::{CallTokens, Invocation, InvocationEnd};
use riglm_domain::usage::learned_state::Snapshot;
use riglm_domain::usage::session::Session;
use riglm_domain::usage::work_session::WorkSession;

use crate::analytics::ServerMemory;

/// A value that is stored in a row.
pub(super) trait ToStored {
    /// Returns the value as it is read back.
    fn to_stored(&self) -> Self;
}

/// Returns a time as it is read back.
pub(super) fn micros(moment: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(moment.as_microsecond()).unwrap_or(moment)
}

fn saturated_count(n: u64) -> u64 {
    n.min(i64::MAX.unsigned_abs())
}

impl ToStored for Session {
    fn to_stored(&self) -> Self {
        Self {
            started_at: micros(self.started_at),
            ..self.clone()
        }
    }
}

impl ToStored for Invocation {
    fn to_stored(&self) -> Self {
        Self {
            started_at: micros(self.started_at),
            sequence: saturated_count(self.sequence),
            request_bytes: saturated_count(self.request_bytes),
            list_epoch: self.list_epoch.map(saturated_count),
            ..self.clone()
        }
    }
}

impl ToStored for InvocationEnd {
    fn to_stored(&self) -> Self {
        Self {
            duration_us: saturated_count(self.duration_us),
            wait_us: saturated_count(self.wait_us),
            response_bytes: saturated_count(self.response_bytes),
            ..self.clone()
        }
    }
}

impl ToStored for CallTokens {
    fn to_stored(&self) -> Self {
        Self {
            id: self.id,
            request: self.request.map(saturated_count),
            response: self.response.map(saturated_count),
        }
    }
}

impl ToStored for Exchange {
    fn to_stored(&self) -> Self {
        Self {
            started_at: micros(self.started_at),
            duration_us: saturated_count(self.duration_us),
            ..self.clone()
        }
    }
}

impl ToStored for ListShown {
    fn to_stored(&self) -> Self {
        Self {
            shown_at: micros(self.shown_at),
            epoch: saturated_count(self.epoch),
            n_available: saturated_count(self.n_available),
            selection: self.selection.as_ref().map(ToStored::to_stored),
            ..self.clone()
        }
    }
}

impl ToStored for SelectionDetails {
    fn to_stored(&self) -> Self {
        Self {
            shown_tokens: saturated_count(self.shown_tokens),
            available_tokens: saturated_count(self.available_tokens),
            ..self.clone()
        }
    }
}

impl ToStored for Search {
    fn to_stored(&self) -> Self {
        Self {
            searched_at: micros(self.searched_at),
            duration_us: saturated_count(self.duration_us),
            ..self.clone()
        }
    }
}

impl ToStored for Context {
    fn to_stored(&self) -> Self {
        Self {
            given_at: micros(self.given_at),
            ..self.clone()
        }
    }
}

impl ToStored for Recommendation {
    fn to_stored(&self) -> Self {
        Self {
            shown_at: micros(self.shown_at),
            weights: self.weights.map(saturated_count),
            ..self.clone()
        }
    }
}

impl ToStored for Feedback {
    fn to_stored(&self) -> Self {
        Self {
            given_at: micros(self.given_at),
            ..self.clone()
        }
    }
}

impl ToStored for WorkSession {
    fn to_stored(&self) -> Self {
        Self {
            started_at: micros(self.started_at),
            last_active_at: micros(self.last_active_at),
            ..self.clone()
        }
    }
}

impl ToStored for ListEpoch {
    fn to_stored(&self) -> Self {
        Self {
            began_at: micros(self.began_at),
            ..self.clone()
        }
    }
}

impl ToStored for ToolOverride {
    fn to_stored(&self) -> Self {
        Self {
            expires_at: self.expires_at.map(micros),
            created_at: micros(self.created_at),
            ..self.clone()
        }
    }
}

impl ToStored for ToolApproval {
    fn to_stored(&self) -> Self {
        Self {
            approved_at: micros(self.approved_at),
            ..self.clone()
        }
    }
}

impl ToStored for AuditEntry {
    fn to_stored(&self) -> Self {
        Self {
            at: micros(self.at),
            ..self.clone()
        }
    }
}

impl ToStored for WeightVersion {
    fn to_stored(&self) -> Self {
        Self {
            created_at: micros(self.created_at),
            ..self.clone()
        }
    }
}

impl ToStored for Snapshot {
    fn to_stored(&self) -> Self {
        Self {
            taken_at: micros(self.taken_at),
            ..self.clone()
        }
    }
}

impl ToStored for ServerMemory {
    fn to_stored(&self) -> Self {
        Self {
            learned_at: micros(self.learned_at),
            ..self.clone()
        }
    }
}

impl ToStored for Assignment {
    fn to_stored(&self) -> Self {
        Self {
            assigned_at: micros(self.assigned_at),
            ..self.clone()
        }
    }
}

impl ToStored for ExperimentStop {
    fn to_stored(&self) -> Self {
        Self {
            stopped_at: micros(self.stopped_at),
            ..self.clone()
        }
    }
}
