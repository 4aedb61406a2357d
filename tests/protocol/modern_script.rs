//! A script of revision 2026-07-28 with the unusual server that covers every message.

use riglm_tests::modern::Meta;
use riglm_tests::normalise::Masks;
use riglm_tests::script::{Script, Step};

/// A subscription filter with everything.
const EVERYTHING: &str = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["odd://r/1","odd://r/\u0032"]}"#;

pub(crate) fn everything() -> Script {
    let mut steps = lists();
    steps.extend(calls());
    steps.extend(mirrored_calls());
    steps.extend(rounds());
    steps.extend(reads());
    steps.extend(subscriptions());
    steps.extend(cancellations());
    steps.extend(logs());
    steps.extend(tasks());
    steps.extend(extensions());
    let meta = Meta::default()
        .and(r#""x.example/k":[1.0,{"b":null,"a":1e3}],"traceparent":"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01""#);
    steps.push(Step::request(
        "what the server saw",
        &meta.call("\"seen\"", "seen", r#"{"b":1.0,"a":"\u00e9"}"#),
    ));
    Script::new(Masks::default(), steps)
}

fn request(id: &str, method: &str, params: &str) -> Step {
    Step::request(
        &format!("{method} {params}"),
        &Meta::default().request(id, method, params),
    )
}

fn lists() -> Vec<Step> {
    vec![
        request("\"discover \\u00e9\"", "server/discover", ""),
        request("1", "tools/list", ""),
        request(
            "\"1\"",
            "tools/list",
            r#""x":null,"cursor":"b3BhcXVl+/==\u00e9 \"?&%2F\" 0.70""#,
        ),
        request("2", "tools/list", r#""cursor":"\u0000nowhere""#),
        request("3", "resources/list", ""),
        request("4", "resources/templates/list", ""),
        request("5", "prompts/list", r#""x":[1.0,1e3]"#),
    ]
}

fn calls() -> Vec<Step> {
    let meta = Meta::default();
    let mut steps: Vec<Step> = [
        "odd",
        "structured_only",
        "empty",
        "unknown_content",
        "is_error",
        "no_such_tool",
        "no such \u{2192} tool",
    ]
    .iter()
    .enumerate()
    .map(|(n, tool)| {
        Step::request(
            &format!("call of {tool}"),
            &meta.call(&format!("1{n:02}"), tool, r#"{"x":1.0}"#),
        )
    })
    .collect();
    for (id, arguments) in [
        ("\"f\u{e9}\"", "{}"),
        ("-7", r#"{"code":-32603,"data":{"n":1.0}}"#),
        ("18446744073709551616", r#"{"code":7,"data":"te\u0078t"}"#),
        ("0", r#"{"code":-32602,"data":[0.70,null]}"#),
    ] {
        steps.push(Step::request(
            &format!("failing with {arguments}"),
            &meta.call(id, "fail", arguments),
        ));
    }
    let mebibyte = "\\u2603 snow ".repeat((1 << 20) / 12);
    steps.push(Step::request(
        "1 MiB both ways",
        &meta.call("\"big\"", "echo", &format!(r#"{{"text":"{mebibyte}"}}"#)),
    ));
    steps.push(Step::request(
        "unknown params",
        &meta.request(
            "200",
            "tools/call",
            r#""x-unknown":[1.0,1e3,0.70],"name":"echo","arguments":{"text":"\u00e9\/"}"#,
        ),
    ));
    for (id, token, count) in [
        ("201", "9007199254740993", 5),
        ("202", r#""t\u00f6ken 1""#, 2),
        ("203", "18446744073709551616", 1),
    ] {
        let meta = Meta::default().and(&format!(r#""progressToken":{token}"#));
        steps.push(
            Step::request(
                &format!("progress with {token}"),
                &meta.call(id, "progress", &format!(r#"{{"steps":{count}}}"#)),
            )
            .await_notifications("notifications/progress", count),
        );
    }
    steps
}

/// Returns calls with arguments that are repeated in headers.
fn mirrored_calls() -> Vec<Step> {
    [
        r#"{"region":"us-west1","place":{"number":42},"flag":true,"plain":"p"}"#,
        r#"{"region":" pad\u0064ed ","place":{"number":-7},"flag":false}"#,
        r#"{"region":"Hello, \u4e16\u754c","place":{},"flag":null}"#,
        r#"{"region":"line1\nline2","place":{"number":null}}"#,
        r#"{"region":"=?base64?literal?="}"#,
        "{}",
    ]
    .iter()
    .enumerate()
    .map(|(n, arguments)| {
        Step::request(
            &format!("mirrored {arguments}"),
            &Meta::default().call(&format!("21{n}"), "mirrored", arguments),
        )
    })
    .collect()
}

/// Returns the multi-round calls, each with the responses of the client in its repeated requests.
fn rounds() -> Vec<Step> {
    let who = r#""who \u00bf":{"action":"accept","content":{"name":"Ada \u2713","x":1.0}}"#;
    let what = r#""2":{"role":"assistant","content":{"type":"text","text":"forty-two"},"model":"m","x":0.70}"#;
    let roots = r#""roots":{"roots":[{"uri":"file:///srv/data","x-unknown":1.0}]}"#;
    let mut steps = Vec::new();
    for (n, (tool, attempts)) in [
        (
            "elicit",
            vec![format!(
                r#","inputResponses":{{{who},"unasked":1e3}},"requestState":"el\u00efcit \/ \"1\" +==""#
            )],
        ),
        ("sample", vec![format!(r#","inputResponses":{{{what}}}"#)]),
        (
            "roots",
            vec![format!(r#","requestState":"","inputResponses":{{{roots}}}"#)],
        ),
        (
            "both",
            vec![
                format!(r#","inputResponses":{{{who}}},"requestState":"both""#),
                format!(r#","inputResponses":{{{what},{who}}},"requestState":"b\u006fth""#),
            ],
        ),
        (
            "two_rounds",
            vec![
                format!(
                    r#","inputResponses":{{{who}}},"requestState":"el\u00efcit \/ \"1\" +==""#
                ),
                format!(
                    r#","inputResponses":{{{what}}},"requestState":"second \ud83d\ude00""#
                ),
            ],
        ),
        (
            "state_only",
            vec![r#","requestState":"come back""#.to_owned()],
        ),
        ("elicit", vec![r#","requestState":"forged""#.to_owned()]),
    ]
    .into_iter()
    .enumerate()
    {
        let first = vec![String::new()];
        for (attempt, addition) in first.into_iter().chain(attempts).enumerate() {
            let params = format!(r#""name":"{tool}","arguments":{{}}{addition}"#);
            steps.push(request(
                &format!("\"r{n}.{attempt}\""),
                "tools/call",
                &params,
            ));
        }
    }
    let poor = Meta::default().with_capabilities(r#"{"x-new":{"n":1.0}}"#);
    steps.push(Step::request(
        "a client that cannot be asked",
        &poor.call("\"poor\"", "elicit", "{}"),
    ));
    steps
}

fn reads() -> Vec<Step> {
    let answered = r#","inputResponses":{"who \u00bf":{"action":"decline"}},"requestState":"el\u00efcit \/ \"1\" +==""#;
    vec![
        request(
            "50",
            "prompts/get",
            r#""name":"p","arguments":{"a":"\u0062"}"#,
        ),
        request("51", "prompts/get", r#""name":"nothing""#),
        request("52", "prompts/get", r#""name":"ask""#),
        request("53", "prompts/get", &format!(r#""name":"ask"{answered}"#)),
        request("54", "resources/read", r#""uri":"odd:\/\/r\/1","x":1.0"#),
        request("55", "resources/read", r#""uri":"odd://nowhere/\u2192""#),
        request("56", "resources/read", r#""uri":"odd://ask""#),
        request(
            "57",
            "resources/read",
            &format!(r#""uri":"odd://ask"{answered}"#),
        ),
        request(
            "58",
            "completion/complete",
            r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},"context":{"arguments":{}}"#,
        ),
    ]
}

fn subscriptions() -> Vec<Step> {
    let meta = Meta::default();
    let acknowledged = "notifications/subscriptions/acknowledged";
    let changed = |what: &str| format!("notifications/{what}/list_changed");
    let call = |id: &str, tool: &str, arguments: &str| meta.call(id, tool, arguments);
    let change = |id: &str, what: &str| {
        let text = call(id, "change_list", &format!(r#"{{"what":"{what}"}}"#));
        Step::new(&format!("changed {what}"))
            .send(&text)
            .await_answers(&text)
    };
    let update = call("64", "update_resource", r#"{"uri":"odd://r/2"}"#);
    let end = call("67", "end_subscriptions", "{}");
    vec![
        Step::new("listening to everything")
            .send(&meta.listen("\"all \\u00e9\"", EVERYTHING))
            .await_notifications(acknowledged, 1),
        Step::new("listening to tools as well")
            .send(&meta.listen(
                "18446744073709551617",
                r#"{"toolsListChanged":true,"promptsListChanged":false,"x":1.0}"#,
            ))
            .await_notifications(acknowledged, 1),
        change("61", "tools").await_notifications(&changed("tools"), 2),
        change("62", "prompts").await_notifications(&changed("prompts"), 1),
        change("63", "resources").await_notifications(&changed("resources"), 1),
        Step::new("an updated resource")
            .send(&update)
            .await_answers(&update)
            .await_notifications("notifications/resources/updated", 1),
        Step::request(
            "an update that nobody wants",
            &call("65", "update_resource", r#"{"uri":"odd://r/3"}"#),
        ),
        Step::new("one subscription less").cancel("18446744073709551617"),
        Step::request(
            "a cancelled subscription is noticed",
            &call("68", "await_listeners", r#"{"count":1}"#),
        ),
        change("66", "tools").await_notifications(&changed("tools"), 1),
        Step::new("the server ends what is left")
            .send(&end)
            .await_answers(&end)
            .await_answers(&meta.listen("\"all \\u00e9\"", "{}")),
    ]
}

fn cancellations() -> Vec<Step> {
    let slow = |id: &str, token: &str| {
        let meta = Meta::default().and(&format!(r#""progressToken":{token}"#));
        meta.call(id, "slow", "{}")
    };
    let cancelled = |id: &str, count: usize| {
        let arguments = format!(r#"{{"count":{count}}}"#);
        Step::request(
            "the server has noticed",
            &Meta::default().call(id, "await_cancelled", &arguments),
        )
    };
    vec![
        Step::new("a call that is cancelled")
            .send(&slow("\"slow\"", "\"s1\""))
            .await_notifications("notifications/progress", 1)
            .cancel("\"slow\""),
        cancelled("71", 1),
        Step::new("another one")
            .send(&slow("72", "72"))
            .await_notifications("notifications/progress", 1)
            .cancel("72"),
        cancelled("73", 2),
    ]
}

fn logs() -> Vec<Step> {
    let log = |id: &str, meta: &Meta| meta.call(id, "log", "{}");
    let all = log("80", &Meta::default().logging("debug"));
    let some = log("81", &Meta::default().logging("warning"));
    vec![
        Step::new("the whole log")
            .send(&all)
            .await_answers(&all)
            .await_notifications("notifications/message", 2),
        Step::new("warnings alone")
            .send(&some)
            .await_answers(&some)
            .await_notifications("notifications/message", 1),
        Step::request("no log", &log("82", &Meta::default())),
    ]
}

fn tasks() -> Vec<Step> {
    let first = r#""taskId":"t\u00e4sk 1""#;
    let second = r#""taskId":"t\u00e4sk 2","x":1.0"#;
    vec![
        request("90", "tools/call", r#""name":"task","arguments":{}"#),
        request("91", "tasks/get", first),
        request(
            "92",
            "tasks/update",
            &format!(
                r#"{first},"inputResponses":{{"k \u00bf":{{"action":"accept","content":{{"n":1.0}}}}}}"#
            ),
        ),
        request("93", "tasks/get", first),
        request("94", "tools/call", r#""name":"task","arguments":{}"#),
        request("95", "tasks/cancel", second),
        request("96", "tasks/get", second),
        request("97", "tasks/get", r#""taskId":"none""#),
    ]
}

fn extensions() -> Vec<Step> {
    vec![
        request("98", "odd/echo", r#""z":1.0,"a":[null,"\ud83d\ude00",1e3]"#),
        request("99", "odd/unknown", r#""n":1.0"#),
    ]
}
