//! Concurrent sessions in closed loops: each sends its next request when it has read the response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::client::{Endpoint, Session};
use crate::message::{Case, Era, Request};

/// The time after the end of a round in which the last responses must come.
const LAST_RESPONSES: Duration = Duration::from_mins(1);

/// The time after which a connection may have been closed by the server, because it is idle.
const IDLE: Duration = Duration::from_secs(2);

/// The requests of one round.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// The latency of each request.
    pub(crate) latencies: Vec<Duration>,
    /// The time from the first request to the last response.
    pub(crate) elapsed: Duration,
}

/// Open sessions with one endpoint.
#[derive(Debug)]
pub(crate) struct Sessions {
    name: String,
    era: Era,
    open: Vec<Session>,
    last_used: Instant,
}

impl Sessions {
    /// Opens sessions, one after the other.
    pub(crate) async fn open(endpoint: &Endpoint, era: Era, n: usize) -> anyhow::Result<Self> {
        let mut open = Vec::with_capacity(n);
        for _ in 0..n {
            open.push(Session::open(endpoint, era).await?);
        }
        Ok(Self {
            name: endpoint.name.clone(),
            era,
            open,
            last_used: Instant::now(),
        })
    }

    /// Prepares all sessions for requests: connections that were idle are replaced, so that no
    /// request comes when the server closes one.
    pub(crate) async fn wake(&mut self) -> anyhow::Result<()> {
        if self.last_used.elapsed() > IDLE {
            for session in &mut self.open {
                session.reconnect().await?;
            }
        }
        self.last_used = Instant::now();
        Ok(())
    }

    /// Checks the content of one response in every session.
    pub(crate) async fn check(&mut self, case: Case) -> anyhow::Result<()> {
        self.wake().await?;
        let request = case.request(self.era);
        for session in &mut self.open {
            let result = session.ask(&request).await?;
            match case {
                Case::Call(size) => {
                    let text = result["content"][0]["text"].as_str();
                    let length = text.map(str::len);
                    if length != Some(size) {
                        bail!(
                            "{}: a call of {size} bytes has a result of {length:?} bytes",
                            self.name
                        );
                    }
                }
                Case::List(n_tools) => {
                    let n_listed = result["tools"].as_array().map_or(0, Vec::len);
                    if n_listed < n_tools {
                        bail!(
                            "{}: the list has {n_listed} tools, the upstream has {n_tools}",
                            self.name
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends requests in all sessions for a time, at least one in each.
    pub(crate) async fn run(
        &mut self,
        request: &Arc<Request>,
        time: Duration,
    ) -> anyhow::Result<Load> {
        let start = Instant::now();
        let end = start + time;
        let tasks: Vec<_> = std::mem::take(&mut self.open)
            .into_iter()
            .map(|session| tokio::spawn(repeat(session, Arc::clone(request), end)))
            .collect();
        let mut load = Load::default();
        for task in tasks {
            let last = tokio::time::Instant::from_std(end + LAST_RESPONSES);
            let (session, latencies) =
                tokio::time::timeout_at(last, task)
                    .await
                    .with_context(|| {
                        let name = &self.name;
                        format!("{name}: {} has no response after 1 min", request.method)
                    })???;
            load.latencies.extend(latencies);
            self.open.push(session);
        }
        load.elapsed = start.elapsed();
        self.last_used = Instant::now();
        Ok(load)
    }

    /// Ends all sessions.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        self.wake().await?;
        for session in self.open {
            session.close().await?;
        }
        Ok(())
    }
}

async fn repeat(
    mut session: Session,
    request: Arc<Request>,
    end: Instant,
) -> anyhow::Result<(Session, Vec<Duration>)> {
    let mut latencies = Vec::new();
    let mut start = Instant::now();
    loop {
        session.send(&request).await?;
        let now = Instant::now();
        latencies.push(now - start);
        if now >= end {
            return Ok((session, latencies));
        }
        start = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::riglm::endpoint;
    use crate::upstream::Upstream;

    async fn open(era: Era, n_tools: usize) -> Sessions {
        let upstream = Upstream::new(era, n_tools).start().unwrap();
        let endpoint = endpoint("it", upstream);
        Sessions::open(&endpoint, era, 3).await.unwrap()
    }

    #[tokio::test]
    async fn each_session_sends_requests_in_both_eras() {
        for era in [Era::Legacy, Era::Modern] {
            let mut sessions = open(era, 10).await;
            for case in [Case::Call(1_000), Case::List(10)] {
                sessions.check(case).await.unwrap();
                let request = Arc::new(case.request(era));
                let load = sessions.run(&request, Duration::ZERO).await.unwrap();
                assert_eq!(load.latencies.len(), 3);
            }
            sessions.close().await.unwrap();
        }
    }

    #[tokio::test]
    async fn short_lists_are_an_error() {
        let mut sessions = open(Era::Legacy, 10).await;
        let error = sessions.check(Case::List(11)).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(text, "it: the list has 10 tools, the upstream has 11");
    }

    #[tokio::test]
    async fn clients_of_the_other_era_are_refused() {
        let upstream = Upstream::new(Era::Modern, 10).start().unwrap();
        let error = Sessions::open(&endpoint("it", upstream), Era::Legacy, 1).await;
        let text = format!("{:#}", error.unwrap_err());
        assert!(text.contains("Unsupported protocol version"), "{text}");
    }
}
