//! A conversation laid down beforehand, so that it can be held twice and compared.

use std::time::Duration;

use crate::client::RawClient;
use crate::envelope::Envelope;
use crate::normalise::Masks;
use crate::transcript::Transcript;

/// One part of a step.
#[derive(Clone, Debug)]
enum Part {
    Send(String),
    AwaitAnswer(String),
    AwaitMethod(String, usize),
    Cancel(String),
    Initialize(String),
    Pause(Duration),
}

/// What is sent and awaited before the received messages are put down.
#[derive(Clone, Debug)]
pub struct Step {
    name: String,
    parts: Vec<Part>,
    ignored: Vec<String>,
}

impl Step {
    /// Returns a step that does nothing yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parts: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Returns a step that sends a request and waits for its answer.
    pub fn request(name: &str, text: &str) -> Self {
        Self::new(name).send(text).answered(text)
    }

    /// Returns a step that initialises the session with this request.
    pub fn initialize(text: &str) -> Self {
        let mut step = Self::new("initialize");
        step.parts.push(Part::Initialize(text.to_owned()));
        step
    }

    /// Then sends a text.
    #[must_use]
    pub fn send(mut self, text: &str) -> Self {
        self.parts.push(Part::Send(text.to_owned()));
        self
    }

    /// Then waits for the answers to the requests in `text`.
    #[must_use]
    pub fn answered(mut self, text: &str) -> Self {
        for envelope in Envelope::all(text) {
            if let Some(id) = envelope.id() {
                self.parts.push(Part::AwaitAnswer(id.to_owned()));
            }
        }
        self
    }

    /// Then waits until this step has seen `count` messages of `method`.
    #[must_use]
    pub fn sees(mut self, method: &str, count: usize) -> Self {
        self.parts.push(Part::AwaitMethod(method.to_owned(), count));
        self
    }

    /// Then cancels the request with this raw id as its transport does it.
    #[must_use]
    pub fn cancel(mut self, id: &str) -> Self {
        self.parts.push(Part::Cancel(id.to_owned()));
        self
    }

    /// Leaves messages of `method` out of the comparison of this step, where a server sends them
    /// or loses them by chance.
    #[must_use]
    pub fn ignoring(mut self, method: &str) -> Self {
        self.ignored.push(method.to_owned());
        self
    }

    /// Then lets time pass: for a server that acts by its own clock, and for nothing else.
    #[must_use]
    pub fn pause(mut self, time: Duration) -> Self {
        self.parts.push(Part::Pause(time));
        self
    }
}

/// A list of steps and what may differ in their messages.
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

    /// Holds the conversation and returns what was received.
    pub async fn run(&self, client: &RawClient) -> Transcript {
        let mut transcript = Transcript::default();
        let mut start = client.n_received();
        for step in &self.steps {
            for part in &step.parts {
                hold(client, part, start).await;
            }
            let mut received = client.received().split_off(start);
            start += received.len();
            received.retain(|message| !step.ignored.iter().any(|name| message.is_method(name)));
            transcript.add(&step.name, &received, &self.masks);
        }
        transcript
    }
}

async fn hold(client: &RawClient, part: &Part, start: usize) {
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
