//! Child processes as upstreams.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use riglm_adapters_mcp::upstream::{StartGate, StdioConnector, UpstreamLimits};
use riglm_ports::upstream::UpstreamError;

use crate::http_modern::modern;
use crate::support::{Connection, DEADLINE, Event, call, message, name, number};

/// Returns a connector that runs `script` with a shell.
pub(crate) fn shell(script: &str) -> StdioConnector {
    StdioConnector {
        failure_log: Arc::default(),
        name: name(),
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: BTreeMap::new(),
        directory: None,
        limits: UpstreamLimits {
            shutdown_grace: Duration::from_millis(300),
            ..UpstreamLimits::default()
        },
        guard: None,
        start_time: Arc::default(),
        gate: StartGate::default(),
    }
}

async fn open(script: &str) -> Connection {
    Connection::open(&shell(script)).await.unwrap()
}

/// Returns a script that first prints its process id, the id of its process group.
pub(crate) fn reporting_its_pid(script: &str) -> String {
    format!(r#"printf '{{"method":"pid","params":%s}}\n' $$; {script}"#)
}

pub(crate) async fn reported_pid(connection: &Connection) -> u32 {
    let Event::Received(message, None) = connection.event().await else {
        panic!("no process id");
    };
    let envelope = message.single().unwrap();
    message.params(envelope).unwrap().parse().unwrap()
}

/// Returns whether the group has a process that is not a zombie.
fn has_live_members(group: u32) -> bool {
    let stat = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(stat)
        .any(|stat| {
            let fields: Vec<&str> = stat
                .rsplit_once(')')
                .map(|(_, rest)| rest.split_whitespace().collect())
                .unwrap_or_default();
            fields.first() != Some(&"Z") && fields.get(2) == Some(&group.to_string().as_str())
        })
}

pub(crate) async fn assert_group_ends(group: u32) {
    let deadline = Instant::now() + DEADLINE;
    while has_live_members(group) {
        assert!(
            Instant::now() < deadline,
            "processes of group {group} are left"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_reaped(process: u32) -> bool {
    !Path::new(&format!("/proc/{process}")).exists()
}

#[tokio::test]
async fn messages_keep_their_order_and_their_bytes() {
    let connection = open("exec cat").await;
    for id in 0..1_000 {
        connection
            .send(&format!(r#"{{ "n":1e3,"id":{id}, "method":"m" }}"#))
            .await
            .unwrap();
    }
    for id in 0..1_000 {
        let event = connection.event().await;
        assert_eq!(
            event.text(),
            format!(r#"{{ "n":1e3,"id":{id}, "method":"m" }}"#)
        );
        assert_eq!(event.related_request(), None);
    }
    connection.close().await;
    assert!(connection.rest().await.is_empty());
}

#[tokio::test]
async fn a_message_of_one_mebibyte_passes_in_both_directions() {
    let connection = open("exec cat").await;
    let large = format!(r#"{{"id":1,"method":"{}"}}"#, "x".repeat(1024 * 1024));
    connection.send(&large).await.unwrap();
    assert!(
        connection.event().await.text() == large,
        "the message was changed"
    );
    connection.close().await;
}

#[tokio::test]
async fn a_message_over_several_lines_is_sent_as_one() {
    let connection = open("exec cat").await;
    connection
        .send("{\"id\":1,\n\"method\":\"m\"}")
        .await
        .unwrap();
    assert_eq!(connection.event().await.text(), r#"{"id":1, "method":"m"}"#);
    connection.close().await;
}

#[tokio::test]
async fn invalid_lines_are_skipped() {
    let connection = open(
        r#"printf 'hello\n\377\376\n\n \r\n[]\n{"method":"a"}\r\n{"x":\n{"method":"b"}\n'; exec cat"#,
    )
    .await;
    assert_eq!(connection.event().await.text(), r#"{"method":"a"}"#);
    assert_eq!(connection.event().await.text(), r#"{"method":"b"}"#);
    connection.send(&call(1)).await.unwrap();
    assert_eq!(connection.event().await.text(), call(1));
    connection.close().await;
}

#[tokio::test]
async fn oversized_answers_fail_only_their_request() {
    let mut connector = shell(
        r#"read line; printf '{"id":7,"result":"%05000d"}\n{"result":"%05000d","id":8}\n{"method":"a"}\n' 0 0; exec cat"#,
    );
    connector.limits.max_message_bytes = 2_000;
    let connection = Connection::open(&connector).await.unwrap();
    connection.send(&call(7)).await.unwrap();
    let too_large = UpstreamError::TooLarge { limit: 2_000 };
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(7), too_large.clone())
    );
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(8), too_large)
    );
    assert_eq!(connection.event().await.text(), r#"{"method":"a"}"#);
    connection.close().await;
}

#[tokio::test]
async fn process_exits_during_calls_are_reported_promptly_and_once() {
    let connection = open(r#"read line; printf '{"method":"last"}\n'; exit 3"#).await;
    connection.send(&call(1)).await.unwrap();
    let asked_at = Instant::now();
    assert_eq!(connection.event().await.text(), r#"{"method":"last"}"#);
    assert_eq!(
        connection.event().await.unwrap_lost().to_string(),
        "the connection was lost: the process ended (exit status: 3)"
    );
    assert!(asked_at.elapsed() < Duration::from_secs(1));
    assert!(connection.rest().await.is_empty());
    assert!(matches!(
        connection.send(&call(2)).await,
        Err(UpstreamError::Lost { .. })
    ));
    connection.close().await;
}

#[tokio::test]
async fn descendants_neither_hide_nor_survive_a_process_exit() {
    let connection = open(&reporting_its_pid("sleep 600 & read line; kill -9 $$")).await;
    let group = reported_pid(&connection).await;
    connection.send(&call(1)).await.unwrap();
    let asked_at = Instant::now();
    assert_eq!(
        connection.event().await.unwrap_lost().to_string(),
        "the connection was lost: the process ended (signal: 9 (SIGKILL))"
    );
    assert!(asked_at.elapsed() < Duration::from_secs(1));
    assert_group_ends(group).await;
}

#[tokio::test]
async fn processes_closing_their_output_are_reported_and_killed() {
    let connection = open(&reporting_its_pid("exec 1>&-; sleep 600")).await;
    let group = reported_pid(&connection).await;
    assert_eq!(
        connection.event().await.unwrap_lost().to_string(),
        "the connection was lost: the process closed its output"
    );
    connection.close().await;
    assert!(is_reaped(group));
    assert_group_ends(group).await;
}

#[tokio::test]
async fn closing_kills_processes_ignoring_signals() {
    let stubborn = "trap '' TERM HUP; (while :; do sleep 1; done) & while :; do sleep 1; done";
    let connection = open(&reporting_its_pid(stubborn)).await;
    let group = reported_pid(&connection).await;
    assert!(has_live_members(group));
    connection.close().await;
    assert!(is_reaped(group), "a zombie is left");
    assert_group_ends(group).await;
    assert!(connection.rest().await.is_empty());
}

#[tokio::test]
async fn closing_waits_for_the_process_and_drops_its_output() {
    let directory = tempfile::tempdir().unwrap();
    let mut connector = shell(r#"cat >got; printf '{"method":"late"}\n'"#);
    connector.directory = Some(directory.path().to_owned());
    let connection = Connection::open(&connector).await.unwrap();
    connection.send(&call(1)).await.unwrap();
    connection.close().await;
    connection.close().await;
    let got = std::fs::read_to_string(directory.path().join("got")).unwrap();
    assert_eq!(got, format!("{}\n", call(1)));
    assert!(connection.rest().await.is_empty());
}

#[tokio::test]
async fn dropping_the_link_ends_the_process() {
    let connection = open(&reporting_its_pid("trap '' TERM; sleep 600")).await;
    let group = reported_pid(&connection).await;
    drop(connection);
    assert_group_ends(group).await;
}

#[test]
fn dropping_the_runtime_ends_the_process() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (connection, group) = runtime.block_on(async {
        let connection = open(&reporting_its_pid("trap '' TERM; sleep 600")).await;
        let group = reported_pid(&connection).await;
        (connection, group)
    });
    runtime.shutdown_background();
    drop(connection);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(assert_group_ends(group));
}

#[tokio::test]
async fn aborted_sends_leave_no_partial_messages() {
    let connection = open("exec cat").await;
    let body = "x".repeat(100_000);
    for id in 0..50 {
        let sending = connection
            .link
            .send(message(&format!(r#"{{"id":{id},"method":"{body}"}}"#)));
        let _ = sending.now_or_never();
    }
    connection.send(r#"{"method":"last"}"#).await.unwrap();
    let mut last = -1;
    loop {
        let Event::Received(message, _) = connection.event().await else {
            panic!("the connection was lost");
        };
        let Some(id) = message.single().unwrap().id() else {
            break;
        };
        let id: i32 = id.to_json().parse().unwrap();
        assert!(id > last, "{id} came after {last}");
        last = id;
    }
    connection.close().await;
}

#[tokio::test]
async fn variables_and_directory_reach_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut connector =
        shell(r#"printf '{"method":"%s %s %s"}\n' "$ADDED" "$PWD" "${PATH:+path}""#);
    connector.environment = BTreeMap::from([("ADDED".into(), "a value".into())]);
    connector.directory = Some(directory.path().to_owned());
    let connection = Connection::open(&connector).await.unwrap();
    assert_eq!(
        connection.event().await.text(),
        format!(
            r#"{{"method":"a value {} path"}}"#,
            directory.path().display()
        )
    );
}

#[tokio::test]
async fn unstartable_programs_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "text").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();

    let mut connector = shell("");
    connector.program = "no-such-program-at-all".into();
    assert_eq!(
        Connection::open(&connector).await.unwrap_err().to_string(),
        "its command could not be started: \
         no-such-program-at-all: No such file or directory (os error 2)"
    );
    connector.program = plain.to_str().unwrap().into();
    assert_eq!(
        Connection::open(&connector).await.unwrap_err(),
        UpstreamError::NotStarted {
            reason: format!("{}: Permission denied (os error 13)", plain.display())
        }
    );
    connector.directory = Some(directory.path().join("missing"));
    assert_eq!(
        Connection::open(&connector).await.unwrap_err(),
        UpstreamError::NotStarted {
            reason: format!("{}: the working directory does not exist", plain.display())
        }
    );
}

#[tokio::test]
async fn a_flood_on_standard_error_does_not_stop_the_answers() {
    let connection = open(
        r#"head -c 3000000 /dev/zero >&2; printf '\n\033[31mred\n' >&2; read line; printf '{"id":1,"result":{}}\n'"#,
    )
    .await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(connection.event().await.text(), r#"{"id":1,"result":{}}"#);
}

#[tokio::test]
async fn modern_requests_are_answered_out_of_order_and_cancellable() {
    // Responds to the second request first, and to the first one after a cancellation.
    let script = r#"
        read -r first; read -r second
        printf '{"jsonrpc":"2.0","id":2,"result":{"got":%s}}\n' "$second"
        read -r third
        printf '{"jsonrpc":"2.0","id":1,"result":{"got":[%s,%s]}}\n' "$first" "$third"
        cat >/dev/null"#;
    let connection = open(script).await;
    let first = modern(1, "subscriptions/listen", r#""notifications":{}"#);
    let second = modern(2, "tools/call", r#""name":"n""#);
    let cancelled = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
    connection.send(&first).await.unwrap();
    connection.send(&second).await.unwrap();
    let event = connection.event().await;
    let expected = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"got":{second}}}}}"#);
    assert_eq!(event.text(), expected);
    assert_eq!(event.related_request(), None);
    connection.send(cancelled).await.unwrap();
    let expected =
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"got":[{first},{cancelled}]}}}}"#);
    assert_eq!(connection.event().await.text(), expected);
    connection.close().await;
}
