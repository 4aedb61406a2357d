//! Lengths of lists with a history, and the effect of a declared context on them. The proxy runs in
//! this process with a manual clock, because a session is learned only after its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use riglm_app::clock::SystemClock;
use riglm_app::selection::ExplorationConfig;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::clock::Clock as _;
use riglm_ports::fake::ManualClock;
use riglm_tests::client::RawClient;
use riglm_tests::modern::Meta;
use riglm_tests::{binary, process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scenarios::{OWN, catalog, fits_scenario, of_tasks, tools};
use crate::simulation::agent::AgentSession;
use crate::simulation::server::{CatalogServer, server_of};
use crate::simulation::stage::{InProcessProxy, InProcessProxyOptions};

/// Longer than the idle time that ends a work session.
const BETWEEN_SESSIONS: Duration = Duration::from_hours(2);

/// A proxy in front of one server, with its own clock.
struct ProxyScene {
    stage: InProcessProxy,
    clock: Arc<ManualClock>,
    n_sessions: u32,
    data: TempDir,
}

struct ShownList {
    /// The names in the order of the list, including own tools.
    all: Vec<String>,
}

impl ShownList {
    fn of(definitions: &[Value]) -> Self {
        let names = definitions
            .iter()
            .map(|tool| tool["name"].as_str().unwrap());
        Self {
            all: names.map(str::to_owned).collect(),
        }
    }

    /// Returns the tools of the server.
    fn tools(&self) -> BTreeSet<String> {
        let own = |name: &&String| OWN.contains(&name.as_str());
        self.all.iter().filter(|name| !own(name)).cloned().collect()
    }
}

impl ProxyScene {
    async fn start(server: Arc<CatalogServer>, options: InProcessProxyOptions) -> Self {
        Self::start_with(server, options, ManualClock::default()).await
    }

    async fn start_with(
        server: Arc<CatalogServer>,
        options: InProcessProxyOptions,
        clock: ManualClock,
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = Arc::new(clock);
        let stage = InProcessProxy::start(data.path(), Arc::clone(&clock), vec![server], &options);
        Self {
            stage: stage.await,
            clock,
            n_sessions: 0,
            data,
        }
    }

    /// Opens a new session two hours after the last one, which is learned before.
    async fn open(&mut self, client: &str) -> AgentSession {
        self.clock.advance(BETWEEN_SESSIONS);
        self.stage.learn().await;
        self.n_sessions += 1;
        let key = format!("session {}", self.n_sessions);
        AgentSession::open(&self.stage.url, client, Some(&key), false).await
    }

    /// Runs a session that declares its context, if any, and then calls tools.
    async fn session(
        &mut self,
        client: &str,
        context: Option<&str>,
        calls: &[String],
    ) -> ShownList {
        let mut line = self.open(client).await;
        if let Some(context) = context {
            declare_context(&mut line, context).await;
        }
        let listed = ShownList::of(&line.list("{}").await.unwrap());
        for tool in calls {
            self.clock.advance(Duration::from_secs(20));
            let answer = line.call(tool, "{}").await.unwrap();
            assert!(answer["error"].is_null(), "{answer}");
        }
        line.client.delete().await;
        listed
    }
}

async fn declare_context(line: &mut AgentSession, context: &str) {
    let arguments = json!({ "query": context }).to_string();
    let answer = line.call("set_context", &arguments).await.unwrap();
    assert!(answer["error"].is_null(), "{answer}");
}

/// Returns a server of `n` tools with descriptions of this length.
fn numbered_server(n: usize, n_words: usize) -> Arc<CatalogServer> {
    let tools = (0..n).map(|n| {
        let name = format!("tool_{n:03}");
        let text = "word ".repeat(n_words);
        let definition = json!({
            "name": name, "description": text, "inputSchema": {"type": "object"},
        });
        (name, definition.to_string())
    });
    server_of("numbered", tools.collect())
}

fn work_server() -> Arc<CatalogServer> {
    let tools = catalog().into_iter();
    let tools = tools.map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool.to_string()));
    server_of("work", tools.collect())
}

fn names(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers
        .into_iter()
        .map(|n| format!("tool_{n:03}"))
        .collect()
}

/// Returns the calls of an ordinary session.
fn ordinary_calls(n: usize) -> Vec<String> {
    const USUAL: [&str; 10] = [
        "list_tasks",
        "get_task",
        "update_task",
        "web_search",
        "fetch_url",
        "list_projects",
        "get_project",
        "search_documents",
        "get_document",
        "create_document",
    ];
    let calls = (0..3 + n % 3).map(|at| USUAL[(n * 7 + at * (1 + n % 4)) % USUAL.len()]);
    calls.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_context_shapes_the_list_despite_learned_calls() {
    const ORDINARY: [&str; 3] = [
        "Prepare the weekly report",
        "Look into what came in over night",
        "Tidy up before the holidays",
    ];
    for (with_contexts, token_budget) in [(false, None), (true, None), (true, Some(4_000))] {
        let options = InProcessProxyOptions {
            token_budget,
            ..InProcessProxyOptions::default()
        };
        let mut place = ProxyScene::start(work_server(), options).await;
        let mut n_ordinary = 0;
        for n_before in [0, 3, 20, 60] {
            while n_ordinary < n_before {
                let says_it = with_contexts && n_ordinary % 2 == 0;
                let context = says_it.then(|| ORDINARY[n_ordinary % ORDINARY.len()]);
                let calls = ordinary_calls(n_ordinary);
                place.session("agent", context, &calls).await;
                n_ordinary += 1;
            }
            for (scenario, query) in [
                ("list", "List my tasks"),
                ("create", "Create a new task"),
                ("analyze", "Analyze project health"),
                ("web", "Search the web for X"),
                ("help", "How does it work?"),
                ("update", "Update task status"),
            ] {
                let mut line = place.open("agent").await;
                declare_context(&mut line, query).await;
                let list = ShownList::of(&line.list("{}").await.unwrap()).tools();
                let what = format!("{query} after {n_before}, {with_contexts}, {token_budget:?}");
                assert!(
                    fits_scenario(scenario, &list),
                    "{what}: {} {list:#?}",
                    list.len()
                );
                line.client.delete().await;
            }
            // The seventh scenario: a session that declares a second task gets the list for that
            // task.
            let mut line = place.open("agent").await;
            declare_context(&mut line, "Analyze project health").await;
            let before = ShownList::of(&line.list("{}").await.unwrap()).tools();
            declare_context(&mut line, "Show the comments on my task").await;
            let after = ShownList::of(&line.list("{}").await.unwrap()).tools();
            let reading = tools(|name, reads| of_tasks(name) && reads);
            assert!(reading.is_subset(&after) && after != before, "{after:#?}");
            line.client.delete().await;
        }
        place.stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn similar_sessions_soon_get_short_lists() {
    let mut place =
        ProxyScene::start(numbered_server(50, 70), InProcessProxyOptions::default()).await;
    let calls = names(3..9);
    let first = place.session("agent", None, &calls).await;
    // All fifty tools cost less than one search.
    assert_eq!(first.tools().len(), 50);
    // The own tools are listed, because tools may be hidden soon.
    assert_eq!(first.all[0], "search_available_tools");
    assert!(first.all.contains(&"set_context".into()) && first.all.contains(&"call_tool".into()));
    for _ in 1..25 {
        place.session("agent", None, &calls).await;
    }
    let last = place.session("agent", None, &calls).await;
    assert!(last.tools().len() <= 20, "{:?}", last.all);
    assert!(
        calls.iter().all(|tool| last.all.contains(tool)),
        "{:?}",
        last.all
    );
    place.stage.learn().await;
    let ProxyScene { stage, data, .. } = place;
    stage.stop().await;
    // The short list was recorded with the coverage that was expected of it, the whole one without.
    let sessions = report(&data, &["sessions"]).await;
    let sessions = sessions.as_array().unwrap().iter();
    let begun = |session: &&Value| session["started_at"].as_str().unwrap().to_owned();
    let first = sessions.clone().min_by_key(begun).unwrap();
    let newest = sessions.max_by_key(begun).unwrap();
    let recorded = async |session: &Value| {
        let id = session["id"].as_str().unwrap();
        let lists = report(&data, &["lists", "--session", id]).await;
        let n_selected = lists[0]["selected"].as_array().unwrap().len();
        (n_selected, lists[0]["expected_coverage"].as_f64())
    };
    assert_eq!(recorded(first).await, (50, None));
    let (n_selected, expected) = recorded(newest).await;
    assert_eq!(n_selected, last.tools().len());
    let expected = expected.unwrap();
    assert!((0.5..=1.0).contains(&expected), "{expected}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_history_large_catalogs_are_filtered_and_small_ones_are_complete() {
    let mut place =
        ProxyScene::start(numbered_server(500, 100), InProcessProxyOptions::default()).await;
    let large = place.session("agent", None, &[]).await;
    assert_eq!(large.tools().len(), 20);
    assert_eq!(large.all[0], "search_available_tools");
    assert!(large.all.contains(&"set_context".into()) && large.all.contains(&"call_tool".into()));
    place.stage.stop().await;
    let mut place =
        ProxyScene::start(numbered_server(14, 80), InProcessProxyOptions::default()).await;
    let small = place.session("agent", None, &[]).await;
    // The catalog is small enough to be shown completely at all times.
    assert_eq!(small.all, names(0..14));
    place.stage.stop().await;
    // A budget is kept before anything is learned, too.
    let options = InProcessProxyOptions {
        token_budget: Some(1_000),
        ..InProcessProxyOptions::default()
    };
    let mut place = ProxyScene::start(numbered_server(50, 80), options).await;
    let budgeted = place.session("agent", None, &[]).await;
    assert!(
        (5..=12).contains(&budgeted.tools().len()),
        "{:?}",
        budgeted.all
    );
    place.stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_tool_searching_is_learned_per_client() {
    let mut place =
        ProxyScene::start(numbered_server(120, 180), InProcessProxyOptions::default()).await;
    for n in 0..60_usize {
        let looks = n % 2 == 0;
        let mut line = place.open(if looks { "looking" } else { "blind" }).await;
        let listed = ShownList::of(&line.list("{}").await.unwrap());
        assert!(listed.tools().len() <= 20, "{:?}", listed.all);
        // Six usual tools, and two of sixty others.
        let seldom = [0, 1].map(|at| 10 + (n * 37 + at * 53) % 60);
        for tool in names((0..6).chain(seldom)) {
            place.clock.advance(Duration::from_secs(20));
            let is_hidden = !listed.all.contains(&tool);
            if is_hidden && !looks {
                continue;
            }
            if is_hidden {
                let query = json!({ "query": tool.replace('_', " ") }).to_string();
                line.call("search_available_tools", &query).await.unwrap();
            }
            line.call(&tool, "{}").await.unwrap();
        }
        line.client.delete().await;
    }
    place.clock.advance(BETWEEN_SESSIONS);
    place.stage.learn().await;
    let seeks = |client| {
        place
            .stage
            .next_tools
            .search_probability(&Principal::local(), client)
    };
    let (looking, blind) = (seeks("looking").unwrap(), seeks("blind").unwrap());
    assert!(looking > 0.8 && blind < 0.4, "{looking} {blind}");
    place.stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_modern_clients_follow_the_sessions_and_no_context() {
    let mut place =
        ProxyScene::start(numbered_server(120, 180), InProcessProxyOptions::default()).await;
    let calls = names(3..9);
    for _ in 0..25 {
        place.session("agent", None, &calls).await;
    }
    place.clock.advance(BETWEEN_SESSIONS);
    place.stage.learn().await;
    let client = RawClient::modern(&place.stage.url);
    let meta = Meta::default();
    let list = async |id: &str| {
        let answer = client.request(&meta.request(id, "tools/list", "")).await;
        let answer: Value = serde_json::from_str(&answer.text).unwrap();
        ShownList::of(answer["result"]["tools"].as_array().unwrap())
    };
    let before = list("1").await;
    assert!(before.tools().len() <= 20, "{:?}", before.all);
    assert!(
        calls.iter().all(|tool| before.all.contains(tool)),
        "{:?}",
        before.all
    );
    let said = meta.call("2", "set_context", r#"{"query":"use tool 099"}"#);
    let answer = client.request(&said).await.text;
    assert!(answer.contains("tool_099"), "{answer}");
    assert_eq!(list("3").await.all, before.all);
    place.stage.stop().await;
}

/// Runs a command over the data of a proxy that has ended, and returns its JSON.
async fn report(data: &TempDir, arguments: &[&str]) -> Value {
    let mut command = process::command(binary::riglm(), arguments);
    command.arg("--data-dir").arg(data.path()).arg("--json");
    let ended = tokio::time::timeout(Duration::from_mins(1), command.output());
    let output = ended.await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn explored_sessions_become_estimates_of_every_size() {
    // Enough that each size is drawn far more often than the 20 times that an estimate needs.
    const N_SESSIONS: usize = 180;
    let options = InProcessProxyOptions {
        exploration: ExplorationConfig {
            share: 0.9,
            seed: Some(3),
        },
        ..InProcessProxyOptions::default()
    };
    // The command has the clock of the machine, on which the sessions must be over.
    let began = SystemClock.now() - SignedDuration::from_hours(24 * 30);
    let server = numbered_server(120, 180);
    let mut scene = ProxyScene::start_with(server, options, ManualClock::at(began)).await;
    let mut n_of_size = BTreeMap::new();
    let mut n_idle = 0;
    for n in 0..N_SESSIONS {
        // Each tenth session does nothing after it has its list.
        let calls = if n % 10 == 9 {
            Vec::new()
        } else {
            names((0..8).chain([10 + n % 60]))
        };
        let listed = scene.session("agent", None, &calls).await.tools().len();
        // Nothing is drawn before the first session is over.
        if n == 0 {
            continue;
        }
        n_idle += usize::from(calls.is_empty());
        *n_of_size.entry(listed).or_insert(0_u64) += 1;
    }
    scene.stage.learn().await;
    let ProxyScene { stage, data, .. } = scene;
    stage.stop().await;
    assert_eq!(n_idle, N_SESSIONS / 10);
    let sizes: Vec<usize> = n_of_size.keys().copied().collect();
    // After the very first sessions, the rule may show all tools.
    assert!(sizes.starts_with(&[5, 10, 20]), "{n_of_size:?}");

    let report_of =
        async |measure: &str| report(&data, &["eval", "policies", "--measure", measure]).await;
    let costs = report_of("cost").await;
    // Sessions without calls count, too.
    assert_eq!(costs["sessions"], N_SESSIONS - 1, "{costs}");
    assert_eq!(costs["clusters"], N_SESSIONS - 1);
    let explored = costs["explored_sessions"].as_u64().unwrap();
    assert!((140..=178).contains(&explored), "{explored}");
    let policies = costs["policies"].as_array().unwrap();
    for policy in policies {
        let name = policy["policy"].as_str().unwrap();
        match name {
            "40" | "80" | "all" => {
                let refusal = policy["refusal"].as_str().unwrap();
                assert!(refusal.starts_with("no overlap: in "), "{policy}");
            }
            _ => {
                let (plain, robust) = (&policy["plain_mean"], &policy["doubly_robust"]);
                assert!(policy["refusal"].is_null(), "{policy}");
                let estimate = |key: &str| robust[key].as_f64().unwrap();
                assert!(estimate("low") < estimate("value"), "{policy}");
                assert!(estimate("value") < estimate("high"), "{policy}");
                // The sizes are nearly all random here, so the plain means are hardly biased.
                let ratio = estimate("value") / plain.as_f64().unwrap();
                assert!((0.8..1.25).contains(&ratio), "{policy}");
            }
        }
        if let Ok(size) = name.parse::<usize>() {
            let n = n_of_size.get(&size).copied().unwrap_or(0);
            assert_eq!(policy["sessions"], n, "{policy}");
        }
    }
    // Longer lists cover more of the calls.
    let coverage = report_of("coverage").await;
    let robust = |at: usize| {
        let policy = &coverage["policies"][at];
        assert_eq!(policy["policy"], ["greedy", "5", "10", "20"][at]);
        policy["doubly_robust"]["value"].as_f64().unwrap()
    };
    assert!(robust(1) < robust(3), "{coverage}");
}
