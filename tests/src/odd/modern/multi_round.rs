//! Multi-round calls: results with `input_required`, and the repeated requests with the responses
//! of the client.

use super::{Exchange, catalog, request};
use crate::envelope::{Envelope, raw_at, string_at};
use crate::odd::session::{error, result_of};

/// One round: its input requests by key, the required capabilities of the client, and the state
/// that the repeated request has to return.
struct Round {
    requests: &'static [(&'static str, &'static str)],
    needs: &'static [&'static str],
    /// A JSON string with its quotes.
    state: Option<&'static str>,
}

const WHO: (&str, &str) = (
    r#""who \u00bf""#,
    r#"{"params":{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","x":null}}},"mode":"form","x":1.0},"method":"elicitation/create","x-unknown":1e3}"#,
);
const WHAT: (&str, &str) = (
    r#""2""#,
    r#"{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"q \u00bf"}}],"maxTokens":1e2,"temperature":0.70,"x-unknown":{"n":null}}}"#,
);
const WHERE: (&str, &str) = (
    r#""roots""#,
    r#"{"method":"roots/list","params":{"_meta":{"x":1.0}}}"#,
);

const ELICIT: Round = Round {
    requests: &[WHO],
    needs: &["elicitation"],
    state: Some(r#""el\u00efcit \/ \"1\" +==""#),
};
const SAMPLE: Round = Round {
    requests: &[WHAT],
    needs: &["sampling"],
    state: None,
};
const ROOTS: Round = Round {
    requests: &[WHERE],
    needs: &["roots"],
    state: Some(r#""""#),
};
const BOTH: Round = Round {
    requests: &[WHO, WHAT],
    needs: &["elicitation", "sampling"],
    state: Some(r#""both""#),
};
const THEN: Round = Round {
    requests: &[WHAT],
    needs: &["sampling"],
    state: Some(r#""second \ud83d\ude00""#),
};
const AGAIN: Round = Round {
    requests: &[],
    needs: &[],
    state: Some(r#""come back""#),
};

fn rounds(question: &str) -> Option<&'static [Round]> {
    Some(match question {
        "elicit" => &[ELICIT],
        "sample" => &[SAMPLE],
        "roots" => &[ROOTS],
        "both" => &[BOTH],
        "two_rounds" => &[ELICIT, THEN],
        "state_only" => &[AGAIN],
        _ => return None,
    })
}

pub(super) fn is_question(name: &str) -> bool {
    rounds(name).is_some()
}

/// Returns a capability that the client lacks for a question.
pub(super) fn lacks(exchange: &Exchange, question: &str) -> Option<&'static str> {
    let capabilities = exchange
        .reserved_meta("clientCapabilities")
        .unwrap_or_default();
    rounds(question)
        .into_iter()
        .flatten()
        .flat_map(|round| round.needs)
        .find(|needed| raw_at(&capabilities, &[needed]).is_none())
        .copied()
}

/// Returns the raw `inputResponses` when the client has answered all rounds.
///
/// # Errors
///
/// Returns the next question, or an error, as the message to send.
pub(super) fn ask(exchange: &Exchange, question: &str) -> Result<String, String> {
    let id = exchange.id.as_str();
    if let Some(capability) = lacks(exchange, question) {
        return Err(request::missing_capability_error(id, capability));
    }
    let rounds = rounds(question).unwrap_or_default();
    let given = exchange.param(&["inputResponses"]);
    let state = string_at(&exchange.params, &["requestState"]);
    let answered = match &state {
        Some(state) => {
            let at = rounds.iter().position(|round| {
                round
                    .state
                    .and_then(|known| serde_json::from_str::<String>(known).ok())
                    .as_ref()
                    == Some(state)
            });
            let Some(at) = at else {
                return Err(error(
                    id,
                    -32602,
                    "odd: not the state that was given",
                    "null",
                ));
            };
            Some(at)
        }
        None => (given.is_some() && rounds.iter().any(|round| round.state.is_none())).then_some(0),
    };
    let Some(at) = answered else {
        return Err(question_of(id, &rounds[0]));
    };
    let responses = given.unwrap_or_else(|| "{}".into());
    if !answers(&rounds[at], &responses) {
        return Err(question_of(id, &rounds[at]));
    }
    match rounds.get(at + 1) {
        Some(next) => Err(question_of(id, next)),
        None => Ok(responses),
    }
}

fn answers(round: &Round, responses: &str) -> bool {
    let Some(given) = Envelope::one(responses) else {
        return false;
    };
    round.requests.iter().all(|(key, _)| {
        serde_json::from_str::<String>(key).is_ok_and(|key| given.member(&key).is_some())
    })
}

fn question_of(id: &str, round: &Round) -> String {
    let mut members = vec![
        format!(r#""_meta":{{{}}}"#, catalog::IDENTITY),
        r#""x-round":1.0"#.into(),
    ];
    if !round.requests.is_empty() {
        let requests: Vec<String> = round
            .requests
            .iter()
            .map(|(key, request)| format!("{key}:{request}"))
            .collect();
        members.push(format!(r#""inputRequests":{{{}}}"#, requests.join(",")));
    }
    members.push(r#""resultType":"input_required""#.into());
    if let Some(state) = round.state {
        members.push(format!(r#""requestState":{state}"#));
    }
    result_of(id, &format!("{{{}}}", members.join(",")))
}
