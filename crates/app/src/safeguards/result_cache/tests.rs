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

fn new_cache() -> ResultCache {
    ResultCache::new(ResultCacheConfig {
        enabled: true,
        ttl: Duration::from_mins(1),
        tools: vec![NamePattern::new("notes__plain")],
    })
}

fn begin(repeated: &ResultCache, call: &GuardedCall<'_>) -> CacheLookup {
    let effect = repeated.effect(call, &ToolNames::of_call(call));
    repeated.begin(call, effect)
}

/// Returns the cached result of a call with its notice; `None` if the call is made.
fn cached_result(repeated: &ResultCache, call: &GuardedCall<'_>) -> Option<String> {
    match begin(repeated, call) {
        CacheLookup::Known(result, notice) => Some(format!("{result}\n{}", notice.text)),
        CacheLookup::Goes(trace) => {
            repeated.record_end(&trace);
            None
        }
    }
}

/// Makes a call with this result.
fn make_call(repeated: &ResultCache, call: &GuardedCall<'_>, result: &str) {
    if let CacheLookup::Goes(trace) = begin(repeated, call) {
        repeated.record_result(&trace, call.at, result);
        repeated.record_end(&trace);
    }
}

fn begin_call(repeated: &ResultCache, call: &GuardedCall<'_>) -> CacheEffect {
    match begin(repeated, call) {
        CacheLookup::Goes(trace) => trace,
        CacheLookup::Known(..) => panic!("it was answered"),
    }
}

#[test]
fn repeated_calls_get_cached_results_with_a_notice() {
    let (scene, repeated, read) = (scene(), new_cache(), "read".into());
    let call = scene.call(&read, r#"{"a":1,"b":[2.0]}"#);
    assert_eq!(cached_result(&repeated, &call), None);
    make_call(&repeated, &call, RESULT);
    let later = GuardedCall {
        at: call.at + Duration::from_secs(59),
        arguments: Some(r#" {"b":[2.0], "a":1} "#),
        ..call
    };
    let answer = cached_result(&repeated, &later).unwrap();
    assert!(
        answer.contains(r#""structuredContent":{"n":1.0}"#),
        "{answer}"
    );
    assert!(answer.contains("the same call 59 seconds ago"), "{answer}");
    let too_late = GuardedCall {
        at: call.at + Duration::from_mins(1),
        ..call
    };
    assert_eq!(cached_result(&repeated, &too_late), None);
}

#[test]
fn results_are_cached_per_arguments_session_principal_and_credential() {
    let (scene, repeated, read) = (scene(), new_cache(), "read".into());
    let other = Principal::from_name("other");
    let call = scene.call(&read, r#"{"a":1}"#);
    make_call(&repeated, &call, RESULT);
    for another in [
        GuardedCall {
            arguments: Some(r#"{"a":2}"#),
            ..call
        },
        GuardedCall {
            session_key: session(2),
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
        assert_eq!(cached_result(&repeated, &another), None, "{another:?}");
    }
    assert!(cached_result(&repeated, &call).is_some());
}

#[test]
fn only_read_only_idempotent_tools_are_cached() {
    let (scene, repeated) = (scene(), new_cache());
    for (tool, is_known) in [
        ("read", true),
        ("plain", true),
        ("look", false),
        ("write", false),
        ("unlisted", false),
    ] {
        let tool = tool.into();
        let call = scene.call(&tool, "{}");
        make_call(&repeated, &call, RESULT);
        assert_eq!(
            cached_result(&repeated, &call).is_some(),
            is_known,
            "{tool}"
        );
    }
}

#[test]
fn patterns_with_upstream_match_unlisted_tools() {
    let (scene, repeated, plain) = (scene(), new_cache(), "plain".into());
    let call = GuardedCall {
        catalog: None,
        ..scene.call(&plain, "{}")
    };
    make_call(&repeated, &call, RESULT);
    assert!(cached_result(&repeated, &call).is_some());
}

#[test]
fn writing_calls_invalidate_results_of_their_session() {
    let (scene, read, look, write) = (scene(), "read".into(), "look".into(), "write".into());
    let repeated = new_cache();
    let call = scene.call(&read, "{}");
    make_call(&repeated, &call, RESULT);
    cached_result(&repeated, &scene.call(&look, "{}"));
    assert!(
        cached_result(&repeated, &call).is_some(),
        "looking changes nothing"
    );
    let elsewhere = GuardedCall {
        session_key: session(2),
        ..scene.call(&write, "{}")
    };
    cached_result(&repeated, &elsewhere);
    assert!(
        cached_result(&repeated, &call).is_some(),
        "it is of another session"
    );
    let change = begin_call(&repeated, &scene.call(&write, "{}"));
    // A result read during a change may be from before it, whether the change succeeds or not.
    let reading = begin_call(&repeated, &call);
    repeated.record_end(&change);
    repeated.record_result(&reading, call.at, RESULT);
    assert_eq!(cached_result(&repeated, &call), None);
    make_call(&repeated, &call, RESULT);
    assert!(cached_result(&repeated, &call).is_some());
}

#[test]
fn reads_overlapping_a_write_are_not_cached() {
    let (scene, read, write) = (scene(), "read".into(), "write".into());
    let repeated = new_cache();
    let call = scene.call(&read, "{}");
    let reading = begin_call(&repeated, &call);
    make_call(&repeated, &scene.call(&write, "{}"), RESULT);
    repeated.record_result(&reading, call.at, RESULT);
    assert_eq!(cached_result(&repeated, &call), None);
}

#[test]
fn task_calls_bypass_the_cache() {
    let (scene, repeated, read) = (scene(), new_cache(), "read".into());
    let call = scene.call(&read, "{}");
    make_call(&repeated, &call, RESULT);
    let task = GuardedCall {
        is_task: true,
        ..call
    };
    assert_eq!(cached_result(&repeated, &task), None);
}

#[test]
fn failed_unfinished_or_huge_results_are_not_cached() {
    let (scene, repeated, read) = (scene(), new_cache(), "read".into());
    let call = scene.call(&read, "{}");
    for result in [
        r#"{"content":[],"isError":true}"#,
        r#"{"resultType":"input_required","inputRequests":{}}"#,
        r#"{"task":{"taskId":"7","status":"working"}}"#,
        &format!(r#"{{"content":"{}"}}"#, "x".repeat(MAX_RESULT_BYTES)),
    ] {
        make_call(&repeated, &call, result);
        assert_eq!(cached_result(&repeated, &call), None);
    }
    make_call(
        &repeated,
        &call,
        r#"{"resultType":"complete","content":[]}"#,
    );
    assert!(cached_result(&repeated, &call).is_some());
}

#[test]
fn bytes_are_bounded_and_the_oldest_go_first() {
    let (scene, repeated, read) = (scene(), new_cache(), "read".into());
    let result = format!(r#"{{"content":["{}"]}}"#, "x".repeat(1_000_000));
    let arguments: Vec<String> = (0..80).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    for arguments in &arguments {
        make_call(&repeated, &scene.call(&read, arguments), &result);
        assert!(repeated.known.lock().n_bytes <= MAX_BYTES);
    }
    assert_eq!(
        cached_result(&repeated, &scene.call(&read, &arguments[0])),
        None
    );
    assert!(cached_result(&repeated, &scene.call(&read, &arguments[79])).is_some());
    // The same call again replaces the earlier result.
    let before = repeated.known.lock().n_bytes;
    let later = GuardedCall {
        at: scene.start + Duration::from_mins(1),
        ..scene.call(&read, &arguments[79])
    };
    make_call(&repeated, &later, &result);
    assert_eq!(repeated.known.lock().n_bytes, before);
}
