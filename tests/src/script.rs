//! A scripted conversation that can be run several times, so that its transcripts can be compared.

use std::time::Duration;

use crate::client::RawClient;
use crate::envelope::Envelope;
use crate::normalise::Masks;
use crate::transcript::Transcript;

#[derive(Clone, Debug)]
enum Part {
    Send(String),
    AwaitAnswer(String),
    AwaitMethod(String, usize),
    Cancel(String),
    Initialize(String),
    Pause(Duration),
}

/// One step of a script: messages to send and messages to wait for, before the transcript is
/// written.
#[derive(Clone, Debug)]
pub struct Step {
    name: String,
    parts: Vec<Part>,
    ignored: Vec<String>,
}

impl Step {
    /// Returns a step without actions.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parts: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Returns a step that sends a request and waits for its response.
    pub fn request(name: &str, text: &str) -> Self {
        Self::new(name).send(text).await_answers(text)
    }

    /// Returns a step that initialises the session with this request.
    pub fn initialize(text: &str) -> Self {
        let mut step = Self::new("initialize");
        step.parts.push(Part::Initialize(text.to_owned()));
        step
    }

    /// Adds an action: sends a text.
    #[must_use]
    pub fn send(mut self, text: &str) -> Self {
        self.parts.push(Part::Send(text.to_owned()));
        self
    }

    /// Adds an action: waits for the responses to the requests in `text`.
    #[must_use]
    pub fn await_answers(mut self, text: &str) -> Self {
        for envelope in Envelope::all(text) {
            if let Some(id) = envelope.id() {
                self.parts.push(Part::AwaitAnswer(id.to_owned()));
            }
        }
        self
    }

    /// Adds an action: waits until `count` messages of `method` were received in this step.
    #[must_use]
    pub fn await_notifications(mut self, method: &str, count: usize) -> Self {
        self.parts.push(Part::AwaitMethod(method.to_owned(), count));
        self
    }

    /// Adds an action: cancels the request with this raw id in the manner of its transport.
    #[must_use]
    pub fn cancel(mut self, id: &str) -> Self {
        self.parts.push(Part::Cancel(id.to_owned()));
        self
    }

    /// Excludes messages of `method` from the comparison of this step, because the server sends or
    /// loses them by chance.
    #[must_use]
    pub fn ignoring(mut self, method: &str) -> Self {
        self.ignored.push(method.to_owned());
        self
    }

    /// Adds an action: a pause. Only for servers that act by their own clock.
    #[must_use]
    pub fn pause(mut self, time: Duration) -> Self {
        self.parts.push(Part::Pause(time));
        self
    }
}

/// A list of steps, and masks for values that differ between runs.
#[derive(Clone, Debug)]
pub struct Script {
    steps: Vec<Step>,
    masks: Masks,
}

impl Script {
    /// Returns a script.
    pub fn new(masks: Masks, steps: Vec<Step>) -> Self {
        Self { steps, masks }
    }

    /// Runs the steps and returns the transcript of the received messages.
    pub async fn run(&self, client: &RawClient) -> Transcript {
        let mut transcript = Transcript::default();
        let mut start = client.n_received();
        for step in &self.steps {
            for part in &step.parts {
                run_part(client, part, start).await;
            }
            let mut received = client.received_messages().split_off(start);
            start += received.len();
            received.retain(|message| !step.ignored.iter().any(|name| message.is_method(name)));
            transcript.add(&step.name, &received, &self.masks);
        }
        transcript
    }
}

async fn run_part(client: &RawClient, part: &Part, start: usize) {
    match part {
        Part::Send(text) => {
            client.send(text).await;
        }
        Part::AwaitAnswer(id) => {
            client.answer_after(start, id).await;
        }
        Part::AwaitMethod(method, count) => {
            client.method_after(start, method, *count).await;
        }
        Part::Cancel(id) => client.cancel(id).await,
        Part::Initialize(text) => {
            client.initialize(text).await;
        }
        Part::Pause(time) => tokio::time::sleep(*time).await,
    }
}
