//! Counts of what ties the modules together, and of size. Each has a ceiling that may only fall.
//!
//! A count is taken over product sources: tests, benches, fakes and contract suites are left out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::ceilings::{Count, assert_at_ceilings};
use super::code_text::{code_of, functions, literals};
use super::module_graph::{Import, ModuleGraph};
use super::sources::{Source, product};

/// The ceilings of a crate.
struct CrateCeilings<'a> {
    name: &'a str,
    /// All lines of the sources, in hundreds. A hundred that has begun counts.
    hundred_lines: usize,
    /// The modules in circles of imports.
    in_circles: usize,
    /// The modules in the largest circle.
    largest_circle: usize,
}

/// The lines of all crates, in hundreds.
const ALL_HUNDRED_LINES: usize = 1878;

/// A crate that is not in the list has ceilings of 0.
const CRATES: [CrateCeilings<'static>; 13] = [
    ceilings("adapters-clients", 133, 11, 5),
    ceilings("adapters-http", 60, 4, 4),
    ceilings("adapters-mcp", 229, 57, 15),
    ceilings("adapters-prediction", 113, 12, 4),
    ceilings("adapters-programs", 26, 0, 0),
    ceilings("adapters-storage", 139, 11, 4),
    ceilings("adapters-telemetry", 23, 7, 4),
    ceilings("app", 362, 79, 51),
    ceilings("cli", 316, 42, 20),
    ceilings("discovery", 128, 14, 6),
    ceilings("domain", 269, 15, 7),
    ceilings("evaluation", 47, 10, 5),
    ceilings("ports", 38, 0, 0),
];

const fn ceilings(
    name: &str,
    hundred_lines: usize,
    in_circles: usize,
    largest_circle: usize,
) -> CrateCeilings<'_> {
    CrateCeilings {
        name,
        hundred_lines,
        in_circles,
        largest_circle,
    }
}

/// The most lines of a function, with its signature.
const LONGEST_FUNCTION: usize = 60;

/// The modules that pass messages: sessions, routes, upstream connections, requests in flight.
/// Modules inside them that are a feature are in the other list.
const CORE: [&str; 1] = ["crate::proxy"];

/// The modules that a message would pass without: what is searched, selected, limited, recorded,
/// approved or reported. A module includes those inside it.
const FEATURES: [&str; 30] = [
    "crate::control",
    "crate::proxy::aggregator::app_servers",
    "crate::proxy::aggregator::skills",
    "crate::proxy::list_composer",
    "crate::proxy::list_notices",
    "crate::proxy::local_tools",
    "crate::proxy::open_sessions",
    "crate::proxy::operator_recommendations",
    "crate::proxy::own_tools",
    "crate::proxy::permitted_catalog",
    "crate::proxy::recent_calls",
    "crate::proxy::sampling",
    "crate::proxy::session_app",
    "crate::proxy::tool_lists",
    "crate::proxy::tool_sets",
    "crate::proxy::upstream_session::approved_lists",
    "crate::proxy::upstream_session::call_authorization",
    "crate::proxy::upstream_session::call_recording",
    "crate::proxy::upstream_session::error_hints",
    "crate::proxy::upstream_session::intents",
    "crate::proxy::upstream_session::multi_round_calls",
    "crate::proxy::upstream_session::recorded_names",
    "crate::proxy::upstream_session::safeguards",
    "crate::proxy::upstream_session::tool_list_answers",
    "crate::proxy::upstream_session::tool_list_fetch",
    "crate::proxy::upstream_session::upstream_tools",
    "crate::safeguards",
    "crate::selection",
    "crate::tracking",
    "crate::work_sessions",
];

/// The source of the constants of the method names.
const METHODS: &str = "domain/src/mcp/method.rs";

fn is_in(module: &str, list: &[&str]) -> bool {
    list.iter().any(|outer| {
        let rest = module.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

/// Returns the imports of the core from features, one for each pair of modules.
fn core_to_feature(graph: &ModuleGraph) -> Vec<String> {
    let is_core = |module: &str| is_in(module, &CORE) && !is_in(module, &FEATURES);
    let mut places = BTreeMap::new();
    for import in &graph.imports {
        if is_core(&import.from) && is_in(&import.to, &FEATURES) {
            places
                .entry((&import.from, &import.to))
                .or_insert(&import.place);
        }
    }
    let line = |((_, to), place): ((&String, &String), &String)| format!("{place}: {to}");
    places.into_iter().map(line).collect()
}

/// Returns the literal texts that are a method name, in place of its constant.
fn raw_method_names(sources: &[Source]) -> Vec<String> {
    let texts: BTreeMap<&str, String> = sources
        .iter()
        .map(|source| (source.path.as_str(), source.lines.join("\n")))
        .collect();
    let constant = Regex::new(r#"const \w+: &str =\s*"([^"]+)""#).unwrap();
    let methods: BTreeSet<&str> = constant
        .captures_iter(&texts[METHODS])
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    assert!(methods.len() > 30, "{methods:?}");
    let mut found = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| **path != METHODS) {
        for (line, literal) in literals(text) {
            if methods.contains(literal) {
                found.push(format!("{path}:{line}: {literal}"));
            }
        }
    }
    found
}

/// Returns the functions of too many lines, the longest first.
fn long_functions(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let code = code_of(&source.lines.join("\n"));
        for function in functions(&code) {
            let length = function.lines.len();
            if length > LONGEST_FUNCTION {
                let place = format!("{}:{}", source.path, function.lines.start);
                found.push((Reverse(length), format!("{place}: {}", function.name)));
            }
        }
    }
    found.sort();
    let line = |(Reverse(length), place)| format!("{place}: {length} lines");
    found.into_iter().map(line).collect()
}

/// Returns the longest files of a crate.
fn longest_files(sources: &[&Source]) -> Vec<String> {
    let mut longest = sources.to_vec();
    longest.sort_by_key(|source| Reverse(source.lines.len()));
    longest.truncate(10);
    longest
        .iter()
        .map(|source| format!("{}:{}: the last line", source.path, source.lines.len()))
        .collect()
}

/// Returns the imports inside circles.
fn imports_in(circles: &BTreeSet<BTreeSet<&str>>, graph: &ModuleGraph) -> Vec<String> {
    let is_inside = |import: &&Import| {
        circles.iter().any(|circle| {
            circle.contains(import.from.as_str()) && circle.contains(import.to.as_str())
        })
    };
    let inside = graph.imports.iter().filter(is_inside);
    let lines: BTreeSet<String> = inside
        .map(|import| format!("{}: {}", import.place, import.to))
        .collect();
    lines.into_iter().collect()
}

#[test]
fn circles_and_sizes_of_crates_never_increase() {
    let sources = product();
    let mut crates: BTreeMap<&str, Vec<&Source>> = CRATES
        .iter()
        .map(|ceilings| (ceilings.name, Vec::new()))
        .collect();
    for source in &sources {
        crates.entry(source.crate_name()).or_default().push(source);
    }
    let lines: usize = sources.iter().map(|source| source.lines.len()).sum();
    let mut counts = vec![Count {
        name: "all crates: hundreds of lines".to_owned(),
        number: lines.div_ceil(100),
        ceiling: ALL_HUNDRED_LINES,
        offenders: longest_files(&sources.iter().collect::<Vec<_>>()),
    }];
    for (name, sources) in crates {
        let of_crate = CRATES.iter().find(|ceilings| ceilings.name == name);
        let none = ceilings(name, 0, 0, 0);
        let ceilings = of_crate.unwrap_or(&none);
        let lines: usize = sources.iter().map(|source| source.lines.len()).sum();
        counts.push(Count {
            name: format!("{name}: hundreds of lines"),
            number: lines.div_ceil(100),
            ceiling: ceilings.hundred_lines,
            offenders: longest_files(&sources),
        });
        let graph = ModuleGraph::read(sources.into_iter());
        let circles = graph.circles();
        let sizes = circles.iter().map(BTreeSet::len);
        counts.push(Count {
            name: format!("{name}: modules in circles of imports"),
            number: sizes.clone().sum(),
            ceiling: ceilings.in_circles,
            offenders: imports_in(&circles, &graph),
        });
        let largest = sizes.max().unwrap_or(0);
        let is_largest = |circle: &BTreeSet<&str>| circle.len() == largest;
        let of_size = circles
            .iter()
            .filter(|circle| is_largest(circle))
            .cloned()
            .collect();
        counts.push(Count {
            name: format!("{name}: modules in the largest circle"),
            number: largest,
            ceiling: ceilings.largest_circle,
            offenders: imports_in(&of_size, &graph),
        });
    }
    assert_at_ceilings(&counts);
}

#[test]
fn the_core_imports_features_ever_more_rarely() {
    let sources = product();
    let app = sources.iter().filter(|source| source.crate_name() == "app");
    let graph = ModuleGraph::read(app);
    for module in CORE.iter().chain(&FEATURES) {
        assert!(graph.modules.contains(*module), "no module {module}");
    }
    let found = core_to_feature(&graph);
    assert_at_ceilings(&[Count {
        name: "imports of features by the core".to_owned(),
        number: found.len(),
        ceiling: 79,
        offenders: found,
    }]);
}

#[test]
fn raw_method_names_and_long_functions_never_increase() {
    let sources = product();
    let counts = [
        ("raw method names", raw_method_names(&sources), 91),
        ("functions over 60 lines", long_functions(&sources), 63),
    ];
    assert_at_ceilings(&counts.map(|(name, found, ceiling)| Count {
        name: name.to_owned(),
        number: found.len(),
        ceiling,
        offenders: found,
    }));
}
