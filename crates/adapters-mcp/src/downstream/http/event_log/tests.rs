use super::retention::{
    KEPT_BYTES, KEPT_LAST_BYTES, KEPT_STREAMS, MAX_WAITING_EVENTS, RetentionTotals,
};
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

fn big_answer(number: u32, size: usize) -> Message {
    let text = "x".repeat(size);
    message(&format!(
        r#"{{"jsonrpc":"2.0","id":{number},"result":"{text}"}}"#
    ))
}

/// Opens the stream of a request that is answered by server-sent events.
fn open_published(log: &EventLog, number: u32) -> StreamCursor {
    let cursor = log.open(&[id(number)]).unwrap();
    log.publish(cursor.stream);
    cursor
}

/// Checks the totals against a fresh count.
fn assert_totals(log: &EventLog) {
    let streams = log.streams.lock();
    let shares = streams.by_number.values().map(RetentionTotals::of);
    let counted = shares.fold(RetentionTotals::default(), |sum, share| RetentionTotals {
        waiting: sum.waiting + share.waiting,
        waiting_bytes: sum.waiting_bytes + share.waiting_bytes,
        last_bytes: sum.last_bytes + share.last_bytes,
        earlier_bytes: sum.earlier_bytes + share.earlier_bytes,
    });
    assert_eq!(streams.totals, counted);
}

async fn take(log: &EventLog, cursor: &mut StreamCursor) -> Option<(u64, bool)> {
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
async fn messages_without_a_request_wait_for_a_listener() {
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

#[test]
fn client_returns_are_notified_after_pending_departures() {
    let log = EventLog::new();
    let cursor = open_published(&log, 1);
    let told = Mutex::new(Vec::new());
    let tell = |presence| told.lock().push(presence);
    let (log, tell) = (&log, &tell);
    log.leave(&cursor);
    let (start, started) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        let stream = cursor.stream;
        threads.spawn(move || {
            log.with_unanswered_requests(stream, ClientPresence::Left, |_| {
                start.send(()).unwrap();
                // Long enough for the other thread, if nothing stops it.
                let _ = ended.recv_timeout(Duration::from_millis(200));
                tell(ClientPresence::Left);
            });
        });
        started.recv().unwrap();
        let mut streams = log.streams.lock();
        streams.read_from(cursor.stream, 1);
        drop(streams);
        log.with_unanswered_requests(cursor.stream, ClientPresence::Back, |_| {
            tell(ClientPresence::Back);
        });
        let _ = end.send(()); // The other thread may have stopped waiting.
    });
    assert_eq!(*told.lock(), [ClientPresence::Left, ClientPresence::Back]);
    // An outdated notification is not sent.
    log.with_unanswered_requests(cursor.stream, ClientPresence::Left, |_| {
        tell(ClientPresence::Left);
    });
    assert_eq!(told.lock().len(), 2);
}

#[tokio::test]
async fn a_broken_stream_is_resumed_without_loss_or_repetition() {
    let log = EventLog::new();
    let mut cursor = open_published(&log, 1);
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
async fn delivered_streams_are_kept_up_to_a_limit() {
    let log = EventLog::new();
    for number in 1..100 {
        let mut cursor = open_published(&log, number);
        log.push(&answer(number), &Route::Related(id(number))).await;
        assert_eq!(take(&log, &mut cursor).await, Some((1, true)));
    }
    assert!(log.streams.lock().by_number.len() <= KEPT_STREAMS + 1);
    assert_eq!(log.resume("1-0").unwrap_err(), StreamError::UnknownEvent);
    assert!(log.resume("99-0").is_ok());
}

#[tokio::test]
async fn unread_answers_are_kept_beyond_the_retention_limit() {
    let log = EventLog::new();
    let mut cursor = open_published(&log, 1);
    log.push(&big_answer(1, KEPT_BYTES * 2), &Route::Related(id(1)))
        .await;
    for number in 2..50 {
        let mut other = open_published(&log, number);
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
async fn streams_end_with_their_answer_or_one_without_id() {
    let log = EventLog::new();
    let mut cursor = log.open(&[id(1)]).unwrap();
    log.push(&answer(9), &Route::Related(id(1))).await;
    let nobody = message(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#);
    log.push(&nobody, &Route::Related(id(1))).await;
    assert_eq!(take(&log, &mut cursor).await, Some((1, false)));
    assert_eq!(take(&log, &mut cursor).await, Some((2, true)));
}

#[tokio::test]
async fn large_answers_are_resumable_until_other_streams_displace_them() {
    let log = EventLog::new();
    let mut cursor = open_published(&log, 1);
    log.push(&big_answer(1, KEPT_BYTES * 2), &Route::Related(id(1)))
        .await;
    take(&log, &mut cursor).await;
    log.leave(&cursor);
    let mut resumed = log.resume("1-0").unwrap();
    assert_eq!(take(&log, &mut resumed).await, Some((1, true)));
    for number in 2..20 {
        let mut other = open_published(&log, number);
        log.push(&answer(number), &Route::Related(id(number))).await;
        take(&log, &mut other).await;
    }
    assert_eq!(log.resume("1-0").unwrap_err(), StreamError::UnknownEvent);
}

#[tokio::test]
async fn large_answers_are_kept_up_to_a_limit_for_the_session() {
    let log = EventLog::new();
    let sizes = [
        KEPT_LAST_BYTES / 2,
        10,
        KEPT_LAST_BYTES,
        KEPT_LAST_BYTES / 3,
    ];
    for (number, size) in (1..).zip(sizes) {
        let mut cursor = open_published(&log, number);
        log.push(&big_answer(number, size), &Route::Related(id(number)))
            .await;
        take(&log, &mut cursor).await;
        log.leave(&cursor);
    }
    let is_kept = |event| log.resume(event).is_ok();
    assert!(!is_kept("3-0"), "too large by itself");
    assert!(is_kept("1-0") && is_kept("2-0") && is_kept("4-0"));
    let mut cursor = open_published(&log, 5);
    log.push(&big_answer(5, KEPT_LAST_BYTES / 3), &Route::Related(id(5)))
        .await;
    take(&log, &mut cursor).await;
    assert!(!is_kept("1-0"), "the oldest large one");
    assert!(is_kept("2-0") && is_kept("4-0") && is_kept("5-0"));
    assert_totals(&log);
}

#[tokio::test]
async fn large_events_of_open_streams_are_bounded() {
    let log = EventLog::new();
    let text = format!(r#"{{"method":"m","params":["{}"]}}"#, "x".repeat(1 << 20));
    for number in 1..9 {
        let mut cursor = open_published(&log, number);
        log.push(&message(&text), &Route::Related(id(number))).await;
        take(&log, &mut cursor).await;
    }
    assert!(log.streams.lock().totals.last_bytes <= KEPT_LAST_BYTES);
    assert_totals(&log);
}

#[tokio::test(start_paused = true)]
async fn requests_abandoned_before_their_response_leave_no_data() {
    let log = Arc::new(EventLog::new());
    let text = format!(
        r#"{{"method":"m","params":["{}"]}}"#,
        "x".repeat(MAX_UNREAD_BYTES)
    );
    for number in 1..50 {
        let seat = StreamReader::new(Arc::clone(&log), log.open(&[id(number)]).unwrap());
        log.push(&message(&text), &Route::Related(id(number))).await;
        drop(seat);
        let before = tokio::time::Instant::now();
        log.push(&answer(number), &Route::Related(id(number))).await;
        assert!(before.elapsed().is_zero(), "nobody is waited for");
        let answered = StreamReader::new(Arc::clone(&log), log.open(&[id(number)]).unwrap());
        log.push(&answer(number), &Route::Related(id(number))).await;
        drop(answered);
    }
    assert_eq!(
        log.streams.lock().by_number.len(),
        1,
        "only the standalone stream"
    );
    assert_eq!(log.streams.lock().totals, RetentionTotals::default());
}

#[tokio::test]
async fn a_broken_stream_is_kept_although_its_request_is_answered_later() {
    let log = Arc::new(EventLog::new());
    let seat = StreamReader::new(Arc::clone(&log), log.open(&[id(1)]).unwrap());
    seat.publish();
    drop(seat);
    log.push(&answer(1), &Route::Related(id(1))).await;
    let mut resumed = log.resume("1-0").unwrap();
    assert_eq!(take(&log, &mut resumed).await, Some((1, true)));
}

#[tokio::test]
async fn unread_events_are_limited_in_number() {
    let log = EventLog::new();
    let n_pushed = MAX_WAITING_EVENTS + 50_000;
    let note = note("a");
    for _ in 0..n_pushed {
        log.push(&note, &Route::Standalone).await;
    }
    assert_eq!(log.streams.lock().totals.waiting, MAX_WAITING_EVENTS);
    assert_totals(&log);
    let mut cursor = log.listen().unwrap();
    let oldest = (n_pushed - MAX_WAITING_EVENTS + 1) as u64;
    assert_eq!(take(&log, &mut cursor).await, Some((oldest, false)));
    assert_totals(&log);
}

#[tokio::test]
async fn retention_totals_match_the_streams() {
    let log = EventLog::new();
    for number in 1..60 {
        let mut cursor = open_published(&log, number);
        for size in [40_000, 10, 200_000] {
            let text = format!(r#"{{"method":"m","params":["{}"]}}"#, "x".repeat(size));
            log.push(&message(&text), &Route::Related(id(number))).await;
            log.push(&message(&text), &Route::Standalone).await;
            if number % 3 > 0 {
                take(&log, &mut cursor).await;
            }
        }
        match number % 4 {
            0 => log.leave(&cursor),
            1 => log.finish(&id(number)),
            2 => log.push(&answer(number), &Route::Related(id(number))).await,
            _ => drop(log.resume(&format!("{number}-1"))),
        }
        assert_totals(&log);
    }
}

#[tokio::test]
async fn the_end_of_a_stream_can_be_waited_for() {
    let log = EventLog::new();
    let cursor = open_published(&log, 1);
    let over = log.wait_until_over(cursor.stream);
    tokio::pin!(over);
    assert!(!log.is_over(cursor.stream) && futures_util::poll!(&mut over).is_pending());
    log.push(&answer(1), &Route::Related(id(1))).await;
    assert!(log.is_over(cursor.stream) && futures_util::poll!(&mut over).is_ready());
    let other = log.open(&[id(2)]).unwrap();
    log.close();
    assert!(log.is_over(other.stream));
}
