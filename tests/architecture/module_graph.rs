//! The modules of a crate and their imports, read from the text of the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::{Captures, Regex};
use syn::{ItemUse, UseTree, Visibility};

use super::code_text::{blank, code_of, line_at};
use super::sources::Source;

static USE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(?:pub(?:\([^)]*\))? )?use [^;]+;").unwrap());

/// The import of an item of another module of the crate.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The file and line.
    pub(crate) place: String,
}

/// The modules of a crate, each of which is one source file, and the imports between them.
#[derive(Debug)]
pub(crate) struct ModuleGraph {
    pub(crate) modules: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
}

impl ModuleGraph {
    /// Reads the sources of one crate.
    ///
    /// An import is a private `use`, or a path in the code that begins with `crate`, `super` or
    /// `self`. A `mod` declaration is none. A `pub use` is none either: an import that goes through
    /// it is one of the module that defines the item. A call such as `child::run()` has no such
    /// path, and is not seen.
    pub(crate) fn read<'a>(sources: impl Iterator<Item = &'a Source>) -> Self {
        let mut found = Vec::new();
        let mut names = Names::default();
        for source in sources {
            let module = module_of(&source.path);
            let code = code_of(&source.lines.join("\n"));
            let place = |at| format!("{}:{}", source.path, line_at(&code, at));
            for statement in USE.find_iter(&code) {
                let place = place(statement.start());
                let item = syn::parse_str::<ItemUse>(statement.as_str())
                    .map_err(|error| format!("{place}: {error}"))
                    .unwrap();
                let mut leaves = Vec::new();
                // A path that begins with `::` is one of another crate.
                if item.leading_colon.is_none() {
                    add_leaves(&item.tree, &[], &mut leaves);
                }
                let is_private = matches!(item.vis, Visibility::Inherited);
                for Leaf { path, name } in leaves {
                    if is_private {
                        found.push((module.clone(), path, place.clone()));
                    } else {
                        names.exports.insert((module.clone(), name), path);
                    }
                }
            }
            for (at, path) in paths(&blank(&code, &USE)) {
                found.push((module.clone(), path, place(at)));
            }
            names.modules.insert(module);
        }
        let resolve = |(from, path, place): (String, Vec<String>, String)| {
            let to = names.resolve(&from, &path)?;
            (to != from).then_some(Import { from, to, place })
        };
        let imports = found.into_iter().filter_map(resolve).collect();
        Self {
            modules: names.modules,
            imports,
        }
    }

    /// Returns the sets of modules that reach each other by imports.
    pub(crate) fn circles(&self) -> BTreeSet<BTreeSet<&str>> {
        let mut direct: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for import in &self.imports {
            direct.entry(&import.from).or_default().insert(&import.to);
        }
        let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for from in direct.keys() {
            let to = reached.entry(from).or_default();
            let mut open = vec![*from];
            while let Some(module) = open.pop() {
                let next = direct.get(module).into_iter().flatten();
                open.extend(next.copied().filter(|module| to.insert(*module)));
            }
        }
        let mut circles = BTreeSet::new();
        for (from, to) in &reached {
            let leads_back =
                |module: &&&str| reached.get(*module).is_some_and(|to| to.contains(from));
            if to.contains(from) {
                circles.insert(to.iter().filter(leads_back).copied().collect());
            }
        }
        circles
    }
}

/// Returns the path of a module, such as `crate::proxy::session`.
fn module_of(path: &str) -> String {
    let (_, file) = path.split_once("/src/").unwrap();
    let name = file.trim_end_matches(".rs").replace('/', "::");
    if name == "lib" {
        "crate".to_owned()
    } else {
        format!("crate::{name}")
    }
}

/// One name of a `use` statement: the path of an item, and its name here.
struct Leaf {
    path: Vec<String>,
    name: String,
}

/// Adds the names of a `use` tree, those of nested groups included.
fn add_leaves(tree: &UseTree, prefix: &[String], leaves: &mut Vec<Leaf>) {
    let with = |part: &syn::Ident| [prefix, &[part.to_string()]].concat();
    let (path, name) = match tree {
        UseTree::Path(path) => return add_leaves(&path.tree, &with(&path.ident), leaves),
        UseTree::Group(group) => {
            for tree in &group.items {
                add_leaves(tree, prefix, leaves);
            }
            return;
        }
        UseTree::Name(name) => (with(&name.ident), name.ident.to_string()),
        UseTree::Rename(rename) => (with(&rename.ident), rename.rename.to_string()),
        UseTree::Glob(_) => (prefix.to_vec(), "*".to_owned()),
    };
    leaves.push(Leaf { path, name });
}

/// Returns the paths in code that begin with `crate`, `super` or `self`, with their places.
fn paths(code: &str) -> Vec<(usize, Vec<String>)> {
    static PATH: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(\(in |\$)?\b((?:crate|super|self)(?:::\w+)+)").unwrap());
    let path = |found: Captures<'_>| {
        // The scope of a visibility, or the path of a macro.
        if found.get(1).is_some() {
            return None;
        }
        let path = found.get(2)?;
        let parts = path.as_str().split("::").map(str::to_owned).collect();
        Some((path.start(), parts))
    };
    PATH.captures_iter(code).filter_map(path).collect()
}

/// The modules of a crate, and the items that they export from others.
#[derive(Default)]
struct Names {
    modules: BTreeSet<String>,
    /// The paths of the items, by the module that exports them and their names there.
    exports: BTreeMap<(String, String), Vec<String>>,
}

impl Names {
    /// Returns the module of this crate that defines what a path names, or that exports it from
    /// another crate.
    fn resolve(&self, from: &str, path: &[String]) -> Option<String> {
        let mut parts = path.iter().map(String::as_str).peekable();
        let mut module = match *parts.peek()? {
            "crate" => "crate".to_owned(),
            "super" | "self" => from.to_owned(),
            child if self.modules.contains(&format!("{from}::{child}")) => from.to_owned(),
            _ => return None,
        };
        while let Some(part) = parts.peek() {
            let inner = format!("{module}::{part}");
            if *part == "super" {
                module.truncate(module.rfind("::")?);
            } else if self.modules.contains(&inner) {
                module = inner;
            } else if !matches!(*part, "crate" | "self") {
                break;
            }
            parts.next();
        }
        let exported = parts.next().and_then(|name| {
            let path = self.exports.get(&(module.clone(), name.to_owned()))?;
            let rest = parts.map(str::to_owned);
            let path: Vec<String> = path.iter().cloned().chain(rest).collect();
            self.resolve(&module, &path)
        });
        exported.or(Some(module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    #[test]
    fn imports_are_resolved_to_the_modules_that_define_the_items() {
        let sources = [
            source("x/src/lib.rs", "mod a;\nmod b;\npub use a::inner::Item;"),
            source("x/src/a.rs", "mod inner;\nuse inner::Own;\nuse std::fmt;"),
            source(
                "x/src/a/inner.rs",
                "use super::super::b::{self, deep::{C as D, E}};\npub(in crate::a) struct Item;",
            ),
            source("x/src/b.rs", "pub(crate) use crate::a::inner as other;"),
            source(
                "x/src/b/deep.rs",
                "// crate::a::Nothing\nuse crate::Item;\nfn f() {\n    super::other::Own::new(\"crate::a\");\n}",
            ),
        ];
        let graph = ModuleGraph::read(sources.iter());
        let shown: Vec<String> = graph
            .imports
            .iter()
            .map(|import| format!("{} {} -> {}", import.place, import.from, import.to))
            .collect();
        assert_eq!(
            shown,
            [
                "x/src/a.rs:2 crate::a -> crate::a::inner",
                "x/src/a/inner.rs:1 crate::a::inner -> crate::b",
                "x/src/a/inner.rs:1 crate::a::inner -> crate::b::deep",
                "x/src/a/inner.rs:1 crate::a::inner -> crate::b::deep",
                "x/src/b/deep.rs:2 crate::b::deep -> crate::a::inner",
                "x/src/b/deep.rs:4 crate::b::deep -> crate::a::inner",
            ]
        );
        let circle = BTreeSet::from(["crate::a::inner", "crate::b::deep"]);
        assert_eq!(graph.circles(), BTreeSet::from([circle]));
    }
}
