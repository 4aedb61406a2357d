//! Catalogs for a replay: one JSON object with the callable tools.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail};
use riglm_evaluation::replay::{ReplayCatalog, ReplayTool};
use serde::Deserialize;

use super::Leniency;

#[derive(Debug, Deserialize)]
struct CatalogFile {
    tools: Vec<ToolEntry>,
}

#[derive(Debug, Deserialize)]
struct ToolEntry {
    name: String,
    description: Option<String>,
    server: Option<String>,
}

/// Reads a catalog. Returns the number of skipped duplicate tools with it.
///
/// # Errors
///
/// Returns the first error, with the file name and the line or tool.
pub(super) fn read(path: &Path, leniency: Leniency) -> anyhow::Result<(ReplayCatalog, u64)> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("failed to open {shown}"))?;
    let entries: CatalogFile = serde_json::from_reader(BufReader::new(file))
        .with_context(|| format!("{shown} is not a catalog"))?;
    let mut catalog = ReplayCatalog::default();
    let mut names = HashSet::new();
    let mut n_twice = 0;
    for (number, entry) in (1..).zip(entries.tools) {
        if !names.insert(entry.name.clone()) {
            if leniency == Leniency::Refuse {
                bail!("{shown}: tool {number}: duplicate name {:?}", entry.name);
            }
            n_twice += 1;
            continue;
        }
        catalog.tools.push(ReplayTool {
            name: entry.name,
            description: entry.description.unwrap_or_default(),
            server: entry.server.unwrap_or_default(),
        });
    }
    if catalog.tools.is_empty() {
        bail!("{shown}: there are no tools");
    }
    Ok((catalog, n_twice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, leniency: Leniency) -> anyhow::Result<(ReplayCatalog, u64)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path(), leniency)
    }

    #[test]
    fn tools_are_read_in_their_order_and_unknown_keys_ignored() {
        let text = r#"{"catalog":"x","tools":[{"name":"b","server":"s","id":1},{"name":"a","description":"A"},{"name":"c","description":null}]}"#;
        let (catalog, n_twice) = read_text(text, Leniency::Refuse).unwrap();
        let names: Vec<&str> = catalog.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!((names, n_twice), (vec!["b", "a", "c"], 0));
        assert_eq!(
            (&*catalog.tools[0].server, &*catalog.tools[1].description),
            ("s", "A")
        );
    }

    #[test]
    fn invalid_catalogs_are_refused_with_the_reason() {
        let error = |text: &str| format!("{:#}", read_text(text, Leniency::Refuse).unwrap_err());
        assert!(error("{\"tools\":[\n{\"name\":1}]}").contains("line 2"));
        assert!(error("{}").contains("tools"));
        assert!(error("{\"tools\":[]}").contains("there are no tools"));
        let twice = r#"{"tools":[{"name":"a"},{"name":"b"},{"name":"a"}]}"#;
        assert!(error(twice).contains("tool 3: duplicate name \"a\""));
        let (catalog, n_twice) = read_text(twice, Leniency::Skip).unwrap();
        assert_eq!((catalog.tools.len(), n_twice), (2, 1));
        let missing = read(Path::new("/nowhere/x"), Leniency::Refuse).unwrap_err();
        assert!(format!("{missing:#}").contains("failed to open /nowhere/x"));
    }
}
