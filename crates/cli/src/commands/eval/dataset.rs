//! Catalogs and queries of evaluations, read from files with one JSON object per line.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use anyhow::{Context, bail};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::retrieval::{IndexedTool, ToolText};
use riglm_evaluation::RelevantItems;
use riglm_evaluation::labelled_queries::{LabelledCatalog, LabelledQuery};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The longest accepted line, in bytes, without its line ending.
const MAX_LINE_BYTES: usize = 16 << 20;

#[derive(Debug, Deserialize)]
struct CatalogLine {
    id: String,
    #[serde(default)]
    server: String,
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    input_schema: Value,
}

#[derive(Debug, Deserialize)]
struct QueryLine {
    query: String,
    #[serde(default)]
    gold: Vec<String>,
    gold_any: Option<Vec<Vec<String>>>,
    task: Option<String>,
    session: Option<String>,
}

/// Reads a catalog and the first `limit` queries.
///
/// # Errors
///
/// Returns the first error in a file, with the file name and line number.
pub(super) fn read(
    catalog: &Path,
    queries: &Path,
    limit: Option<u32>,
) -> anyhow::Result<LabelledCatalog> {
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut tools = Vec::new();
    // All tools of an evaluation belong to one upstream: their ids are unique.
    let upstream = UpstreamName::parse("catalog").context("failed to name the catalog")?;
    for line in lines::<CatalogLine>(catalog, None)? {
        if positions.insert(line.id.clone(), tools.len()).is_some() {
            bail!("{}: duplicate id {:?}", catalog.display(), line.id);
        }
        let definition = json!({
            "description": line.description,
            "inputSchema": line.input_schema,
        });
        let text = ToolText::of_definition(&line.name, &definition.to_string());
        let tool = ToolRef {
            upstream: upstream.clone(),
            tool: ToolName::from(line.id.as_str()),
        };
        tools.push(IndexedTool::new(tool, text.on_server(&line.server, "", "")));
    }
    if tools.is_empty() {
        bail!("{}: there are no tools", catalog.display());
    }
    let mut groups: HashMap<String, u64> = HashMap::new();
    let mut labelled = Vec::new();
    for line in lines::<QueryLine>(queries, limit)? {
        let gold = line
            .gold_any
            .unwrap_or_else(|| line.gold.into_iter().map(|id| vec![id]).collect());
        let place = |id: String| {
            // A tool that is missing in the catalog counts as never found.
            let unknown = positions.len();
            *positions.entry(id).or_insert(unknown)
        };
        let mut place = place;
        let gold = gold
            .into_iter()
            .map(|group| group.into_iter().map(&mut place).collect())
            .collect();
        let group = match line.task.or(line.session) {
            Some(name) => name,
            // A group of its own; NUL keeps it apart from names in the file.
            None => format!("\0{}", labelled.len()),
        };
        let next = groups.len() as u64;
        labelled.push(LabelledQuery {
            text: line.query,
            gold: RelevantItems::new(gold),
            group: *groups.entry(group).or_insert(next),
        });
    }
    if labelled.is_empty() {
        bail!("{}: there are no queries", queries.display());
    }
    Ok(LabelledCatalog {
        tools,
        queries: labelled,
        foreign: Vec::new(),
    })
}

/// Reads the texts of the first `limit` queries.
///
/// # Errors
///
/// Returns the first error in the file, with the file name and line number.
pub(super) fn texts(queries: &Path, limit: Option<u32>) -> anyhow::Result<Vec<String>> {
    let lines = lines::<QueryLine>(queries, limit)?;
    if lines.is_empty() {
        bail!("{}: there are no queries", queries.display());
    }
    Ok(lines.into_iter().map(|line| line.query).collect())
}

/// Reads the lines of a file, without empty ones.
pub(super) fn lines<T: DeserializeOwned>(
    path: &Path,
    limit: Option<u32>,
) -> anyhow::Result<Vec<T>> {
    let shown = path.display().to_string();
    let file = File::open(path).with_context(|| format!("failed to open {shown}"))?;
    lines_of(BufReader::new(file), &shown, limit)
}

fn lines_of<T: DeserializeOwned>(
    mut reader: impl BufRead,
    shown: &str,
    limit: Option<u32>,
) -> anyhow::Result<Vec<T>> {
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    let mut read = Vec::new();
    let mut line = Vec::new();
    let mut number = 0_u64;
    while read.len() < limit {
        number += 1;
        line.clear();
        // Bounded to the longest line and its ending: a device file may never end.
        let n_read = (&mut reader)
            .take(MAX_LINE_BYTES as u64 + 2)
            .read_until(b'\n', &mut line)
            .with_context(|| format!("failed to read line {number} of {shown}"))?;
        if n_read == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.len() > MAX_LINE_BYTES {
            bail!("{shown}: line {number} is longer than {MAX_LINE_BYTES} bytes");
        }
        let text = std::str::from_utf8(text)
            .with_context(|| format!("{shown}: line {number} is not UTF-8"))?;
        if text.trim().is_empty() {
            continue;
        }
        let value = serde_json::from_str(text)
            .with_context(|| format!("{shown}: line {number} is invalid"))?;
        read.push(value);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn tools_and_queries_are_read_and_unknown_keys_ignored() {
        let catalog = file(
            "{\"id\":\"a\",\"name\":\"read\",\"x\":1}\n\n{\"id\":\"b\",\"name\":\"write\",\"server\":\"s\"}\n",
        );
        let queries = file(
            "{\"qid\":\"1\",\"query\":\"q\",\"gold\":[\"b\",\"gone\"],\"session\":\"s\"}\n{\"query\":\"r\",\"gold\":[\"a\"],\"gold_any\":[[\"a\",\"b\"]],\"session\":\"s\"}\n{\"query\":\"t\",\"gold\":[]}\n",
        );
        let read = read(catalog.path(), queries.path(), None).unwrap();
        assert_eq!((read.tools.len(), read.queries.len()), (2, 3));
        assert_eq!(read.queries[0].gold, RelevantItems::all_of(vec![1, 2]));
        assert_eq!(read.queries[1].gold, RelevantItems::new(vec![vec![0, 1]]));
        assert_eq!(read.queries[0].group, read.queries[1].group);
        assert_ne!(read.queries[0].group, read.queries[2].group);
        assert!(read.queries[2].gold.is_empty());
    }

    #[test]
    fn a_bad_line_is_named() {
        let queries = file("");
        let error = |text: &str| {
            let catalog = file(text);
            let error = read(catalog.path(), queries.path(), None).unwrap_err();
            format!("{error:#}")
        };
        assert!(error("{\"id\":\"a\",\"name\":\"x\"}\n{\"id\":\"b\"}").contains("line 2"));
        assert!(
            error("{\"id\":\"a\",\"name\":\"x\"}\n{\"id\":\"a\",\"name\":\"y\"}")
                .contains("duplicate id")
        );
        assert!(error("").contains("no tools"));
        let missing = read(Path::new("/nowhere/x"), queries.path(), None).unwrap_err();
        assert!(format!("{missing:#}").contains("failed to open /nowhere/x"));
    }

    #[test]
    fn a_file_without_queries_is_named() {
        let catalog = file("{\"id\":\"a\",\"name\":\"x\"}");
        let queries = file("\n\n");
        let error = read(catalog.path(), queries.path(), None).unwrap_err();
        let expected = format!("{}: there are no queries", queries.path().display());
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn overlong_lines_are_refused_before_their_end() {
        let endless = std::io::repeat(b'x');
        let lines = lines_of::<Value>(BufReader::new(endless), "it", None);
        let error = lines.unwrap_err().to_string();
        assert_eq!(error, "it: line 1 is longer than 16777216 bytes");
        let longest = format!("\"{}\"", "x".repeat(MAX_LINE_BYTES - 2));
        for end in ["", "\n", "\r\n"] {
            let text = format!("1\n{longest}{end}");
            let lines = lines_of::<Value>(text.as_bytes(), "it", None).unwrap();
            assert_eq!(lines.len(), 2);
        }
    }

    #[test]
    fn lines_with_invalid_utf_8_are_reported() {
        let lines = lines_of::<Value>(&b"1\n\xff\n"[..], "it", None);
        let error = format!("{:#}", lines.unwrap_err());
        assert!(error.starts_with("it: line 2 is not UTF-8"), "{error}");
    }
}
