use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::encoder::local::worker::Load;
use crate::encoder::model::{ModelError, SentenceModel};
use crate::models::manifest::ModelFile;

const DAY: Duration = Duration::from_hours(24);
const SOON: Duration = Duration::from_secs(20);

/// Returns the message of an error with its causes.
fn with_causes(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", with_causes(cause)),
        None => error.to_string(),
    }
}

/// A model that reports the present text, and computes it on a signal.
#[derive(Debug)]
struct Stepwise {
    at: Sender<String>,
    may: Receiver<()>,
}

impl SentenceModel for Stepwise {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>, ModelError> {
        self.at.send(text.to_owned()).unwrap();
        self.may.recv().unwrap();
        Ok(vec![1.0])
    }
}

/// The other side of [`Stepwise`].
struct Steps {
    at: Receiver<String>,
    may: Sender<()>,
}

impl Steps {
    /// Returns the present text of the model.
    fn now(&self) -> String {
        self.at.recv_timeout(SOON).unwrap()
    }

    fn go_on(&self) {
        self.may.send(()).unwrap();
    }
}

/// A model that returns the lengths of texts, and panics or fails on certain texts.
#[derive(Debug)]
struct Length;

impl SentenceModel for Length {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>, ModelError> {
        match text {
            "panic" => panic!("as it was told"),
            "fail" => Err(ModelError::Compute("as it was told".into())),
            "threads" => Ok(vec![small(rayon::current_num_threads())]),
            _ => Ok(vec![small(text.len())]),
        }
    }
}

fn small(number: usize) -> f32 {
    f32::from(u16::try_from(number).unwrap())
}

fn encoder(retry_after: Duration, load: Load) -> Arc<LocalEncoder> {
    Arc::new(LocalEncoder::from_source(ModelSource {
        model: "m".to_owned(),
        query_prefix: "q: ".to_owned(),
        passage_prefix: String::new(),
        threads: NonZeroUsize::new(3).unwrap(),
        backoff: Backoff::new(retry_after, retry_after).with_jitter(0.0),
        load,
    }))
}

fn lengths() -> Arc<LocalEncoder> {
    encoder(DAY, Box::new(|| Ok(Box::new(Length))))
}

fn stepwise() -> (Arc<LocalEncoder>, Steps) {
    let (at_sender, at) = mpsc::channel();
    let (may, may_receiver) = mpsc::channel();
    let model = Mutex::new(Some(Stepwise {
        at: at_sender,
        may: may_receiver,
    }));
    let load = move || -> Result<Box<dyn SentenceModel>, ModelError> {
        Ok(Box::new(model.lock().take().unwrap()))
    };
    (encoder(DAY, Box::new(load)), Steps { at, may })
}

type Call = JoinHandle<Result<Vec<Vec<f32>>, EncoderError>>;

/// Starts a call. It is in the queue when this function returns.
async fn begin(encoder: &Arc<LocalEncoder>, texts: &[&str], role: TextRole) -> Call {
    let encoder = Arc::clone(encoder);
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    let call = tokio::spawn(async move { encoder.encode(texts, role).await });
    yield_now().await;
    call
}

async fn encode(
    encoder: &Arc<LocalEncoder>,
    text: &str,
    role: TextRole,
) -> Result<f32, EncoderError> {
    let vectors = encoder.encode(vec![text.to_owned()], role).await?;
    Ok(vectors[0][0])
}

#[tokio::test]
async fn queries_wait_for_at_most_one_passage() {
    let (encoder, steps) = stepwise();
    let passages = begin(&encoder, &["p1", "p2", "p3"], TextRole::Passage).await;
    assert_eq!(steps.now(), "p1");
    let query = begin(&encoder, &["1", "2"], TextRole::Query).await;
    for expected in ["q: 1", "q: 2", "p2", "p3"] {
        steps.go_on();
        assert_eq!(steps.now(), expected);
    }
    steps.go_on();
    assert_eq!(query.await.unwrap().unwrap().len(), 2);
    assert_eq!(passages.await.unwrap().unwrap().len(), 3);
}

#[tokio::test]
async fn calls_of_one_role_take_turns() {
    let (encoder, steps) = stepwise();
    let long = begin(&encoder, &["a1", "a2", "a3"], TextRole::Passage).await;
    assert_eq!(steps.now(), "a1");
    let short = begin(&encoder, &["b"], TextRole::Passage).await;
    for expected in ["b", "a2", "a3"] {
        steps.go_on();
        assert_eq!(steps.now(), expected);
    }
    short.await.unwrap().unwrap();
    steps.go_on();
    long.await.unwrap().unwrap();
}

#[tokio::test]
async fn texts_of_a_dropped_call_are_not_computed() {
    let (encoder, steps) = stepwise();
    let dropped = begin(&encoder, &["a1", "a2", "a3"], TextRole::Passage).await;
    assert_eq!(steps.now(), "a1");
    let never_begun = begin(&encoder, &["b"], TextRole::Passage).await;
    let last = begin(&encoder, &["c"], TextRole::Passage).await;
    for call in [dropped, never_begun] {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    steps.go_on();
    assert_eq!(steps.now(), "c");
    steps.go_on();
    last.await.unwrap().unwrap();
}

#[tokio::test]
async fn calls_wait_for_a_place_in_a_full_queue() {
    let encoder = lengths();
    let mut calls = Vec::new();
    for _ in 0..300 {
        calls.push(begin(&encoder, &["1", "12"], TextRole::Passage).await);
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), [[1.0], [2.0]]);
    }
}

#[tokio::test]
async fn texts_get_the_prefix_of_their_role() {
    let encoder = lengths();
    let query = encode(&encoder, "12", TextRole::Query).await.unwrap();
    let passage = encode(&encoder, "12", TextRole::Passage).await.unwrap();
    assert_eq!(
        (query.to_bits(), passage.to_bits()),
        (5_f32.to_bits(), 2_f32.to_bits())
    );
}

#[tokio::test]
async fn a_model_computes_on_the_configured_threads() {
    let threads = encode(&lengths(), "threads", TextRole::Passage).await;
    assert_eq!(threads.unwrap().to_bits(), 3_f32.to_bits());
}

/// Returns an encoder whose first load fails, and the number of loads.
fn encoder_failing_once(retry_after: Duration) -> (Arc<LocalEncoder>, Arc<AtomicUsize>) {
    let loads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&loads);
    let load = move || -> Result<Box<dyn SentenceModel>, ModelError> {
        if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(ModelError::Content {
                path: PathBuf::from("config.json"),
                reason: "it is empty".to_owned(),
            });
        }
        Ok(Box::new(Length))
    };
    (encoder(retry_after, Box::new(load)), loads)
}

#[tokio::test]
async fn a_model_failing_to_load_has_a_back_off() {
    let (encoder, loads) = encoder_failing_once(DAY);
    assert_eq!(loads.load(Ordering::Relaxed), 0);
    for _ in 0..3 {
        let error = encode(&encoder, "1", TextRole::Query).await.unwrap_err();
        assert!(matches!(error, EncoderError::Load { .. }), "{error:?}");
        assert_eq!(
            with_causes(&error),
            "failed to load model m: config.json is invalid: it is empty"
        );
    }
    assert_eq!(loads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_repaired_model_is_loaded_after_the_back_off() {
    let (encoder, loads) = encoder_failing_once(Duration::ZERO);
    encode(&encoder, "1", TextRole::Query).await.unwrap_err();
    for _ in 0..3 {
        encode(&encoder, "1", TextRole::Query).await.unwrap();
    }
    assert_eq!(loads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_failing_text_fails_only_its_call() {
    let encoder = lengths();
    for text in ["fail", "panic"] {
        let call = begin(&encoder, &["1", text, "1"], TextRole::Passage).await;
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, EncoderError::Failed { .. }), "{error:?}");
        assert!(with_causes(&error).ends_with("as it was told"), "{error:?}");
        encode(&encoder, "1", TextRole::Passage).await.unwrap();
    }
}

/// A model that reports when it is dropped.
#[derive(Debug)]
struct DropReporter(Sender<()>);

impl SentenceModel for DropReporter {
    fn encode(&mut self, _: &str) -> Result<Vec<f32>, ModelError> {
        Ok(vec![1.0])
    }
}

impl Drop for DropReporter {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
    }
}

#[tokio::test]
async fn a_model_is_dropped_with_its_encoder() {
    let (sender, gone) = mpsc::channel();
    let load = move || -> Result<Box<dyn SentenceModel>, ModelError> {
        Ok(Box::new(DropReporter(sender.clone())))
    };
    let encoder = encoder(DAY, Box::new(load));
    encode(&encoder, "1", TextRole::Query).await.unwrap();
    assert!(gone.try_recv().is_err());
    drop(encoder);
    gone.recv_timeout(SOON).unwrap();
}

#[tokio::test]
async fn a_missing_model_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = ModelManifest {
        name: "e5".to_owned(),
        form: ModelForm::XlmRoberta,
        dimension: 8,
        max_tokens: 8,
        query_prefix: String::new(),
        passage_prefix: String::new(),
        licence: "MIT".to_owned(),
        source: String::new(),
        files: vec![ModelFile {
            name: "model.safetensors".to_owned(),
            bytes: 8,
            sha256: "0123456789ABCDEF".to_owned(),
        }],
    };
    let encoder = LocalEncoder::new(directory.path().to_owned(), manifest, NonZeroUsize::MIN);
    assert_eq!(encoder.model(), "e5:xlm-roberta@01234567");
    let texts = vec!["1".to_owned()];
    let error = encoder.encode(texts, TextRole::Query).await.unwrap_err();
    assert!(matches!(error, EncoderError::Load { .. }), "{error:?}");
    let said = with_causes(&error);
    assert!(said.contains("model.safetensors"), "{said}");
    assert!(
        encoder
            .encode(Vec::new(), TextRole::Query)
            .await
            .unwrap()
            .is_empty()
    );
}
