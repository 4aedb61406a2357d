//! Slots: values in a query that only some parameters take, such as a URL, a path or an address.

use strum::VariantArray;

use super::document::ToolText;
use super::words::words;
use crate::num::to_f64;

/// A kind of value that a query can contain and a tool can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, VariantArray)]
pub(super) enum QuerySlot {
    Url,
    Email,
    Path,
    Pdf,
    Spreadsheet,
    Picture,
}

impl QuerySlot {
    /// Returns the stems that indicate this kind of value in names of parameters. For kinds of
    /// files, they also count in the name, the description and the server of a tool.
    fn stems(self) -> &'static [&'static str] {
        match self {
            Self::Url => &["url", "uri", "urls", "link", "href", "websit", "webpag"],
            Self::Email => &["email", "recipi", "cc", "bcc", "mail"],
            Self::Path => &[
                "path",
                "file",
                "filenam",
                "filepath",
                "directori",
                "folder",
                "dir",
            ],
            Self::Pdf => &["pdf"],
            Self::Spreadsheet => &[
                "excel",
                "xlsx",
                "xls",
                "csv",
                "spreadsheet",
                "workbook",
                "sheet",
            ],
            Self::Picture => &["imag", "pictur", "photo", "png", "jpg", "jpeg"],
        }
    }

    /// Returns whether it is a kind of file, which a description names rather than a parameter.
    fn is_file_kind(self) -> bool {
        matches!(self, Self::Pdf | Self::Spreadsheet | Self::Picture)
    }
}

/// Returns the kinds of values in a text, each once.
pub(super) fn slots_of(text: &str) -> Vec<QuerySlot> {
    let mut found = Vec::new();
    let mut add = |slot: QuerySlot| {
        if !found.contains(&slot) {
            found.push(slot);
        }
    };
    for word in text.split_whitespace() {
        let word = word.trim_matches(|character: char| "\"'`()[]{}<>,;:!?".contains(character));
        let word = word.trim_end_matches('.');
        if word.starts_with("http://") || word.starts_with("https://") || word.starts_with("www.") {
            add(QuerySlot::Url);
        } else if is_email(word) {
            add(QuerySlot::Email);
        } else if is_path(word) {
            add(QuerySlot::Path);
        }
        if let Some(kind) = file_kind(word) {
            add(kind);
        }
    }
    found.sort_unstable();
    found
}

fn is_email(word: &str) -> bool {
    word.split_once('@').is_some_and(|(name, host)| {
        let is_host = |character: char| character.is_alphanumeric() || ".-".contains(character);
        !name.is_empty() && host.contains('.') && host.chars().all(is_host)
    })
}

fn is_path(word: &str) -> bool {
    let drive = word.as_bytes();
    let has_drive = drive.len() > 2 && drive[0].is_ascii_alphabetic() && &drive[1..3] == b":\\";
    let is_rooted = word.len() > 1 && (word.starts_with('/') || word.starts_with("~/"));
    let is_relative = word.starts_with("./") || word.starts_with("../");
    has_drive || is_rooted || is_relative || extension(word).is_some()
}

/// Returns the extension of a word that looks like the name of a file.
fn extension(word: &str) -> Option<&str> {
    const KNOWN: &[&str] = &[
        "txt", "md", "pdf", "doc", "docx", "xls", "xlsx", "csv", "tsv", "json", "yaml", "yml",
        "xml", "html", "js", "ts", "py", "rs", "go", "java", "c", "cpp", "h", "sh", "sql", "log",
        "toml", "ini", "png", "jpg", "jpeg", "gif", "svg", "webp", "bmp", "ppt", "pptx", "zip",
        "tar", "gz", "mp3", "mp4", "wav", "parquet", "ipynb", "cfg", "conf", "env", "css",
    ];
    let (name, ending) = word.rsplit_once('.')?;
    let is_known = KNOWN.iter().any(|known| ending.eq_ignore_ascii_case(known));
    (!name.is_empty() && is_known).then_some(ending)
}

fn file_kind(word: &str) -> Option<QuerySlot> {
    let ending = extension(word)?.to_ascii_lowercase();
    match ending.as_str() {
        "pdf" => Some(QuerySlot::Pdf),
        "xls" | "xlsx" | "csv" | "tsv" => Some(QuerySlot::Spreadsheet),
        "png" | "jpg" | "jpeg" | "gif" | "svg" | "webp" | "bmp" => Some(QuerySlot::Picture),
        _ => None,
    }
}

/// The kinds of values that a tool takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AcceptedSlots(Vec<QuerySlot>);

impl AcceptedSlots {
    pub(super) fn new(tool: &ToolText) -> Self {
        let of_parameters: Vec<String> = (tool.parameters.iter())
            .flat_map(|parameter| {
                let mut terms = words(&parameter.name);
                terms.extend(words(&parameter.format));
                terms
            })
            .collect();
        let mut of_tool = words(&tool.name);
        of_tool.extend(words(&tool.description));
        of_tool.extend(words(&tool.server));
        let takes = |slot: &QuerySlot| {
            let stems = slot.stems();
            let names = |terms: &[String]| terms.iter().any(|term| stems.contains(&term.as_str()));
            names(&of_parameters) || (slot.is_file_kind() && names(&of_tool))
        };
        Self(QuerySlot::VARIANTS.iter().copied().filter(takes).collect())
    }

    /// Returns the share of the values in a query that the tool takes, from 0 to 1.
    pub(super) fn share(&self, slots: &[QuerySlot]) -> f64 {
        if slots.is_empty() {
            return 0.0;
        }
        let taken = slots.iter().filter(|slot| self.0.contains(slot)).count();
        to_f64(taken) / to_f64(slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_in_a_query_are_recognised() {
        assert_eq!(slots_of("open https://a.example/x?y=1."), [QuerySlot::Url]);
        assert_eq!(slots_of("mail it to (ann@example.org)"), [QuerySlot::Email]);
        assert_eq!(slots_of("read /etc/hosts and './a b'"), [QuerySlot::Path]);
        assert_eq!(
            slots_of("Sum column B of sales.XLSX"),
            [QuerySlot::Path, QuerySlot::Spreadsheet]
        );
        assert!(slots_of("what is 3.5 e.g. 1/2 @home?").is_empty());
    }

    #[test]
    fn a_tool_accepts_the_slots_of_its_parameters() {
        let tool = ToolText::of_definition(
            "fetch",
            r#"{"inputSchema":{"properties":{"page_url":{},"target":{"format":"email"}}}}"#,
        );
        let taken = AcceptedSlots::new(&tool);
        assert!((taken.share(&[QuerySlot::Url, QuerySlot::Path]) - 0.5).abs() < 1e-12);
        assert!((taken.share(&[QuerySlot::Email]) - 1.0).abs() < 1e-12);
        assert!(taken.share(&[]).abs() < 1e-12);
    }
}
