use super::*;

/// Adds events to a log, and returns what was passed on before its end and in all.
fn passed_on(options: &ReadOptions, fill: impl FnOnce(&mut SessionLog<'_, '_>)) -> [usize; 2] {
    let n_events = std::cell::Cell::new(0);
    let mut on_event = |_| n_events.set(n_events.get() + 1);
    let mut run = RunState {
        options,
        on_event: &mut on_event,
        known: HashSet::new(),
        sessions: HashSet::new(),
    };
    let client = TranscriptClient::Codex;
    let mut log = SessionLog::new(&mut run, client, "s", Timestamp::UNIX_EPOCH);
    fill(&mut log);
    let before = n_events.get();
    let mut counts = ClientSummary::default();
    log.end(&mut counts);
    assert_eq!(
        counts.n_mcp_calls + counts.n_messages,
        n_events.get() as u64
    );
    [before, n_events.get()]
}

fn start<'a>(call_id: &'a str, arguments: Option<&'a str>) -> CallStart<'a> {
    CallStart {
        call_id,
        tool: QualifiedTool {
            server: Some("docs".to_owned()),
            tool: "find".to_owned(),
        },
        at: Timestamp::UNIX_EPOCH,
        arguments,
        agent: CallingAgent::Main,
        identity: identity(&[call_id]),
    }
}

fn success() -> CallEnd {
    CallEnd {
        outcome: CallOutcome::Success,
        at: None,
        duration: None,
    }
}

#[test]
fn an_open_call_holds_back_what_follows_up_to_a_limit() {
    let options = ReadOptions::default();
    let passed = passed_on(&options, |log| {
        log.start(start("open", None));
        for number in 0..MAX_WAITING - 1 {
            let id = number.to_string();
            log.start(start(&id, None));
            log.finish(&id, &success());
        }
    });
    assert_eq!(passed, [0, MAX_WAITING]);
    let passed = passed_on(&options, |log| {
        log.start(start("open", None));
        for number in 0..MAX_WAITING {
            let id = number.to_string();
            log.start(start(&id, None));
            log.finish(&id, &success());
        }
        // Too late: the call was passed on without a result.
        log.finish("open", &success());
        log.set_tool("open", log.split("other"));
    });
    assert_eq!(passed, [MAX_WAITING + 1; 2]);
}

#[test]
fn waiting_arguments_have_a_limit() {
    let options = ReadOptions {
        max_argument_bytes: usize::MAX,
        ..ReadOptions::default()
    };
    let arguments = "x".repeat(1 << 20);
    let [before, all] = passed_on(&options, |log| {
        for number in 0..20 {
            log.start(start(&number.to_string(), Some(&arguments)));
        }
    });
    assert!(before >= 12 && all == 20, "{before} {all}");
}

#[test]
fn repeated_identifiers_end_the_last_call() {
    let options = ReadOptions::default();
    let passed = passed_on(&options, |log| {
        for second in 0..3 {
            let mut start = start("0", None);
            start.identity = second;
            log.start(start);
            log.finish("0", &success());
            log.finish("0", &success());
        }
    });
    assert_eq!(passed, [3, 3]);
}
