//! Input requests of a server during a call.

use riglm_tests::envelope::{integer_at, raw_at};
use riglm_tests::modern::MultiRoundClient;

use super::Era;
use super::cell::{Cell, call_params};

/// Marks of the canned responses in a result.
const WHO: &str = "Ada";
const WHAT: &str = "forty-two";
const WHERE: &str = "file:///srv/data";

async fn assert_asked(cell: &Cell, tool: &str, n_questions: usize, marks: &[&str]) {
    cell.start().await;
    let (result, asked) = cell.call_and_respond(tool).await;
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
    // The unusual modern server keeps the first response in its state, and returns only the last
    // one.
    let marks: &[&str] = match cell.server_era {
        Era::Legacy => &[WHO, WHAT],
        Era::Modern => &[WHAT],
    };
    assert_asked(cell, "two_rounds", 2, marks).await;
}

pub(super) async fn both_at_once(cell: &Cell) {
    assert_asked(cell, "both", 2, &[WHO, WHAT]).await;
}

/// The server learns that the user declined.
pub(super) async fn refusal(cell: &Cell) {
    let declined = r#"{"action":"decline"}"#;
    cell.start().await;
    let result = match cell.client_era {
        Era::Legacy => {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{declined}}}"#);
            cell.client
                .set_answers(crate::answers().with("elicitation/create", &answer));
            cell.call_and_respond("elicit").await.0
        }
        Era::Modern => {
            let rounds = MultiRoundClient::new(&cell.client, &cell.meta());
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

/// A client without the capability gets no input request.
pub(super) async fn client_without_elicitation(cell: &Cell) {
    cell.start_with(r#"{"roots":{}}"#).await;
    if (cell.client_era, cell.server_era) == (Era::Legacy, Era::Legacy) {
        // The legacy server ignores capabilities, and the proxy forwards its requests within one
        // era.
        assert_eq!(cell.call_and_respond("elicit").await.1, 1);
        return;
    }
    let start = cell.client.n_received();
    let answer = cell.call("elicit", "{}").await;
    let received = cell.client.received_messages().split_off(start);
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

/// A request outside the specification reaches only clients of the same era. Otherwise the server
/// gets an error.
pub(super) async fn request_of_an_extension(cell: &Cell) {
    cell.start().await;
    let Some(sentence) = cell.sentence else {
        let (result, asked) = cell.call_and_respond("custom_request").await;
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
