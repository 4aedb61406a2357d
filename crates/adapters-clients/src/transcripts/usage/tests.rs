use proptest::prelude::*;

use super::*;
use crate::transcripts::event::{CallingAgent, TranscriptClient};

const DAY: Duration = Duration::from_hours(24);

fn call(server: &str, tool: &str, at: i64) -> RecordedCall {
    RecordedCall {
        client: TranscriptClient::Codex,
        session: "s".into(),
        project: None,
        call_id: "c".to_owned(),
        identity: 0,
        server: (!server.is_empty()).then(|| server.to_owned()),
        tool: tool.to_owned(),
        started_at: Timestamp::from_second(at).unwrap(),
        duration: None,
        outcome: CallOutcome::Success,
        agent: CallingAgent::Main,
        arguments: None,
    }
}

fn key(server: &str, tool: &str) -> ToolKey {
    ToolKey {
        server: server.to_owned(),
        tool: tool.to_owned(),
    }
}

fn figures(calls: &[RecordedCall]) -> UsageFigures {
    let mut usage = ToolUsage::default();
    for call in calls {
        usage.add(call);
    }
    usage.figures()
}

#[test]
fn figures_count_calls_by_tool_and_server() {
    let mut calls = vec![
        call("github", "search", 10),
        call("github", "search", 30),
        call("github", "search", 20),
        call("github", "create", 40),
        call("docs", "find", 5),
        call("", "Bash", 50),
    ];
    calls[0].outcome = CallOutcome::Error;
    calls[1].outcome = CallOutcome::Unknown;
    calls[3].outcome = CallOutcome::Cancelled;
    calls[3].duration = Some(Duration::from_mins(5));
    for (call, ms) in calls.iter_mut().zip([10, 20, 40]) {
        call.duration = Some(Duration::from_millis(ms));
    }
    let figures = figures(&calls);
    assert_eq!((figures.n_mcp_calls, figures.n_builtin_calls), (5, 1));
    let search = &figures.tools[0];
    assert_eq!(search.key, key("github", "search"));
    assert_eq!(
        (search.n_calls, search.n_errors, search.n_unknown),
        (3, 1, 1)
    );
    assert_eq!(search.last_used.as_second(), 30);
    let within = |duration: Option<Duration>, ms: u64| {
        let exact = Duration::from_millis(ms);
        duration.is_some_and(|it| it.abs_diff(exact) <= exact / 16)
    };
    assert!(within(search.median, 20), "{:?}", search.median);
    assert!(within(search.p95, 40), "{:?}", search.p95);
    let names: Vec<&str> = figures.tools.iter().map(|it| &*it.key.tool).collect();
    assert_eq!(names, ["search", "find", "create"]);
    let create = &figures.tools[2];
    // The time in which the user refused is not that of the tool.
    assert_eq!((create.n_cancelled, create.median), (1, None));
    assert_eq!(figures.servers.len(), 2);
    let github = &figures.servers[0];
    assert_eq!(
        (&*github.server, github.n_tools, github.n_calls),
        ("github", 2, 4)
    );
    assert_eq!((github.n_errors, github.last_used.as_second()), (1, 40));
}

#[test]
fn spellings_of_different_clients_are_one_tool() {
    let figures = figures(&[
        call("my_server", "get_user", 1),
        call("my-server", "get-user", 2),
        call("my_server", "other", 3),
    ]);
    assert_eq!(figures.tools[0].key, key("my-server", "get-user"));
    assert_eq!(figures.tools[0].n_calls, 2);
    assert_eq!(figures.servers.len(), 1);
    assert_eq!(figures.servers[0].server, "my-server");
}

#[test]
fn unused_tools_are_those_without_a_recent_call() {
    let day = 24 * 3600;
    let figures = figures(&[
        call("my.server", "get-user", 10 * day),
        call("my_server", "old", 9 * day),
    ]);
    let listed = [
        key("my-server", "get_user"),
        key("my-server", "old"),
        key("my-server", "never"),
        key("other", "get_user"),
    ];
    let unused = |now: i64, days: u32| {
        let now = Timestamp::from_second(now * day).unwrap();
        let unused = figures.unused_tools(&listed, now, DAY * days);
        unused.iter().map(|key| &*key.tool).collect::<Vec<_>>()
    };
    assert_eq!(unused(40, 30), ["old", "never", "get_user"]);
    assert_eq!(unused(40, 31), ["never", "get_user"]);
    assert_eq!(unused(41, 30), ["get_user", "old", "never", "get_user"]);
    assert_eq!(unused(40, u32::MAX), ["never", "get_user"]);
}

#[test]
fn few_tools_make_most_calls() {
    let mut calls = Vec::new();
    for (tool, n) in [("a", 90), ("b", 5), ("c", 4), ("d", 1)] {
        calls.extend((0..n).map(|at| call("s", tool, at)));
    }
    let figures = figures(&calls);
    for (share, n_tools) in [
        (0.0, 0),
        (0.5, 1),
        (0.9, 1),
        (0.95, 2),
        (0.951, 3),
        (1.0, 4),
    ] {
        assert_eq!(figures.n_tools_for(share), n_tools, "{share}");
    }
    assert_eq!(UsageFigures::default().n_tools_for(0.95), 0);
    assert_eq!(figures.n_tools_for(7.0), 4);
}

proptest! {
    #[test]
    fn sums_agree_and_no_smaller_number_of_tools_is_enough(
        numbers in prop::collection::vec((0_usize..3, 0_usize..6), 0..60),
        share in 0.0..=1.0_f64,
    ) {
        let calls: Vec<RecordedCall> = numbers
            .iter()
            .map(|(server, tool)| call(["", "a", "b"][*server], &format!("t{tool}"), 0))
            .collect();
        let figures = figures(&calls);
        let of_tools: u64 = figures.tools.iter().map(|it| it.n_calls).sum();
        let of_servers: u64 = figures.servers.iter().map(|it| it.n_calls).sum();
        prop_assert_eq!(of_tools, of_servers);
        prop_assert_eq!(figures.n_mcp_calls + figures.n_builtin_calls, calls.len() as u64);
        let n_tools = figures.n_tools_for(share);
        let sum = |n: usize| figures.tools.iter().take(n).map(|it| it.n_calls).sum::<u64>();
        #[expect(clippy::cast_precision_loss, reason = "at most 60 calls")]
        let is_enough = |n: usize| sum(n) as f64 >= figures.n_mcp_calls as f64 * share;
        prop_assert!(is_enough(n_tools));
        prop_assert!(n_tools == 0 || !is_enough(n_tools - 1));
    }
}
