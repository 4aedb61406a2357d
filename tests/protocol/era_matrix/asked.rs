//! What a server asks of its client in the middle of a call.

use riglm_tests::envelope::{integer_at, raw_at};
use riglm_tests::modern::Rounds;

use super::Era;
use super::cell::{Cell, call_params};

/// What the canned answers of the client are recognised by.
const WHO: &str = "Ada";
const WHAT: &str = "forty-two";
const WHERE: &str = "file:///srv/data";

async fn assert_asked(cell: &Cell, tool: &str, n_questions: usize, marks: &[&str]) {
    cell.start().await;
    let (result, asked) = cell.resolved(tool).await;
    for mark in marks {
        assert!(
            result.contains(mark),
            "{mark} is not in {result}\n{}",
            cell.client.history()
        );
    }
    assert_eq!(asked, n_questions, "\n{}", cell.client.history());
}

pub(super) async fn elicitation(cell: &Cell) {
    assert_asked(cell, "elicit", 1, &[WHO]).await;
}

pub(super) async fn sampling(cell: &Cell) {
    assert_asked(cell, "sample", 1, &[WHAT]).await;
}

pub(super) async fn roots(cell: &Cell) {
    assert_asked(cell, "roots", 1, &[WHERE]).await;
}

pub(super) async fn two_rounds(cell: &Cell) {
    // A modern server keeps what it was told first in its state; this one shows the last answer.
    let marks: &[&str] = match cell.server_era {
        Era::Legacy => &[WHO, WHAT],
        Era::Modern => &[WHAT],
    };
    assert_asked(cell, "two_rounds", 2, marks).await;
}

pub(super) async fn both_at_once(cell: &Cell) {
    assert_asked(cell, "both", 2, &[WHO, WHAT]).await;
}

/// A client that declines says so to the server.
pub(super) async fn refusal(cell: &Cell) {
    let declined = r#"{"action":"decline"}"#;
    cell.start().await;
    let result = match cell.client_era {
        Era::Legacy => {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{declined}}}"#);
            cell.client
                .set_answers(crate::answers().with("elicitation/create", &answer));
            cell.resolved("elicit").await.0
        }
        Era::Modern => {
            let rounds = Rounds::new(&cell.client, &cell.meta());
            let received = rounds
                .resolve("tools/call", &call_params("elicit", "{}"), |_| {
                    declined.into()
                })
                .await;
            cell.result(received.last().expect("every request is answered"))
        }
    };
    assert!(result.contains("decline"), "{result}");
}

/// A client that cannot be asked is not asked.
pub(super) async fn client_without_elicitation(cell: &Cell) {
    cell.start_with(r#"{"roots":{}}"#).await;
    if (cell.client_era, cell.server_era) == (Era::Legacy, Era::Legacy) {
        // The legacy server asks whoever is there, and a proxy between the two has no say in it.
        assert_eq!(cell.resolved("elicit").await.1, 1);
        return;
    }
    let start = cell.client.n_received();
    let answer = cell.call("elicit", "{}").await;
    let received = cell.client.received().split_off(start);
    assert!(
        !received.iter().any(|m| m.is_method("elicitation/create")),
        "{}",
        cell.client.history()
    );
    assert_eq!(
        raw_at(&answer.text, &["result", "inputRequests"]),
        None,
        "\"Servers MUST NOT send an inputRequests that the client has not declared support for\""
    );
    if cell.server_era == Era::Modern && cell.client_era == Era::Modern {
        assert_eq!(integer_at(&answer.text, &["error", "code"]), Some(-32021));
    }
}

/// A request of the server that no specification knows reaches a client of the same era, and
/// nobody else: the call ends without it.
pub(super) async fn request_of_an_extension(cell: &Cell) {
    cell.start().await;
    let Some(sentence) = cell.sentence else {
        let (result, asked) = cell.resolved("custom_request").await;
        assert_eq!(asked, 1);
        assert!(result.contains("asked"), "{result}");
        return;
    };
    let answer = cell.call("custom_request", "{}").await;
    if cell.server_era == Era::Modern {
        // The modern server has no such tool.
        assert_eq!(
            integer_at(&answer.text, &["error", "code"]),
            Some(-32602),
            "{sentence}: {}",
            answer.text
        );
        return;
    }
    let result = cell.result(&answer);
    assert!(
        result.contains("-32601"),
        "the server is told that nobody answers that; {sentence}: {result}"
    );
}
