use super::*;

fn message(text: &str) -> Message {
    Message::parse(&Bytes::from(text.to_owned())).unwrap()
}

fn id(number: u32) -> RequestId {
    RequestId::Number(number.to_string().into())
}

fn note(text: &str) -> Message {
    message(&format!(r#"{{"jsonrpc":"2.0","method":"{text}"}}"#))
}

fn answer(number: u32) -> Message {
    message(&format!(
        r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#
    ))
}

async fn take(log: &EventLog, cursor: &mut Cursor) -> Option<(u64, bool)> {
    log.next(cursor)
        .await
        .map(|event| (event.number, event.is_last))
}

#[tokio::test]
async fn a_stream_ends_with_the_answer_to_its_request() {
    let log = EventLog::new();
    let mut cursor = log.open(&[id(1)]).unwrap();
    log.push(&note("a"), &Route::Related(id(1))).await;
    log.push(&answer(1), &Route::Related(id(1))).await;
    assert_eq!(take(&log, &mut cursor).await, Some((1, false)));
    assert_eq!(take(&log, &mut cursor).await, Some((2, true)));
    assert_eq!(take(&log, &mut cursor).await, None);
}

#[tokio::test]
async fn a_stream_of_a_batch_ends_with_its_last_answer() {
    let log = EventLog::new();
    let mut cursor = log.open(&[id(1), id(2)]).unwrap();
    log.push(&answer(2), &Route::Related(id(2))).await;
    log.push(&answer(1), &Route::Related(id(1))).await;
    assert_eq!(take(&log, &mut cursor).await, Some((1, false)));
    assert_eq!(take(&log, &mut cursor).await, Some((2, true)));
}

#[tokio::test]
async fn an_id_in_flight_cannot_be_used_again_and_afterwards_can() {
    let log = EventLog::new();
    log.open(&[id(1)]).unwrap();
    assert_eq!(log.open(&[id(1)]).unwrap_err(), StreamError::DuplicateId);
    assert_eq!(
        log.open(&[id(2), id(2)]).unwrap_err(),
        StreamError::DuplicateId
    );
    log.push(&answer(1), &Route::Related(id(1))).await;
    assert!(log.open(&[id(1)]).is_ok());
}

#[tokio::test]
async fn what_belongs_to_no_request_waits_for_a_listener() {
    let log = EventLog::new();
    log.push(&note("a"), &Route::Standalone).await;
    log.push(&note("b"), &Route::Related(id(9))).await;
    log.push(&answer(9), &Route::Related(id(9))).await; // Nobody waits for it.
    let mut cursor = log.listen().unwrap();
    assert_eq!(take(&log, &mut cursor).await, Some((1, false)));
    assert_eq!(take(&log, &mut cursor).await, Some((2, false)));
    log.push(&note("c"), &Route::Standalone).await;
    let mut later = log.listen().unwrap();
    assert_eq!(take(&log, &mut later).await, Some((3, false)));
    assert_eq!(
        take(&log, &mut cursor).await,
        None,
        "the newer listener took charge"
    );
}

#[tokio::test]
async fn a_broken_stream_is_resumed_without_loss_or_repetition() {
    let log = EventLog::new();
    let mut cursor = log.open(&[id(1)]).unwrap();
    log.push(&note("a"), &Route::Related(id(1))).await;
    log.push(&note("b"), &Route::Related(id(1))).await;
    take(&log, &mut cursor).await;
    take(&log, &mut cursor).await;
    log.leave(&cursor);
    log.push(&answer(1), &Route::Related(id(1))).await;
    let mut resumed = log.resume("1-1").unwrap();
    assert_eq!(take(&log, &mut resumed).await, Some((2, false)));
    assert_eq!(take(&log, &mut resumed).await, Some((3, true)));
    assert_eq!(log.resume("1-3").map(|cursor| cursor.stream), Ok(1));
    for unknown in ["1-4", "7-1", "x", "1-x", ""] {
        assert_eq!(
            log.resume(unknown).unwrap_err(),
            StreamError::UnknownEvent,
            "{unknown}"
        );
    }
}

#[tokio::test]
async fn a_finished_request_ends_its_stream_without_an_answer() {
    let log = EventLog::new();
    let mut cursor = log.open(&[id(1)]).unwrap();
    log.finish(&id(1));
    assert_eq!(take(&log, &mut cursor).await, None);
}

#[tokio::test]
async fn what_was_taken_is_kept_only_up_to_the_limit() {
    let log = EventLog::new();
    for number in 1..100 {
        let mut cursor = log.open(&[id(number)]).unwrap();
        log.push(&answer(number), &Route::Related(id(number))).await;
        assert_eq!(take(&log, &mut cursor).await, Some((1, true)));
    }
    assert!(log.lock().by_number.len() <= KEPT_STREAMS + 1);
    assert_eq!(log.resume("1-0").unwrap_err(), StreamError::UnknownEvent);
    assert!(log.resume("99-0").is_ok());
}

#[tokio::test]
async fn an_answer_that_was_not_taken_is_kept_beyond_the_limit_of_taken_ones() {
    let log = EventLog::new();
    let big = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#,
        "x".repeat(KEPT_BYTES * 2)
    );
    let mut cursor = log.open(&[id(1)]).unwrap();
    log.push(&message(&big), &Route::Related(id(1))).await;
    for number in 2..50 {
        let mut other = log.open(&[id(number)]).unwrap();
        log.push(&answer(number), &Route::Related(id(number))).await;
        take(&log, &mut other).await;
    }
    assert_eq!(take(&log, &mut cursor).await, Some((1, true)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_makes_the_sender_wait_but_not_for_ever() {
    let log = EventLog::new();
    let _cursor = log.open(&[id(1)]).unwrap();
    let text = format!(
        r#"{{"method":"m","params":["{}"]}}"#,
        "x".repeat(MAX_UNREAD_BYTES)
    );
    log.push(&message(&text), &Route::Related(id(1))).await;
    let before = tokio::time::Instant::now();
    log.push(&note("a"), &Route::Related(id(1))).await;
    assert_eq!(before.elapsed().as_secs(), MAX_WAIT.as_secs());
}

#[tokio::test]
async fn a_closed_log_ends_its_readers_and_takes_nothing() {
    let log = EventLog::new();
    let mut cursor = log.listen().unwrap();
    log.close();
    log.push(&note("a"), &Route::Standalone).await;
    assert_eq!(take(&log, &mut cursor).await, None);
    assert_eq!(log.listen().unwrap_err(), StreamError::Closed);
}

#[tokio::test]
async fn only_an_answer_without_an_id_stands_for_the_request_of_its_stream() {
    let log = EventLog::new();
    let mut cursor = log.open(&[id(1)]).unwrap();
    log.push(&answer(9), &Route::Related(id(1))).await;
    let nobody = message(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#);
    log.push(&nobody, &Route::Related(id(1))).await;
    assert_eq!(take(&log, &mut cursor).await, Some((1, false)));
    assert_eq!(take(&log, &mut cursor).await, Some((2, true)));
}
