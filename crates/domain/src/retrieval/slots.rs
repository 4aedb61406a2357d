//! Things in a query that fit only some parameters: a URL, a path, an address.

use super::document::ToolText;
use super::words::words;

/// A kind of thing that a query can hold and a tool can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Slot {
    Url,
    Email,
    Path,
    Pdf,
    Spreadsheet,
    Picture,
}

impl Slot {
    const ALL: [Self; 6] = [
        Self::Url,
        Self::Email,
        Self::Path,
        Self::Pdf,
        Self::Spreadsheet,
        Self::Picture,
    ];

    /// Returns the stems by which names of parameters, and of tools for the last three, say that
    /// they take such a thing.
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

/// Returns the kinds of things that stand in a text, each once.
pub(super) fn slots_of(text: &str) -> Vec<Slot> {
    let mut found = Vec::new();
    let mut add = |slot: Slot| {
        if !found.contains(&slot) {
            found.push(slot);
        }
    };
    for word in text.split_whitespace() {
        let word = word.trim_matches(|character: char| "\"'`()[]{}<>,;:!?".contains(character));
        let word = word.trim_end_matches('.');
        if word.starts_with("http://") || word.starts_with("https://") || word.starts_with("www.") {
            add(Slot::Url);
        } else if is_email(word) {
            add(Slot::Email);
        } else if is_path(word) {
            add(Slot::Path);
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

/// Returns the ending of a word that looks like the name of a file.
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

fn file_kind(word: &str) -> Option<Slot> {
    let ending = extension(word)?.to_ascii_lowercase();
    match ending.as_str() {
        "pdf" => Some(Slot::Pdf),
        "xls" | "xlsx" | "csv" | "tsv" => Some(Slot::Spreadsheet),
        "png" | "jpg" | "jpeg" | "gif" | "svg" | "webp" | "bmp" => Some(Slot::Picture),
        _ => None,
    }
}

/// The kinds of things that a tool takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken(Vec<Slot>);

impl Taken {
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
        let takes = |slot: &Slot| {
            let stems = slot.stems();
            let names = |terms: &[String]| terms.iter().any(|term| stems.contains(&term.as_str()));
            names(&of_parameters) || (slot.is_file_kind() && names(&of_tool))
        };
        Self(Slot::ALL.into_iter().filter(takes).collect())
    }

    /// Returns which share of the things in a query the tool takes, from 0 to 1.
    pub(super) fn share(&self, slots: &[Slot]) -> f64 {
        if slots.is_empty() {
            return 0.0;
        }
        let taken = slots.iter().filter(|slot| self.0.contains(slot)).count();
        super::lexical::as_f64(taken) / super::lexical::as_f64(slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_in_a_query_are_recognised() {
        assert_eq!(slots_of("open https://a.example/x?y=1."), [Slot::Url]);
        assert_eq!(slots_of("mail it to (ann@example.org)"), [Slot::Email]);
        assert_eq!(slots_of("read /etc/hosts and './a b'"), [Slot::Path]);
        assert_eq!(
            slots_of("Sum column B of sales.XLSX"),
            [Slot::Path, Slot::Spreadsheet]
        );
        assert!(slots_of("what is 3.5 e.g. 1/2 @home?").is_empty());
    }

    #[test]
    fn a_tool_takes_what_its_parameters_are_named_after() {
        let tool = ToolText::of_definition(
            "fetch",
            r#"{"inputSchema":{"properties":{"page_url":{},"target":{"format":"email"}}}}"#,
        );
        let taken = Taken::new(&tool);
        assert!((taken.share(&[Slot::Url, Slot::Path]) - 0.5).abs() < 1e-12);
        assert!((taken.share(&[Slot::Email]) - 1.0).abs() < 1e-12);
        assert!(taken.share(&[]).abs() < 1e-12);
    }
}
