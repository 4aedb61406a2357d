//! The check that versions follow each other without a gap.

use riglm_ports::analytics::StoreError;

/// Refuses a version of `what` that is not the newest version plus one. `newest` is 0 before the
/// first version.
pub(crate) fn check_follows(
    what: impl FnOnce() -> String,
    version: u64,
    newest: u64,
) -> Result<(), StoreError> {
    if newest.checked_add(1) == Some(version) {
        return Ok(());
    }
    Err(StoreError::Conflict {
        what: what(),
        expected: version.saturating_sub(1),
        found: newest,
    })
}
