//! The process group of an upstream: a child together with everything that it starts.
//!
//! The child leads its own group, so that one signal reaches its descendants too. The number of a
//! group stays in use as long as a member lives. Therefore a signal to a group that has members
//! cannot hit an unrelated process.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, test_kill_process_group};

use super::guard::{Guard, group_id, signal};

/// The polling interval for the end of a group.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process group that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    id: Pid,
    guard: Option<Arc<Guard>>,
    ended: bool,
}

impl ProcessGroup {
    /// Takes over the group led by the process `leader`, and registers it with `guard`.
    ///
    /// Returns `None` for a number that cannot be the group of a child.
    pub(crate) fn new(leader: u32, guard: Option<Arc<Guard>>) -> Option<Self> {
        let id = group_id(i32::try_from(leader).ok()?)?;
        if let Some(guard) = &guard {
            guard.register(id);
        }
        Some(Self {
            id,
            guard,
            ended: false,
        })
    }

    /// Sends SIGTERM to every process of the group.
    pub(crate) fn terminate(&self) {
        signal(self.id, Signal::TERM);
    }

    /// Sends SIGKILL to every process of the group.
    pub(crate) fn kill(&self) {
        signal(self.id, Signal::KILL);
    }

    /// Returns whether the group is empty within `grace`.
    pub(crate) async fn is_gone_within(&self, grace: Duration) -> bool {
        let gone = async {
            while test_kill_process_group(self.id).is_ok() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(grace, gone).await.is_ok()
    }

    /// Marks the group as ended, so that dropping this does not kill it.
    pub(crate) fn set_ended(&mut self) {
        self.ended = true;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
        if let Some(guard) = &self.guard {
            guard.unregister(self.id);
        }
    }
}
