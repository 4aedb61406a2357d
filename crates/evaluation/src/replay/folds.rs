//! Folds of the cross-validation over tasks.

use sha2::{Digest as _, Sha256};

use super::session::ReplaySession;

pub(super) const N_FOLDS: usize = 5;

/// Prefix of the hashed task, so that the folds are independent of other uses of its hash.
const SEED: &[u8] = b"riglm replay fold 1\0";

/// Returns the fold of a session. It is the same on every machine, and for all sessions of a task.
/// A session without a task is a task of its own.
pub(super) fn fold_of(session: &ReplaySession) -> usize {
    let mut digest = Sha256::new();
    digest.update(SEED);
    if let Some(task) = &session.task {
        digest.update(b"task\0");
        digest.update(task);
    } else {
        digest.update(b"session\0");
        digest.update(&session.id);
    }
    // The remainder of a 256-bit number modulo five is nearly uniform.
    let bytes = digest.finalize();
    (bytes.iter()).fold(0, |rest, byte| (rest * 256 + usize::from(*byte)) % N_FOLDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str, task: Option<&str>) -> ReplaySession {
        ReplaySession {
            id: id.into(),
            task: task.map(Into::into),
            ..ReplaySession::default()
        }
    }

    #[test]
    fn sessions_of_a_task_are_in_the_same_fold() {
        let mut sizes = [0; N_FOLDS];
        for task in 0..200 {
            let task = format!("task-{task}");
            let fold = fold_of(&session("a", Some(&task)));
            assert_eq!(fold, fold_of(&session("b", Some(&task))));
            sizes[fold] += 1;
        }
        assert!(
            sizes.iter().all(|size| (20..=60).contains(size)),
            "{sizes:?}"
        );
    }

    #[test]
    fn the_division_is_the_same_everywhere() {
        let folds = ["a", "b", "c", "d", "e", "f"].map(|task| fold_of(&session("", Some(task))));
        assert_eq!(folds, [1, 3, 1, 3, 4, 2]);
        assert_eq!(fold_of(&session("a", None)), 4);
    }
}
