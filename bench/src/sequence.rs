//! Requests one after the other in one session, for comparisons that alternate after few of them.

use std::time::{Duration, Instant};

use crate::client::{Endpoint, Session};
use crate::load::Load;
use crate::message::{Era, Request};
use crate::process::Process;
use crate::riglm::endpoint;
use crate::statistics::Sample;
use crate::usage::{CpuTime, settled_since};

/// A session, and the process behind it.
#[derive(Debug)]
pub(crate) struct Sequence {
    session: Session,
    process: Option<u32>,
}

impl Sequence {
    /// Opens a session with a process.
    pub(crate) async fn open(name: &str, process: &Process) -> anyhow::Result<Self> {
        Self::open_with(name, process, &[]).await
    }

    /// Opens a session with more headers.
    pub(crate) async fn open_with(
        name: &str,
        process: &Process,
        headers: &[(&'static str, String)],
    ) -> anyhow::Result<Self> {
        let endpoint = endpoint(name, process.address);
        Ok(Self {
            session: Session::open_with(&endpoint, Era::Legacy, headers).await?,
            process: Some(process.id()),
        })
    }

    /// Opens a session with a server whose processor time is not measured.
    pub(crate) async fn open_direct(endpoint: &Endpoint) -> anyhow::Result<Self> {
        Ok(Self {
            session: Session::open(endpoint, Era::Legacy).await?,
            process: None,
        })
    }

    /// Returns the session.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Sends requests over a new connection, and waits until the process is quiet.
    pub(crate) async fn run(&mut self, request: &Request, n: usize) -> anyhow::Result<Sample> {
        self.session.reconnect().await?;
        let before = self.cpu();
        let start = Instant::now();
        let mut latencies = Vec::with_capacity(n);
        for _ in 0..n {
            latencies.push(self.time(request).await?);
        }
        let elapsed = start.elapsed();
        let cpu = match (self.process, before) {
            (Some(process), Some(before)) => Some(settled_since(process, &before).await),
            _ => None,
        };
        Ok(Sample {
            load: Load { latencies, elapsed },
            cpu,
        })
    }

    /// Sends a request and returns its latency.
    pub(crate) async fn time(&mut self, request: &Request) -> anyhow::Result<Duration> {
        let start = Instant::now();
        self.session.send(request).await?;
        Ok(start.elapsed())
    }

    /// Returns the processor time of the process.
    pub(crate) fn cpu(&self) -> Option<CpuTime> {
        self.process.map(CpuTime::of_tree)
    }
}
