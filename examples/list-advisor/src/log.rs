//! A log of calls: JSON lines, or one JSON array of the same objects.

use std::fmt;
use std::io::{self, BufRead, Read};

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{IdError, UpstreamName};
use riglm_domain::jiff::{self, Timestamp};
use serde_json::Value;

/// The longest line that is read, in bytes.
const MAX_LINE: u64 = 1024 * 1024;
/// The number of bad entries whose place and reason are kept; all are counted.
const MAX_REASONS: usize = 100;

/// One call of a tool.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) session: String,
    pub(crate) at: Timestamp,
    pub(crate) tool: ToolRef,
    /// Empty if it is not known.
    pub(crate) client: String,
}

/// The calls of a log in their order, and the entries that are no calls.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) calls: Vec<Call>,
    /// Number of entries that continue an earlier call, which are no calls of their own.
    pub(crate) n_continued: usize,
    pub(crate) n_bad: usize,
    /// The first of the bad entries.
    pub(crate) bad: Vec<BadEntry>,
    /// Whether the log is one array, so that places are numbers of its entries.
    pub(crate) is_array: bool,
}

/// An entry that cannot be used.
#[derive(Debug)]
pub(crate) struct BadEntry {
    /// The number of the line, or of the entry of an array, from 1.
    pub(crate) place: usize,
    pub(crate) reason: BadReason,
}

/// The reason for which an entry cannot be used.
#[derive(Debug)]
pub(crate) enum BadReason {
    TooLong,
    NotJson(serde_json::Error),
    NotAnObject,
    Missing(&'static str),
    NotText(&'static str),
    Time(jiff::Error),
    Tool(IdError),
}

impl fmt::Display for BadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "longer than {MAX_LINE} bytes"),
            Self::NotJson(error) => write!(f, "not JSON: {error}"),
            Self::NotAnObject => f.write_str("not a JSON object"),
            Self::Missing(key) => write!(f, "`{key}` is missing"),
            Self::NotText(key) => write!(f, "`{key}` is not a text"),
            Self::Time(error) => write!(f, "`time` is not a time in RFC 3339: {error}"),
            Self::Tool(error) => error.fmt(f),
        }
    }
}

impl Log {
    /// Reads a log. A log whose first character is `[` is one array; its elements are the entries.
    pub(crate) fn read(mut reader: impl BufRead) -> io::Result<Self> {
        let mut log = Self::default();
        let mut line = Vec::new();
        for place in 1.. {
            line.clear();
            let n_read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)?;
            if n_read == 0 {
                break;
            }
            let is_blank = line.iter().all(u8::is_ascii_whitespace);
            if log.is_empty() && line.trim_ascii_start().starts_with(b"[") {
                log.is_array = true;
                reader.read_to_end(&mut line)?;
                log.add_array(&line);
                break;
            }
            let is_cut = !line.ends_with(b"\n") && n_read as u64 == MAX_LINE;
            if is_cut && skip_line(&mut reader)? {
                log.add_bad(place, BadReason::TooLong);
            } else if !is_blank {
                log.add(
                    place,
                    serde_json::from_slice(&line).map_err(BadReason::NotJson),
                );
            }
        }
        Ok(log)
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.n_bad == 0 && self.n_continued == 0
    }

    fn add_array(&mut self, text: &[u8]) {
        match serde_json::from_slice::<Vec<Value>>(text) {
            Ok(entries) => {
                for (entry, place) in entries.into_iter().zip(1..) {
                    self.add(place, Ok(entry));
                }
            }
            // The message names the line and the column.
            Err(error) => self.add_bad(1, BadReason::NotJson(error)),
        }
    }

    fn add(&mut self, place: usize, entry: Result<Value, BadReason>) {
        match entry.and_then(|entry| parse(&entry)) {
            Ok(Some(call)) => self.calls.push(call),
            Ok(None) => self.n_continued += 1,
            Err(reason) => self.add_bad(place, reason),
        }
    }

    fn add_bad(&mut self, place: usize, reason: BadReason) {
        self.n_bad += 1;
        if self.bad.len() < MAX_REASONS {
            self.bad.push(BadEntry { place, reason });
        }
    }
}

/// Reads up to the end of the line. Returns whether there was anything to skip.
fn skip_line(reader: &mut impl BufRead) -> io::Result<bool> {
    let mut has_skipped = false;
    loop {
        let part = reader.fill_buf()?;
        let (n, is_end) = match part.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (part.len(), part.is_empty()),
        };
        has_skipped |= n > 0;
        reader.consume(n);
        if is_end {
            return Ok(has_skipped);
        }
    }
}

/// Reads an entry; `None` for one that continues an earlier call.
fn parse(entry: &Value) -> Result<Option<Call>, BadReason> {
    if !entry.is_object() {
        return Err(BadReason::NotAnObject);
    }
    if !entry["continues"].is_null() {
        return Ok(None);
    }
    let time = text_of(entry, "started_at")?.or(text_of(entry, "time")?);
    let time = time.ok_or(BadReason::Missing("time"))?;
    let name = text_of(entry, "tool")?.ok_or(BadReason::Missing("tool"))?;
    let tool = match text_of(entry, "upstream")? {
        None => name.parse(),
        Some(upstream) => UpstreamName::parse(upstream).map(|upstream| ToolRef {
            upstream,
            tool: name.into(),
        }),
    };
    Ok(Some(Call {
        session: text_of(entry, "session")?
            .ok_or(BadReason::Missing("session"))?
            .to_owned(),
        at: time.parse().map_err(BadReason::Time)?,
        tool: tool.map_err(BadReason::Tool)?,
        client: text_of(entry, "client")?.unwrap_or_default().to_owned(),
    }))
}

fn text_of<'a>(entry: &'a Value, key: &'static str) -> Result<Option<&'a str>, BadReason> {
    match &entry[key] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(BadReason::NotText(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"session":"s","time":"2026-01-02T03:04:05Z","tool":"a/x"}"#;

    fn bad(text: &str) -> Vec<(usize, String)> {
        let log = Log::read(text.as_bytes()).unwrap();
        assert_eq!(log.n_bad, log.bad.len());
        let bad = log.bad.iter();
        bad.map(|entry| (entry.place, entry.reason.to_string()))
            .collect()
    }

    #[test]
    fn lines_are_calls_and_blank_lines_are_skipped() {
        let log = Log::read(format!("{GOOD}\n\n  \n{GOOD}").as_bytes()).unwrap();
        assert_eq!((log.calls.len(), log.n_bad), (2, 0));
        assert_eq!(log.calls[1].tool.to_string(), "a/x");
        assert_eq!(log.calls[1].client, "");
    }

    #[test]
    fn a_bad_line_is_reported_with_its_number_and_the_others_are_read() {
        let lines = [
            GOOD,
            "{",
            "3",
            r#"{"time":"2026-01-02T03:04:05Z","tool":"a/x"}"#,
            r#"{"session":"s","time":"yesterday","tool":"a/x"}"#,
            r#"{"session":"s","time":"2026-01-02T03:04:05Z","tool":"x"}"#,
            r#"{"session":"s","time":5,"tool":"a/x"}"#,
            GOOD,
        ];
        let text = lines.join("\n");
        assert_eq!(Log::read(text.as_bytes()).unwrap().calls.len(), 2);
        let bad = bad(&text);
        let places: Vec<usize> = bad.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [2, 3, 4, 5, 6, 7]);
        for ((_, reason), part) in bad.iter().zip([
            "not JSON",
            "not a JSON object",
            "`session` is missing",
            "`time` is not a time in RFC 3339",
            "tool \"x\" must be written as UPSTREAM/TOOL",
            "`time` is not a text",
        ]) {
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn a_line_without_end_is_skipped_and_the_next_one_is_read() {
        let endless = "x".repeat(3 * usize::try_from(MAX_LINE).unwrap());
        let text = format!("{endless}\n{GOOD}\n{endless}");
        let log = Log::read(text.as_bytes()).unwrap();
        assert_eq!(log.calls.len(), 1);
        assert_eq!(
            bad(&text),
            [1, 3].map(|place| (place, "longer than 1048576 bytes".to_owned()))
        );
    }

    #[test]
    fn an_array_of_the_proxy_is_read_without_its_continued_rounds() {
        let text = concat!(
            r#"[{"session":"s","upstream":"notes","tool":"add/note","#,
            r#""started_at":"2026-01-02T03:04:05.678Z","continues":null},"#,
            "\n",
            r#"{"session":"s","upstream":"notes","tool":"add/note","#,
            r#""started_at":"2026-01-02T03:04:06.678Z","continues":"i"},{}]"#
        );
        let log = Log::read(text.as_bytes()).unwrap();
        assert_eq!(log.calls[0].tool.tool.as_str(), "add/note");
        assert_eq!((log.calls.len(), log.n_continued), (1, 1));
        assert!(log.is_array);
        assert_eq!(bad(text), [(3, "`time` is missing".to_owned())]);
    }
}
