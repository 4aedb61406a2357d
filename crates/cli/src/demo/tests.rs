//! Tests of all tools, through their tables.

use std::collections::BTreeSet;
use std::path::Path;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::DemoServer;
use super::sandbox::Sandbox;
use super::tool::Answer;

fn call(sandbox: &Sandbox, tool: &str, arguments: &str) -> Answer {
    let (server, name) = tool.split_once('.').unwrap();
    let tools = server.parse::<DemoServer>().unwrap().tools();
    let found = tools.iter().find(|tool| tool.name == name);
    let arguments: JsonObject = serde_json::from_str(arguments).unwrap();
    found.expect(tool).call(sandbox, &arguments)
}

/// One call of each tool at least, in an order in which they follow from each other.
const CALLS: &[(&str, &str, &str)] = &[
    (
        "files.read_file",
        r#"{"path":"README.md","max_lines":1}"#,
        "# Team folder",
    ),
    (
        "files.write_file",
        r#"{"path":"a/b.txt","content":"one"}"#,
        "wrote 3 bytes to a/b.txt",
    ),
    (
        "files.append_file",
        r#"{"path":"a/b.txt","content":"two\n"}"#,
        "a/b.txt has 2 lines",
    ),
    (
        "files.append_file",
        r#"{"path":"a/c.txt","content":"x"}"#,
        "a/c.txt has 1 lines",
    ),
    (
        "files.list_folder",
        r#"{"path":"a"}"#,
        "b.txt (8 bytes)\nc.txt (1 bytes)",
    ),
    (
        "files.create_folder",
        r#"{"path":"a/d"}"#,
        "the folder a/d exists",
    ),
    (
        "files.list_folder",
        r#"{"path":"a/d"}"#,
        "the folder is empty",
    ),
    (
        "files.copy_file",
        r#"{"from":"a/b.txt","to":"e/f.txt"}"#,
        "copied 8 bytes to e/f.txt",
    ),
    (
        "files.move_file",
        r#"{"from":"a/c.txt","to":"e/c.txt"}"#,
        "moved a/c.txt to e/c.txt",
    ),
    (
        "files.search_in_files",
        r#"{"query":"TWO","folder":"e"}"#,
        "e/f.txt:2: two",
    ),
    (
        "files.search_in_files",
        r#"{"query":"nowhere to be found"}"#,
        "no matches",
    ),
    (
        "files.file_info",
        r#"{"path":"e/f.txt"}"#,
        "e/f.txt: a file, 8 bytes, 2 lines",
    ),
    ("files.file_info", r#"{"path":"e"}"#, "e: a folder"),
    (
        "files.delete_file",
        r#"{"path":"e/f.txt"}"#,
        "deleted e/f.txt",
    ),
    ("notes.list_notes", "{}", "no notes"),
    (
        "notes.add_note",
        r#"{"text":" Buy oat milk ","tags":["Home"]}"#,
        "kept note 1",
    ),
    (
        "notes.add_note",
        r#"{"text":"Call the milkman"}"#,
        "kept note 2",
    ),
    (
        "notes.search_notes",
        r#"{"query":"milk oat"}"#,
        "1. Buy oat milk",
    ),
    (
        "notes.pin_note",
        r#"{"number":2,"state":"pinned"}"#,
        "note 2 is pinned",
    ),
    (
        "notes.list_notes",
        "{}",
        "2. Call the milkman\n1. Buy oat milk",
    ),
    (
        "notes.tag_note",
        r#"{"number":2,"tags":["home","phone"]}"#,
        "note 2 has the tags home, phone",
    ),
    ("notes.list_tags", "{}", "home: 2\nphone: 1"),
    (
        "notes.list_notes",
        r#"{"tag":"PHONE"}"#,
        "2. Call the milkman",
    ),
    (
        "notes.edit_note",
        r#"{"number":1,"text":"and tea","mode":"append"}"#,
        "changed note 1",
    ),
    (
        "notes.read_note",
        r#"{"number":1}"#,
        "1. Buy oat milk\nand tea (tags: home)",
    ),
    (
        "notes.export_notes",
        r#"{"path":"notes.md"}"#,
        "wrote 2 notes to notes.md",
    ),
    ("notes.delete_note", r#"{"number":1}"#, "deleted note 1"),
    ("notes.list_notes", "{}", "2. Call the milkman"),
    (
        "tracker.create_issue",
        r#"{"title":"Typo","priority":"low","labels":["bug"]}"#,
        "created issue 7",
    ),
    (
        "tracker.list_issues",
        r#"{"label":"feature"}"#,
        "3. [open, high, nobody] Export to CSV\n6. [open, low, nobody] Dark colours",
    ),
    (
        "tracker.search_issues",
        r#"{"query":"TYPO"}"#,
        "7. [open, low, nobody] Typo",
    ),
    (
        "tracker.update_issue",
        r#"{"number":7,"text":"On page 3"}"#,
        "changed issue 7",
    ),
    (
        "tracker.assign_issue",
        r#"{"number":7,"person":"Ada"}"#,
        "issue 7 is assigned to Ada",
    ),
    (
        "tracker.label_issue",
        r#"{"number":7,"labels":["bug","text"]}"#,
        "issue 7 has the labels bug, text",
    ),
    (
        "tracker.comment_issue",
        r#"{"number":7,"text":"Also on page 4"}"#,
        "issue 7 has 1 comments",
    ),
    (
        "tracker.close_issue",
        r#"{"number":7,"reason":"corrected"}"#,
        "issue 7 is closed",
    ),
    (
        "tracker.get_issue",
        r#"{"number":7}"#,
        "7. [closed, low, Ada] Typo\nlabels: bug, text\nOn page 3\n- Also on page 4\n- closed: corrected",
    ),
    (
        "tracker.issue_statistics",
        "{}",
        "6 open, 1 closed\nlow: 2\nnormal: 1\nhigh: 2\nurgent: 1\nlabel bug: 5\nlabel feature: 2\nlabel text: 1",
    ),
    ("tracker.reopen_issue", r#"{"number":7}"#, "issue 7 is open"),
    (
        "calendar.create_event",
        r#"{"title":"Call","date":"2026-12-07","time":"09:45","minutes":30}"#,
        "created event 5; it overlaps with Team meeting",
    ),
    (
        "calendar.event_conflicts",
        r#"{"date":"2026-12-07"}"#,
        "1. Team meeting and 5. Call",
    ),
    (
        "calendar.move_event",
        r#"{"number":5,"date":"2026-12-07","time":"13:00"}"#,
        "event 5 is on 2026-12-07 at 13:00",
    ),
    (
        "calendar.event_conflicts",
        r#"{"date":"2026-12-07"}"#,
        "no conflicts",
    ),
    (
        "calendar.invite",
        r#"{"number":5,"people":["Sam","Sam"]}"#,
        "event 5 is with Sam",
    ),
    (
        "calendar.add_reminder",
        r#"{"number":5,"minutes_before":10}"#,
        "reminder for event 5, 10 minutes before",
    ),
    (
        "calendar.get_event",
        r#"{"number":5}"#,
        "5. 2026-12-07 13:00-13:30 Call (Sam), reminder 10 minutes before",
    ),
    (
        "calendar.list_events",
        r#"{"from":"2026-12-07","to":"2026-12-08"}"#,
        "1. 2026-12-07 09:30-10:00 Team meeting (Ada, Lin)\n5. 2026-12-07 13:00-13:30 Call (Sam)\n2. 2026-12-08 10:00-11:00 Planning of release 2.4 (Ada, Lin)",
    ),
    (
        "calendar.find_free_time",
        r#"{"date":"2026-12-07","minutes":60}"#,
        "10:00-13:00\n13:30-17:00",
    ),
    (
        "calendar.week_overview",
        r#"{"date":"2026-12-09"}"#,
        "2026-12-07: 2 events, 01:00 hours\n2026-12-08: 1 events, 01:00 hours\n2026-12-09: 1 events, 01:00 hours\n2026-12-10: 1 events, 00:45 hours\n2026-12-11: 0 events, 00:00 hours\n2026-12-12: 0 events, 00:00 hours\n2026-12-13: 0 events, 00:00 hours",
    ),
    (
        "calendar.cancel_event",
        r#"{"number":5}"#,
        "event 5 is cancelled",
    ),
    (
        "text.word_count",
        r#"{"text":"one two\nthree\n"}"#,
        "2 lines, 3 words, 14 characters",
    ),
    (
        "text.compare",
        r#"{"before":"tea\nmilk","after":"tea\nhoney"}"#,
        " tea\n-milk\n+honey",
    ),
    (
        "text.slugify",
        r#"{"text":"  Über-Größe: 3 Tips! "}"#,
        "über-größe-3-tips",
    ),
    (
        "text.replace_text",
        r#"{"text":"a-b-c","find":"-","replacement":"+"}"#,
        "2 replacements\na+b+c",
    ),
    (
        "text.sort_lines",
        r#"{"text":"10 b\n9 a\n\nx","order":"numeric","direction":"descending"}"#,
        "10 b\n9 a\nx",
    ),
    ("text.sort_lines", r#"{"text":"b\nA"}"#, "A\nb"),
    (
        "text.unique_lines",
        r#"{"text":"a\nb \na\nb"}"#,
        "a\nb\n2 lines removed",
    ),
    (
        "text.change_case",
        r#"{"text":"éa bC","case":"title"}"#,
        "Éa Bc",
    ),
    (
        "text.extract",
        r#"{"text":"Ask <ada@example.com>, (ada@example.com).","kind":"mails"}"#,
        "ada@example.com",
    ),
    (
        "text.extract",
        r#"{"text":"none","kind":"links"}"#,
        "nothing found",
    ),
    (
        "text.extract",
        r#"{"text":"3 of 4.5","kind":"numbers"}"#,
        "3\n4.5",
    ),
    (
        "text.csv_to_json",
        r#"{"csv":"name,n\n\"Lin, A\",2"}"#,
        r#"[{"name":"Lin, A","n":2}]"#,
    ),
    (
        "text.json_value",
        r#"{"json":"{\"a\":[{\"b\":7}]}","path":"a.0.b"}"#,
        "7",
    ),
    ("calc.evaluate", r#"{"expression":"(2 + 3) * 4"}"#, "20"),
    (
        "calc.convert",
        r#"{"value":10,"from":"km","to":"mi"}"#,
        "10 km = 6.2137 mi",
    ),
    (
        "calc.days_between",
        r#"{"from":"2024-02-28","to":"2024-03-01"}"#,
        "2 days",
    ),
    (
        "calc.days_between",
        r#"{"from":"2024-03-01","to":"2024-02-28"}"#,
        "-2 days",
    ),
    (
        "calc.add_days",
        r#"{"date":"2024-02-28","days":2}"#,
        "2024-03-01, Friday",
    ),
    (
        "calc.weekday",
        r#"{"date":"2026-12-07"}"#,
        "Monday, week 50",
    ),
    (
        "calc.statistics",
        r#"{"numbers":[1,2,3,4]}"#,
        "count 4, sum 10, mean 2.5000, median 2.5, smallest 1, largest 4, standard deviation 1.1180",
    ),
    (
        "calc.percent_change",
        r#"{"before":200,"after":150}"#,
        "-25.00 %",
    ),
    ("calc.round_number", r#"{"value":2.345,"places":1}"#, "2.3"),
    (
        "calc.sum_column",
        r#"{"csv":"k,n\nb,1\na,2\nb,3","column":"n","group_by":"k"}"#,
        "3 rows\na: 2\nb: 4",
    ),
    (
        "calc.compound_interest",
        r#"{"amount":1000,"rate":5,"years":2}"#,
        "1102.50, of which 102.50 is interest",
    ),
];

/// Calls that fail, with a part of the answer.
const FAILURES: &[(&str, &str, &str)] = &[
    (
        "files.read_file",
        r#"{"path":"nosuch.md"}"#,
        "argument path: \"nosuch.md\": ",
    ),
    (
        "files.read_file",
        r#"{"path":"README.md","max_lines":-1}"#,
        "argument max_lines must be 0 or more",
    ),
    (
        "files.copy_file",
        r#"{"from":"README.md","to":"README.md"}"#,
        "argument to must be a path that does not",
    ),
    (
        "files.delete_file",
        r#"{"path":"data"}"#,
        "argument path: \"data\": ",
    ),
    (
        "notes.add_note",
        r#"{"text":"  "}"#,
        "argument text must be a text that is not empty",
    ),
    (
        "notes.tag_note",
        r#"{"number":1,"tags":[]}"#,
        "argument tags must be",
    ),
    (
        "notes.delete_note",
        r#"{"number":9}"#,
        "argument number: there is no note 9",
    ),
    (
        "notes.read_note",
        r#"{"number":0}"#,
        "argument number must be 1 or more",
    ),
    (
        "tracker.get_issue",
        r#"{"number":99}"#,
        "argument number: there is no issue 99",
    ),
    (
        "tracker.update_issue",
        r#"{"number":1}"#,
        "argument title, text or priority is missing",
    ),
    (
        "calendar.create_event",
        r#"{"title":"x","date":"2026-12-07","time":"25:00","minutes":30}"#,
        "argument time must be",
    ),
    (
        "calendar.find_free_time",
        r#"{"date":"2026-12-07","minutes":0}"#,
        "argument minutes must be 5 to 480",
    ),
    (
        "calendar.list_events",
        r#"{"from":"2026-02-30"}"#,
        "argument from must be a date",
    ),
    (
        "calendar.add_reminder",
        r#"{"number":1,"minutes_before":-5}"#,
        "argument minutes_before must be",
    ),
    ("text.slugify", r#"{"text":"?!"}"#, "argument text must be"),
    (
        "text.replace_text",
        r#"{"text":"a","find":"","replacement":""}"#,
        "argument find must be",
    ),
    (
        "text.csv_to_json",
        r#"{"csv":"a,b\n1"}"#,
        "argument csv: row 1 has 1 fields",
    ),
    (
        "text.json_value",
        r#"{"json":"{","path":""}"#,
        "argument json must be",
    ),
    (
        "text.json_value",
        r#"{"json":"{}","path":"a"}"#,
        "argument path must be",
    ),
    (
        "calc.evaluate",
        r#"{"expression":"1 / 0"}"#,
        "division by zero",
    ),
    (
        "calc.convert",
        r#"{"value":1,"from":"kg","to":"m"}"#,
        "kg and m do not measure the same thing",
    ),
    (
        "calc.days_between",
        r#"{"from":"2023-02-29","to":"2024-01-01"}"#,
        "argument from must be a date",
    ),
    (
        "calc.add_days",
        r#"{"date":"2026-01-01","days":99999999999}"#,
        "argument days must be",
    ),
    (
        "calc.statistics",
        r#"{"numbers":[]}"#,
        "argument numbers must be",
    ),
    (
        "calc.percent_change",
        r#"{"before":0,"after":1}"#,
        "argument before must be",
    ),
    (
        "calc.round_number",
        r#"{"value":1,"places":99}"#,
        "argument places must be 0 to 12",
    ),
    (
        "calc.sum_column",
        r#"{"csv":"k,n\nb,x","column":"n"}"#,
        "argument column: \"n\" is not a column",
    ),
    (
        "calc.compound_interest",
        r#"{"amount":1,"rate":-100,"years":1}"#,
        "argument rate must be",
    ),
];

#[test]
fn each_tool_answers_as_expected() {
    let sandbox = Sandbox::open(None).unwrap();
    for (tool, arguments, expected) in CALLS {
        assert_eq!(
            call(&sandbox, tool, arguments),
            Ok((*expected).into()),
            "{tool} {arguments}"
        );
    }
    let called: BTreeSet<String> = CALLS
        .iter()
        .map(|(tool, ..)| tool.replace('.', "__"))
        .collect();
    let definitions = DemoServer::ALL
        .iter()
        .flat_map(|server| server.definitions());
    let all: BTreeSet<String> = definitions.map(|tool| tool.name.to_string()).collect();
    assert_eq!(called, all);
}

#[test]
fn wrong_arguments_are_named() {
    let sandbox = Sandbox::open(None).unwrap();
    call(&sandbox, "notes.add_note", r#"{"text":"a"}"#).unwrap();
    for (tool, arguments, expected) in FAILURES {
        let failure = call(&sandbox, tool, arguments).unwrap_err().0;
        assert!(
            failure.starts_with(expected),
            "{tool} {arguments}: {failure}"
        );
    }
}

#[test]
fn each_parameter_is_checked() {
    let sandbox = Sandbox::open(None).unwrap();
    for tool in DemoServer::ALL.iter().flat_map(|server| server.tools()) {
        let definition = tool.definition();
        let schema = Value::Object((*definition.input_schema).clone());
        let mut unknown = JsonObject::new();
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(
                property["description"].as_str().unwrap().len() > 5,
                "{}",
                tool.name
            );
            unknown.insert(name.clone(), Value::Bool(true));
        }
        if let Some(first) = schema["required"][0].as_str() {
            let failure = tool.call(&sandbox, &JsonObject::new()).unwrap_err().0;
            assert_eq!(
                failure,
                format!("argument {first} is missing"),
                "{}",
                tool.name
            );
        }
        if let Some(first) = schema["properties"].as_object().unwrap().keys().next() {
            let failure = tool.call(&sandbox, &unknown).unwrap_err().0;
            let wrong = format!("argument {first} must be ");
            assert!(failure.starts_with(&wrong), "{}: {failure}", tool.name);
        } else {
            unknown.insert("odd".into(), Value::Null);
            let failure = tool.call(&sandbox, &unknown).unwrap_err().0;
            assert_eq!(failure, "unknown argument \"odd\"", "{}", tool.name);
        }
        let n_words = tool.description.split_whitespace().count();
        assert!((30..=80).contains(&n_words), "{}: {n_words}", tool.name);
    }
}

#[test]
fn nothing_outside_the_sandbox_is_reached() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.txt"), "secret").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::open(Some(folder.path())).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
    let absolute = outside.path().join("secret.txt");
    for path in [
        "../secret.txt",
        "data/../../secret.txt",
        "link/secret.txt",
        "link",
        absolute.to_str().unwrap(),
    ] {
        for (tool, arguments) in [
            ("files.read_file", serde_json::json!({"path": path})),
            (
                "files.write_file",
                serde_json::json!({"path": path, "content": "x"}),
            ),
            (
                "files.append_file",
                serde_json::json!({"path": path, "content": "x"}),
            ),
            ("files.list_folder", serde_json::json!({"path": path})),
            ("files.create_folder", serde_json::json!({"path": path})),
            ("files.delete_file", serde_json::json!({"path": path})),
            ("files.file_info", serde_json::json!({"path": path})),
            (
                "files.move_file",
                serde_json::json!({"from": "README.md", "to": path}),
            ),
            (
                "files.copy_file",
                serde_json::json!({"from": path, "to": "copy.txt"}),
            ),
            (
                "files.search_in_files",
                serde_json::json!({"query": "secret", "folder": path}),
            ),
            ("notes.export_notes", serde_json::json!({"path": path})),
        ] {
            let failure = call(&sandbox, tool, &arguments.to_string()).unwrap_err().0;
            assert!(
                failure.ends_with("is outside the sandbox folder"),
                "{tool}: {failure}"
            );
        }
    }
    let found = call(&sandbox, "files.search_in_files", r#"{"query":"secret"}"#);
    assert_eq!(found, Ok("no matches".into()));
    assert_eq!(
        std::fs::read_to_string(Path::new(&absolute)).unwrap(),
        "secret"
    );
}

#[tokio::test]
async fn each_server_speaks_both_revisions() {
    use super::{Connection, DemoClient, serve};
    for (client, server) in (DemoClient::ALL.iter())
        .flat_map(|client| DemoServer::ALL.iter().map(move |server| (*client, *server)))
    {
        let (near, far) = tokio::io::duplex(65_536);
        let serving = tokio::spawn(serve(server, None, far));
        let connection = Connection::over(client, near).await.unwrap();
        let listed = connection.list().await.unwrap();
        assert_eq!(listed.len(), server.tools().len());
        let wrong = connection.call("nosuch", &JsonObject::new()).await;
        assert!(format!("{:#}", wrong.unwrap_err()).contains("unknown tool"));
        connection.close().await.unwrap();
        serving.await.unwrap().unwrap();
    }
}
