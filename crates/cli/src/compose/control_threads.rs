//! The threads of the control port. Requests of operators may need much work, such as a page of
//! thousands of tools. On the threads of the proxy, calls would wait for them.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// The number of threads that work on requests: operators are few, and all of them together must
/// leave the other cores to clients.
const N_THREADS: usize = 1;

/// The niceness of the threads: under full load they get about a third of the time of a thread of the
/// proxy. With less, probes of `/health` may wait too long on a busy machine.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// A runtime on its own threads. Connections to databases and upstreams that were opened on it work
/// until it is dropped.
#[derive(Debug)]
pub(super) struct ControlThreads(Option<Runtime>);

impl ControlThreads {
    pub(super) fn start() -> io::Result<(Self, Handle)> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(N_THREADS)
            .thread_name("riglm-control")
            .on_thread_start(give_way)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        Ok((Self(Some(runtime)), handle))
    }
}

impl Drop for ControlThreads {
    fn drop(&mut self) {
        // Waiting for the threads is not allowed on those of another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of the calling thread. Elsewhere than on Linux this would be the priority of
/// the process.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::debug!("control port: failed to lower the priority of a thread: {error}");
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[tokio::test]
    async fn threads_give_way_to_those_of_the_proxy() {
        let own = getpriority_process(None).unwrap();
        let (_threads, handle) = ControlThreads::start().unwrap();
        let found = handle.spawn(async { getpriority_process(None).unwrap() });
        assert_eq!(found.await.unwrap(), (own + NICE).min(19));
        assert_eq!(getpriority_process(None).unwrap(), own);
    }
}
