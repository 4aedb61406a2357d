//! Tests of external predictors: a server, and programs that behave in different ways.

use std::time::{Duration, Instant};

use riglm_domain::prediction::ToolCounts;
use riglm_ports::external_predictor::{
    SCHEMA, ScoreError, ScoreRequest, ScoreResponse, SessionSoFar, ToolToScore,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::*;

/// A program that gives its one tool the score 0.5.
const GOOD: &str =
    r#"sed -u 's/.*"id":\([0-9]*\),.*/{"schema":"riglm.predictor\/1","id":\1,"scores":[0.5]}/'"#;

fn request(n_tools: usize) -> ScoreRequest {
    let tool = |n: usize| ToolToScore {
        upstream: "files".into(),
        name: format!("tool_{n}"),
        callable: true,
        counts: ToolCounts::default(),
    };
    ScoreRequest {
        schema: SCHEMA.into(),
        id: 7,
        session: SessionSoFar::default(),
        tools: (0..n_tools).map(tool).collect(),
    }
}

fn shell(script: &str, deadline: Duration) -> ProcessPredictor {
    let command = ["sh", "-c", script].map(str::to_owned);
    ProcessPredictor::new(command.to_vec(), deadline)
}

const PATIENT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_program_answers_requests_that_overlap() {
    let predictor = shell(GOOD, PATIENT);
    predictor.start();
    let request = request(1);
    let both = tokio::join!(predictor.score(&request), predictor.score(&request));
    for response in [both.0, both.1] {
        let response = response.unwrap();
        assert_eq!((response.id, response.scores), (7, vec![0.5]));
    }
}

#[tokio::test]
async fn a_program_that_ended_is_started_again() {
    // `head` ends after one request.
    let predictor = shell(&format!("head -n 1 | {GOOD}"), PATIENT);
    for _ in 0..3 {
        let request = request(1);
        let mut response = predictor.score(&request).await;
        let started = Instant::now();
        // A request may meet the end of the program before.
        while response.is_err() && started.elapsed() < PATIENT {
            response = predictor.score(&request).await;
        }
        assert_eq!(response.unwrap().scores, [0.5]);
    }
}

#[tokio::test]
async fn a_program_that_does_not_answer_costs_no_more_than_the_deadline() {
    let predictor = shell("exec sleep 600", Duration::from_millis(50));
    let error = predictor.score(&request(1)).await.unwrap_err();
    assert!(matches!(error, ScoreError::Late(limit) if limit.as_millis() == 50));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_hangs_is_started_again() {
    // The first run hangs, later ones answer.
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("started");
    let mark = mark.display();
    let script = format!("if mkdir {mark}; then exec sleep 600; fi; {GOOD}");
    let predictor = shell(&script, Duration::from_millis(200));
    let mut n_late = 0;
    let response = loop {
        match predictor.score(&request(1)).await {
            Ok(response) => break response,
            Err(error) => {
                assert!(n_late < 1_000, "{error}");
                n_late += 1;
                // The clock of the test is stopped, so the program needs some real time.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    };
    assert!(n_late > 100, "{n_late}");
    assert_eq!(response.scores, [0.5]);
}

#[tokio::test]
async fn a_program_with_wrong_output_gives_clear_errors() {
    let missing = ProcessPredictor::new(vec!["no-such-program-here".into()], PATIENT);
    let error = missing.score(&request(1)).await.unwrap_err();
    assert!(matches!(error, ScoreError::Unavailable(_)), "{error}");
    let ends = shell("exit 3", PATIENT);
    let error = ends.score(&request(1)).await.unwrap_err();
    assert!(matches!(error, ScoreError::Unavailable(_)), "{error}");
    // A program that repeats the request gives no scores.
    let error = shell("cat", PATIENT).score(&request(1)).await.unwrap_err();
    assert!(
        error.to_string().contains("0 scores for 1 tools"),
        "{error}"
    );
    // Lines that are no responses are skipped, of any length.
    let noisy = format!("echo hello; head -c 9000000 /dev/zero; echo; {GOOD}");
    let response = shell(&noisy, PATIENT).score(&request(1)).await.unwrap();
    assert_eq!(response.scores, [0.5]);
}

#[tokio::test]
async fn a_program_that_does_not_read_is_no_wait_for_others() {
    let predictor = shell("exec sleep 600", Duration::from_millis(300));
    // Larger than a pipe, and more than the queue.
    let large = request(2_000);
    let requests = (0..100).map(|_| predictor.score(&large));
    let started = Instant::now();
    for result in futures_util::future::join_all(requests).await {
        assert!(result.is_err());
    }
    assert!(started.elapsed() < PATIENT);
}

/// Returns the address of a server that scores each tool by the calls after the last one.
async fn start_server() -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/score", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    url.parse().unwrap()
}

async fn answer(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        assert!(head.starts_with("POST /v1/score HTTP/1.1\r\n"), "{head}");
        assert!(
            head.to_lowercase()
                .contains("authorization: bearer key\r\n"),
            "{head}"
        );
        let length = head.to_lowercase();
        let (_, length) = length.split_once("content-length: ").unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let request: ScoreRequest = serde_json::from_slice(&body).unwrap();
        let scores = request.tools.iter().map(|tool| tool.counts.after_last);
        let response = ScoreResponse::new(request.id, scores.collect());
        let response = serde_json::to_string(&response).unwrap();
        let length = response.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        let whole = head + &response;
        if stream.write_all(whole.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn server_predictor() -> Box<ServerPredictor> {
    let url = start_server().await;
    let key = "key".into();
    Box::new(ServerPredictor::new(&url, Some(&key), PATIENT).unwrap())
}

riglm_ports::external_predictor_contract!(server, server_predictor());

#[tokio::test]
async fn a_server_that_is_down_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let predictor = ServerPredictor::new(&url.parse().unwrap(), None, PATIENT).unwrap();
    let error = predictor.score(&request(1)).await.unwrap_err();
    assert!(matches!(error, ScoreError::Unavailable(_)), "{error}");
}
