use std::time::Duration;

use super::super::testing::{Scene, session};
use super::*;

const READS: &str = r#"{"readOnlyHint":true,"idempotentHint":true}"#;
const LOOKS: &str = r#"{"readOnlyHint":true}"#;
const RESULT: &str =
    r#"{"content":[{"type":"text","text":"found"}],"structuredContent":{"n":1.0}}"#;

fn scene() -> Scene {
    Scene::new(&[
        ("read", READS),
        ("look", LOOKS),
        ("write", "{}"),
        ("plain", "{}"),
    ])
}

fn repeated() -> RepeatedCalls {
    RepeatedCalls::new(RepeatedOptions {
        keep: Duration::from_mins(1),
        tools: vec![NamePattern::new("notes__plain")],
    })
}

fn begin(repeated: &RepeatedCalls, call: &GuardedCall<'_>) -> Begun {
    let effect = repeated.effect(call, &Names::of_call(call));
    repeated.begin(call, effect)
}

/// Returns what a call is answered with, and what is said of it; `None` of one that is made.
fn known(repeated: &RepeatedCalls, call: &GuardedCall<'_>) -> Option<String> {
    match begin(repeated, call) {
        Begun::Known(result, notice) => Some(format!("{result}\n{}", notice.text)),
        Begun::Goes(trace) => {
            repeated.over(&trace);
            None
        }
    }
}

/// Makes a call, which comes to a result.
fn made(repeated: &RepeatedCalls, call: &GuardedCall<'_>, result: &str) {
    if let Begun::Goes(trace) = begin(repeated, call) {
        repeated.ended(&trace, call.at, result);
        repeated.over(&trace);
    }
}

fn begun(repeated: &RepeatedCalls, call: &GuardedCall<'_>) -> Trace {
    match begin(repeated, call) {
        Begun::Goes(trace) => trace,
        Begun::Known(..) => panic!("it was answered"),
    }
}

#[test]
fn the_same_call_is_answered_with_what_is_known_and_says_so() {
    let (scene, repeated, read) = (scene(), repeated(), "read".into());
    let call = scene.call(&read, r#"{"a":1,"b":[2.0]}"#);
    assert_eq!(known(&repeated, &call), None);
    made(&repeated, &call, RESULT);
    let later = GuardedCall {
        at: call.at + Duration::from_secs(59),
        arguments: Some(r#" {"b":[2.0], "a":1} "#),
        ..call
    };
    let answer = known(&repeated, &later).unwrap();
    assert!(
        answer.contains(r#""structuredContent":{"n":1.0}"#),
        "{answer}"
    );
    assert!(answer.contains("the same call 59 seconds ago"), "{answer}");
    let too_late = GuardedCall {
        at: call.at + Duration::from_mins(1),
        ..call
    };
    assert_eq!(known(&repeated, &too_late), None);
}

#[test]
fn what_a_result_depends_on_makes_another_call_of_it() {
    let (scene, repeated, read) = (scene(), repeated(), "read".into());
    let other = Principal::named("other");
    let call = scene.call(&read, r#"{"a":1}"#);
    made(&repeated, &call, RESULT);
    for another in [
        GuardedCall {
            arguments: Some(r#"{"a":2}"#),
            ..call
        },
        GuardedCall {
            together: session(2),
            ..call
        },
        GuardedCall {
            principal: &other,
            ..call
        },
        GuardedCall {
            fingerprint: "another credential",
            ..call
        },
    ] {
        assert_eq!(known(&repeated, &another), None, "{another:?}");
    }
    assert!(known(&repeated, &call).is_some());
}

#[test]
fn only_tools_that_read_and_give_the_same_for_the_same_are_answered_so() {
    let (scene, repeated) = (scene(), repeated());
    for (tool, is_known) in [
        ("read", true),
        ("plain", true),
        ("look", false),
        ("write", false),
        ("unlisted", false),
    ] {
        let tool = tool.into();
        let call = scene.call(&tool, "{}");
        made(&repeated, &call, RESULT);
        assert_eq!(known(&repeated, &call).is_some(), is_known, "{tool}");
    }
}

#[test]
fn patterns_fit_the_name_with_its_upstream_before_any_list_was_asked_for() {
    let (scene, repeated, plain) = (scene(), repeated(), "plain".into());
    let call = GuardedCall {
        offer: None,
        ..scene.call(&plain, "{}")
    };
    made(&repeated, &call, RESULT);
    assert!(known(&repeated, &call).is_some());
}

#[test]
fn a_call_that_may_change_something_makes_unknown_what_was_read_before() {
    let (scene, read, look, write) = (scene(), "read".into(), "look".into(), "write".into());
    let repeated = repeated();
    let call = scene.call(&read, "{}");
    made(&repeated, &call, RESULT);
    known(&repeated, &scene.call(&look, "{}"));
    assert!(known(&repeated, &call).is_some(), "looking changes nothing");
    let elsewhere = GuardedCall {
        together: session(2),
        ..scene.call(&write, "{}")
    };
    known(&repeated, &elsewhere);
    assert!(
        known(&repeated, &call).is_some(),
        "it is of another session"
    );
    let change = begun(&repeated, &scene.call(&write, "{}"));
    // What is read while the change is under way may be from before it, whatever comes of that.
    let reading = begun(&repeated, &call);
    repeated.over(&change);
    repeated.ended(&reading, call.at, RESULT);
    assert_eq!(known(&repeated, &call), None);
    made(&repeated, &call, RESULT);
    assert!(known(&repeated, &call).is_some());
}

#[test]
fn what_was_read_before_a_change_is_no_answer_after_it() {
    let (scene, read, write) = (scene(), "read".into(), "write".into());
    let repeated = repeated();
    let call = scene.call(&read, "{}");
    let reading = begun(&repeated, &call);
    made(&repeated, &scene.call(&write, "{}"), RESULT);
    repeated.ended(&reading, call.at, RESULT);
    assert_eq!(known(&repeated, &call), None);
}

#[test]
fn a_call_that_is_answered_with_a_task_is_neither_answered_nor_kept() {
    let (scene, repeated, read) = (scene(), repeated(), "read".into());
    let call = scene.call(&read, "{}");
    made(&repeated, &call, RESULT);
    let task = GuardedCall {
        is_task: true,
        ..call
    };
    assert_eq!(known(&repeated, &task), None);
}

#[test]
fn what_went_wrong_or_goes_on_is_not_kept() {
    let (scene, repeated, read) = (scene(), repeated(), "read".into());
    let call = scene.call(&read, "{}");
    for result in [
        r#"{"content":[],"isError":true}"#,
        r#"{"resultType":"input_required","inputRequests":{}}"#,
        r#"{"task":{"taskId":"7","status":"working"}}"#,
        &format!(r#"{{"content":"{}"}}"#, "x".repeat(MAX_RESULT_BYTES)),
    ] {
        made(&repeated, &call, result);
        assert_eq!(known(&repeated, &call), None);
    }
    made(
        &repeated,
        &call,
        r#"{"resultType":"complete","content":[]}"#,
    );
    assert!(known(&repeated, &call).is_some());
}

#[test]
fn bytes_are_bounded_and_the_oldest_go_first() {
    let (scene, repeated, read) = (scene(), repeated(), "read".into());
    let result = format!(r#"{{"content":["{}"]}}"#, "x".repeat(1_000_000));
    let arguments: Vec<String> = (0..80).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    for arguments in &arguments {
        made(&repeated, &scene.call(&read, arguments), &result);
        assert!(repeated.lock().n_bytes <= MAX_BYTES);
    }
    assert_eq!(known(&repeated, &scene.call(&read, &arguments[0])), None);
    assert!(known(&repeated, &scene.call(&read, &arguments[79])).is_some());
    // The same call again takes the place of the one before.
    let before = repeated.lock().n_bytes;
    let later = GuardedCall {
        at: scene.start + Duration::from_mins(1),
        ..scene.call(&read, &arguments[79])
    };
    made(&repeated, &later, &result);
    assert_eq!(repeated.lock().n_bytes, before);
}
