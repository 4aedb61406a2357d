//! Tests of all tools, through their descriptions.

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::answer::{CallFailure, Collection};
use super::server::DemoTool;
use super::{Connection, DemoClient, DemoServer, serve};

/// Returns the items of each server.
fn collections() -> Vec<(DemoServer, Collection)> {
    let servers = DemoServer::ALL.iter();
    let servers = servers.map(|server| (*server, server.data().collection.clone()));
    servers.collect()
}

fn call(
    collections: &mut [(DemoServer, Collection)],
    tool: &str,
    arguments: &str,
) -> Result<String, CallFailure> {
    let (server, name) = tool.split_once('.').unwrap();
    let server: DemoServer = server.parse().unwrap();
    let mut collections = collections.iter_mut();
    let (_, collection) = collections.find(|(known, _)| *known == server).unwrap();
    let mut tools = server.data().tools.iter();
    let found = tools.find(|tool| tool.definition.name == name);
    let arguments: JsonObject = serde_json::from_str(arguments).unwrap();
    found.expect(tool).call(collection, &arguments)
}

/// One call of each tool at least, in an order in which they follow from each other: the tool with
/// its arguments, and the answer.
const CALLS: &[(&str, &str)] = &[
    (
        r#"files.read_file {"path":"README.md","max_lines":1}"#,
        "# Team folder",
    ),
    (
        r#"files.write_file {"path":"a/b.txt","content":"one"}"#,
        "wrote 3 bytes to a/b.txt",
    ),
    (
        r#"files.append_file {"path":"a/b.txt","content":"two\n"}"#,
        "a/b.txt has 2 lines",
    ),
    (
        r#"files.append_file {"path":"a/c.txt","content":"x"}"#,
        "a/c.txt has 1 lines",
    ),
    (
        r#"files.list_folder {"path":"a"}"#,
        "a/b.txt (8 bytes)\na/c.txt (1 bytes)",
    ),
    (
        r#"files.create_folder {"path":"a/d"}"#,
        "the folder a/d exists",
    ),
    (r#"files.list_folder {"path":"./a/d/"}"#, "no files"),
    (
        r#"files.copy_file {"from":"a/b.txt","to":"e/f.txt"}"#,
        "copied 8 bytes to e/f.txt",
    ),
    (
        r#"files.move_file {"from":"a/c.txt","to":"e/c.txt"}"#,
        "moved a/c.txt to e/c.txt",
    ),
    (
        r#"files.search_in_files {"query":"TWO","folder":"e"}"#,
        "e/f.txt: two",
    ),
    (
        r#"files.search_in_files {"query":"nowhere to be found"}"#,
        "no files",
    ),
    (
        r#"files.file_info {"path":"e/f.txt"}"#,
        "e/f.txt: a file, 8 bytes, 2 lines",
    ),
    (r#"files.read_file {"path":"e/f.txt"}"#, "one\ntwo\n"),
    (r#"files.delete_file {"path":"e/f.txt"}"#, "deleted e/f.txt"),
    (r#"files.list_folder {"path":"e"}"#, "e/c.txt (1 bytes)"),
    ("notes.list_notes {}", "no notes"),
    (
        r#"notes.add_note {"text":"Buy oat milk","tags":["Home"]}"#,
        "kept note 1",
    ),
    (
        r#"notes.add_note {"text":"Call the milkman"}"#,
        "kept note 2",
    ),
    (
        r#"notes.search_notes {"query":"milk oat"}"#,
        "1. Buy oat milk",
    ),
    (
        r#"notes.pin_note {"number":2,"state":"pinned"}"#,
        "note 2 is pinned",
    ),
    (
        "notes.list_notes {}",
        "2. Call the milkman\n1. Buy oat milk",
    ),
    (
        r#"notes.tag_note {"number":2,"tags":["home","phone","phone"]}"#,
        "note 2 has the tags home, phone",
    ),
    ("notes.list_tags {}", "home, phone: note 2\nHome: note 1"),
    (r#"notes.list_notes {"tag":"PHONE"}"#, "2. Call the milkman"),
    (
        r#"notes.edit_note {"number":1,"text":"and tea","mode":"append"}"#,
        "changed note 1",
    ),
    (
        r#"notes.read_note {"number":1}"#,
        "1. Buy oat milk\nand tea (tags: Home; unpinned)",
    ),
    (
        r#"notes.edit_note {"number":2,"text":"Write"}"#,
        "changed note 2",
    ),
    (r#"notes.delete_note {"number":1}"#, "deleted note 1"),
    ("notes.list_notes {}", "2. Write"),
    (r#"notes.add_note {"text":"New"}"#, "kept note 3"),
    (
        r#"tracker.create_issue {"title":"Typo","priority":"low","labels":["bug"]}"#,
        "created issue 7",
    ),
    (
        r#"tracker.list_issues {"label":"feature"}"#,
        "3. [open, high, nobody] Export to CSV\n6. [open, low, nobody] Dark colours",
    ),
    (
        r#"tracker.search_issues {"query":"TYPO"}"#,
        "7. [open, low, nobody] Typo",
    ),
    (
        r#"tracker.update_issue {"number":7,"text":"On page 3"}"#,
        "changed issue 7",
    ),
    (
        r#"tracker.assign_issue {"number":7,"person":"Ada"}"#,
        "issue 7 is assigned to Ada",
    ),
    (
        r#"tracker.assign_issue {"number":7,"person":""}"#,
        "issue 7 is assigned to nobody",
    ),
    (
        r#"tracker.label_issue {"number":7,"labels":["bug","text"]}"#,
        "issue 7 has the labels bug, text",
    ),
    (
        r#"tracker.comment_issue {"number":7,"text":"Also on page 4"}"#,
        "comments of issue 7: Also on page 4",
    ),
    (
        r#"tracker.close_issue {"number":7,"reason":"corrected"}"#,
        "issue 7 is closed",
    ),
    (
        r#"tracker.get_issue {"number":7}"#,
        "7. [closed, low, nobody] Typo\nlabels: bug, text\nOn page 3\n\
         comments: Also on page 4, closed: corrected",
    ),
    (
        r#"tracker.list_issues {"state":"closed"}"#,
        "7. [closed, low, nobody] Typo",
    ),
    (
        r#"tracker.list_issues {"state":"all","label":"text"}"#,
        "7. [closed, low, nobody] Typo",
    ),
    (
        "tracker.issue_statistics {}",
        "6 issues are open:\nurgent: 5 (bug)\nhigh: 3 (feature)\nhigh: 4 (bug)\nnormal: 2 (bug)\n\
         low: 1 (bug)\nlow: 6 (feature)",
    ),
    (r#"tracker.reopen_issue {"number":7}"#, "issue 7 is open"),
    (
        r#"calendar.create_event {"title":"Call","date":"2026-12-07","time":"08:45","minutes":30}"#,
        "created event 5",
    ),
    (
        r#"calendar.event_conflicts {"date":"2026-12-07"}"#,
        "events of the day, of which those that overlap are in conflict:\n\
         5. 2026-12-07 08:45, 30 minutes, Call ()\n\
         1. 2026-12-07 09:30, 30 minutes, Team meeting (Ada, Lin)",
    ),
    (
        r#"calendar.move_event {"number":5,"date":"2026-12-08","time":"13:00"}"#,
        "event 5 is on 2026-12-08 at 13:00",
    ),
    (
        r#"calendar.invite {"number":5,"people":["Sam","Sam"]}"#,
        "event 5 is with Sam",
    ),
    (
        r#"calendar.add_reminder {"number":5,"minutes_before":10}"#,
        "reminder for event 5, 10 minutes before",
    ),
    (
        r#"calendar.get_event {"number":5}"#,
        "5. 2026-12-08 13:00, 30 minutes, Call (Sam), planned, reminder: 10 minutes before",
    ),
    (
        r#"calendar.list_events {"from":"2026-12-07","to":"2026-12-08"}"#,
        "1. 2026-12-07 09:30, 30 minutes, Team meeting (Ada, Lin)\n\
         2. 2026-12-08 10:00, 60 minutes, Planning of release 2.4 (Ada, Lin)\n\
         5. 2026-12-08 13:00, 30 minutes, Call (Sam)",
    ),
    (
        r#"calendar.find_free_time {"date":"2026-12-11","minutes":60}"#,
        "free 09:00-17:00, except during:\nno events",
    ),
    (
        r#"calendar.cancel_event {"number":5}"#,
        "event 5 is cancelled",
    ),
    (
        r#"calendar.list_events {"from":"2026-12-08"}"#,
        "2. 2026-12-08 10:00, 60 minutes, Planning of release 2.4 (Ada, Lin)",
    ),
    (
        r#"calendar.week_overview {"date":"2026-12-13"}"#,
        "events of the week: 4\n1. 2026-12-07 09:30, 30 minutes, Team meeting (Ada, Lin)\n\
         2. 2026-12-08 10:00, 60 minutes, Planning of release 2.4 (Ada, Lin)\n\
         3. 2026-12-09 12:00, 60 minutes, Lunch with Sam (Ada, Lin)\n\
         4. 2026-12-10 14:00, 45 minutes, Review of the survey (Ada, Lin)",
    ),
    (
        r#"calendar.week_overview {"date":"2026-12-14"}"#,
        "events of the week: 0\nno events",
    ),
    (
        r#"text.word_count {"text":"one two\nthree\n"}"#,
        "2 lines, 3 words, 14 characters",
    ),
    (
        r#"text.compare {"before":"tea\nmilk","after":"tea\nhoney"}"#,
        " tea\n-milk\n+honey",
    ),
    (
        r#"text.slugify {"text":"  Über-Größe: 3 Tips! "}"#,
        "über-größe-3-tips",
    ),
    (
        r#"text.replace_text {"text":"a-b-c","find":"-","replacement":"+"}"#,
        "a+b+c",
    ),
    (
        r#"text.sort_lines {"text":"b\nA","direction":"descending"}"#,
        "b\nA",
    ),
    (r#"text.sort_lines {"text":"b\nA"}"#, "A\nb"),
    (r#"text.unique_lines {"text":"a\nb\na\nb"}"#, "a\nb"),
    (
        r#"text.change_case {"text":"éa bC","case":"upper"}"#,
        "ÉA BC",
    ),
    (
        r#"text.change_case {"text":"éa bC","case":"lower"}"#,
        "éa bc",
    ),
    (
        r#"text.extract {"text":"Ask ada@example.com or lin@example.com","kind":"mails"}"#,
        "ada@example.com\nlin@example.com",
    ),
    (
        r#"text.csv_to_json {"csv":"name,score\nAda,4\nLin,5"}"#,
        "[{\"name\":\"Ada\",\"score\":4},\n{\"name\":\"Lin\",\"score\":5}]",
    ),
    (
        r#"text.json_value {"json":"{\"limits\": {\"rows\": 500}}","path":"limits.rows"}"#,
        "500",
    ),
    (r#"calc.evaluate {"expression":"6 * 7"}"#, "42"),
    (
        r#"calc.convert {"value":10,"from":"km","to":"mi"}"#,
        "10 km = 6.2137 mi",
    ),
    (
        r#"calc.days_between {"from":"2026-12-07","to":"2026-12-18"}"#,
        "11 days",
    ),
    (
        r#"calc.add_days {"date":"2026-12-07","days":14}"#,
        "2026-12-21, Monday",
    ),
    (r#"calc.weekday {"date":"2026-12-07"}"#, "Monday, week 50"),
    (
        r#"calc.statistics {"numbers":[4,5,4,3]}"#,
        "count 4, sum 16, mean 4.0000, median 4, smallest 3, largest 5, standard deviation 0.7071",
    ),
    (
        r#"calc.percent_change {"before":2150,"after":2320}"#,
        "+7.91 %",
    ),
    (r#"calc.round_number {"value":7.91,"places":1}"#, "7.9"),
    (
        r#"calc.sum_column {"csv":"region,month,amount\nnorth,2026-10,1310\nsouth,2026-10,1010","column":"amount"}"#,
        "2 rows\nsum: 2320",
    ),
    (
        r#"calc.compound_interest {"amount":1000,"rate":5,"years":2}"#,
        "1102.50, of which 102.50 is interest",
    ),
];

/// Calls that fail, with the answer.
const FAILURES: &[(&str, &str)] = &[
    (
        r#"files.read_file {"path":"nosuch.md"}"#,
        "argument path: there is no file \"nosuch.md\"",
    ),
    (
        r#"files.copy_file {"from":"nosuch.md","to":"a"}"#,
        "argument from: there is no file \"nosuch.md\"",
    ),
    (
        r#"files.copy_file {"from":"README.md","to":"README.md"}"#,
        "there is a file with this path already",
    ),
    (
        r#"files.move_file {"from":"README.md","to":"data/sales.csv"}"#,
        "there is a file with this path already",
    ),
    (
        r#"notes.delete_note {"number":9}"#,
        "argument number: there is no note 9",
    ),
    (
        r#"notes.export_notes {"path":"all.md"}"#,
        "the notes of the demonstration are in memory only: read them with list_notes",
    ),
    (
        r#"tracker.get_issue {"number":99}"#,
        "argument number: there is no issue 99",
    ),
    (
        r#"tracker.create_issue {"title":"a","priority":"odd"}"#,
        r#"argument priority must be one of ["low","normal","high","urgent"]"#,
    ),
    (
        r#"tracker.label_issue {"number":1,"labels":["a",2]}"#,
        "argument labels must be a list of type string",
    ),
    (
        r#"calendar.create_event {"title":"x","date":"2026-12-07","time":"25:00","minutes":30}"#,
        "argument time must be a time as HH:MM",
    ),
    (
        r#"calendar.list_events {"from":"2026-02-30"}"#,
        "argument from must be a date as YYYY-MM-DD",
    ),
    (
        r#"text.sort_lines {"text":"a","order":"numeric"}"#,
        "the demonstration sorts in alphabetical order only",
    ),
    (
        r#"calc.evaluate {"expression":"1 / 0"}"#,
        "division by zero",
    ),
    (
        r#"calc.evaluate {"expression":"1 + 1"}"#,
        r#"the demonstration has no answer for these arguments; it has one for {"expression":"6 * 7"}"#,
    ),
];

#[test]
fn each_tool_answers_as_expected() {
    let mut collections = collections();
    let mut called = BTreeSet::new();
    for (line, expected) in CALLS {
        let (tool, arguments) = line.split_once(' ').unwrap();
        let answer = call(&mut collections, tool, arguments);
        assert_eq!(answer, Ok((*expected).into()), "{line}");
        called.insert(tool.replace('.', "__"));
    }
    for (line, expected) in FAILURES {
        let (tool, arguments) = line.split_once(' ').unwrap();
        let answer = call(&mut collections, tool, arguments);
        assert_eq!(answer, Err(CallFailure((*expected).into())), "{line}");
        called.insert(tool.replace('.', "__"));
    }
    let servers = DemoServer::ALL.iter();
    let definitions = servers.flat_map(|server| server.definitions());
    let all: BTreeSet<String> = definitions.map(|tool| tool.name.to_string()).collect();
    assert_eq!(called, all);
}

#[test]
fn a_full_collection_takes_nothing_more() {
    let mut collections = collections();
    let mut add = || call(&mut collections, "notes.add_note", r#"{"text":"a"}"#);
    for _ in 0..1_000 {
        add().unwrap();
    }
    assert_eq!(
        add(),
        Err(CallFailure("limit of 1000 notes reached".into()))
    );
}

#[test]
fn each_parameter_is_checked() {
    for server in DemoServer::ALL {
        for tool in &server.data().tools {
            check_parameters(tool, server.data().collection.clone());
        }
    }
}

fn check_parameters(tool: &DemoTool, mut collection: Collection) {
    let definition = &tool.definition;
    let name = &definition.name;
    let schema = Value::Object((*definition.input_schema).clone());
    let mut failure = |arguments: &JsonObject| tool.call(&mut collection, arguments).unwrap_err().0;
    let mut wrong = JsonObject::new();
    for (parameter, property) in schema["properties"].as_object().unwrap() {
        let description = property["description"].as_str().unwrap();
        assert!(description.len() > 5, "{name}");
        wrong.insert(parameter.clone(), Value::Bool(true));
    }
    if let Some(first) = schema["required"][0].as_str() {
        let missing = format!("argument {first} is missing");
        assert_eq!(failure(&JsonObject::new()), missing, "{name}");
    }
    if let Some(first) = wrong.keys().next() {
        let failure = failure(&wrong);
        let wrong = format!("argument {first} must be ");
        assert!(failure.starts_with(&wrong), "{name}: {failure}");
    } else {
        wrong.insert("odd".into(), Value::Null);
        assert_eq!(failure(&wrong), "unknown argument \"odd\"", "{name}");
    }
    let description = definition.description.as_deref().unwrap_or_default();
    let n_words = description.split_whitespace().count();
    assert!((30..=80).contains(&n_words), "{name}: {n_words}");
}

#[tokio::test]
async fn each_server_speaks_both_revisions() {
    for (client, server) in (DemoClient::ALL.iter())
        .flat_map(|client| DemoServer::ALL.iter().map(move |server| (*client, *server)))
    {
        let (near, far) = tokio::io::duplex(65_536);
        let serving = tokio::spawn(serve(server, far));
        let connection = Connection::over(client, near).await.unwrap();
        let listed = connection.list().await.unwrap();
        assert_eq!(listed.len(), server.data().tools.len());
        let wrong = connection.call("nosuch", &JsonObject::new()).await;
        assert!(format!("{:#}", wrong.unwrap_err()).contains("unknown tool"));
        connection.close().await.unwrap();
        serving.await.unwrap().unwrap();
    }
}
