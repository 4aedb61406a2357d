//! A predictor in a child process: one line of JSON for each request and each response.

mod connection;
mod lines;

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_ports::external_predictor::{ExternalPredictor, ScoreError, ScoreRequest, ScoreResponse};
use tokio::time::timeout;

use connection::Connection;

/// A program that answered nothing for this time although it was asked is ended.
const HUNG_AFTER: Duration = Duration::from_secs(30);

/// Starts a program and asks it for scores. A program that ended, or that answered nothing for half a
/// minute, is started again by the next request. Requests may overlap; each response names its request.
#[derive(Debug)]
pub struct ProcessPredictor {
    name: String,
    command: Vec<String>,
    deadline: Duration,
    connection: Mutex<Option<Connection>>,
}

impl ProcessPredictor {
    /// Returns the predictor of a program with its arguments. The first request starts it. `deadline`
    /// is the maximum time of a request.
    #[must_use]
    pub fn new(command: Vec<String>, deadline: Duration) -> Self {
        Self {
            name: command.first().cloned().unwrap_or_default(),
            command,
            deadline,
            connection: Mutex::new(None),
        }
    }

    /// Starts the program before the first request. A failure is reported by the first request.
    pub fn start(&self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            let _ = self.open();
        }
    }

    /// Returns the connection to the running program; starts the program if there is none.
    fn open(&self) -> Result<Connection, ScoreError> {
        let mut connection = self.connection.lock();
        if let Some(open) = connection.as_ref().filter(|open| open.is_open()) {
            return Ok(open.clone());
        }
        let opened = Connection::open(&self.command);
        let opened = opened.map_err(|error| ScoreError::Unavailable(error.into()))?;
        *connection = Some(opened.clone());
        Ok(opened)
    }
}

#[async_trait]
impl ExternalPredictor for ProcessPredictor {
    fn name(&self) -> &str {
        &self.name
    }

    async fn score(&self, request: &ScoreRequest) -> Result<ScoreResponse, ScoreError> {
        let connection = self.open()?;
        let answer = timeout(self.deadline, connection.request(request)).await;
        let response = answer.unwrap_or_else(|_| {
            connection.close_if_hung(HUNG_AFTER.max(self.deadline));
            Err(ScoreError::Late(self.deadline))
        })?;
        response.check(request)?;
        Ok(response)
    }
}
