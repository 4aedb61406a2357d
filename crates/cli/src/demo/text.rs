//! A server for text and tables: counting, comparing, rewriting.

#![expect(
    clippy::unnecessary_wraps,
    reason = "all tools have the same signature"
)]

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::difference::difference;
use super::sandbox::Sandbox;
use super::tool::Kind::{Choice, Text};
use super::tool::{Answer, ArgumentError, Arguments, DemoTool, Effect, mandatory, optional};

pub(super) const TOOLS: &[DemoTool] = &[
    DemoTool {
        name: "word_count",
        effect: Effect::Reads,
        description: "Count the lines, words and characters of a text. Words are separated by white space, and characters are counted as people see them, not as bytes. Use this to check whether a text keeps to a limit, for example of a summary or a message, because counting words yourself is not reliable.",
        parameters: &[mandatory("text", Text, "The text to count.")],
        run: word_count,
    },
    DemoTool {
        name: "compare",
        effect: Effect::Reads,
        description: "Show which lines differ between two texts, in the manner of diff. Lines that only the first text has begin with a minus, lines that only the second one has with a plus, and common lines with a blank. Texts may have up to a thousand lines each. Use this to check or to explain a change.",
        parameters: &[
            mandatory("before", Text, "The text before the change."),
            mandatory("after", Text, "The text after the change."),
        ],
        run: compare,
    },
    DemoTool {
        name: "slugify",
        effect: Effect::Reads,
        description: "Turn a title into a name that fits into a web address or a file name: letters and digits in lower case, with hyphens between the words and without any other characters. Use this for the names of new files, branches and pages, so that they all look the same.",
        parameters: &[mandatory(
            "text",
            Text,
            "The title, with a letter or digit at least.",
        )],
        run: slugify,
    },
    DemoTool {
        name: "replace_text",
        effect: Effect::Reads,
        description: "Replace every occurrence of a phrase in a text with another phrase and return the new text with the number of replacements. Upper and lower case matter, and the phrase is taken as it is, not as a regular expression. Files are not changed; write the result with a file tool if you need it there.",
        parameters: &[
            mandatory("text", Text, "The text to change."),
            mandatory("find", Text, "The phrase to replace."),
            mandatory(
                "replacement",
                Text,
                "The phrase to put there instead; it may be empty.",
            ),
        ],
        run: replace_text,
    },
    DemoTool {
        name: "sort_lines",
        effect: Effect::Reads,
        description: "Sort the lines of a text, alphabetically without regard to case, or by the number that they begin with. Blank lines are removed. Lines that are equal in this order stay in the order in which they were. Use this for lists, glossaries and simple tables.",
        parameters: &[
            mandatory("text", Text, "The lines to sort."),
            optional(
                "order",
                Choice(&["alphabetical", "numeric"]),
                "How lines are compared. The default is alphabetical.",
            ),
            optional(
                "direction",
                Choice(&["ascending", "descending"]),
                "The direction. The default is ascending.",
            ),
        ],
        run: sort_lines,
    },
    DemoTool {
        name: "unique_lines",
        effect: Effect::Reads,
        description: "Remove repeated lines from a text and keep the first of each, in the order in which they were. Lines are equal if they have the same characters after removing white space at their ends. The answer says how many lines were removed. Use this to clean up lists and rows of data before they are counted.",
        parameters: &[mandatory("text", Text, "The lines.")],
        run: unique_lines,
    },
    DemoTool {
        name: "change_case",
        effect: Effect::Reads,
        description: "Write a text in upper case, in lower case, or in title case, where each word begins with a capital letter. White space and all other characters stay as they are. It works for letters of all languages that have upper and lower case.",
        parameters: &[
            mandatory("text", Text, "The text to rewrite."),
            mandatory(
                "case",
                Choice(&["upper", "lower", "title"]),
                "The case of the result.",
            ),
        ],
        run: change_case,
    },
    DemoTool {
        name: "extract",
        effect: Effect::Reads,
        description: "Find all mail addresses, web links or numbers in a text and return them, one for each line, in the order in which they occur and without repetitions. Use this to gather contacts from a message, sources from a document or figures from a report.",
        parameters: &[
            mandatory("text", Text, "The text to look through."),
            mandatory(
                "kind",
                Choice(&["mails", "links", "numbers"]),
                "What to look for.",
            ),
        ],
        run: extract,
    },
    DemoTool {
        name: "csv_to_json",
        effect: Effect::Reads,
        description: "Convert a table in CSV into a list of JSON objects, one for each row. The first line has the names of the columns. Values that are numbers become JSON numbers, all others texts. Fields in double quotes may contain commas. Each row must have as many fields as there are columns, otherwise the answer names the row that is wrong.",
        parameters: &[mandatory(
            "csv",
            Text,
            "The table, with the names of the columns in the first line.",
        )],
        run: csv_to_json,
    },
    DemoTool {
        name: "json_value",
        effect: Effect::Reads,
        description: "Read one value out of a JSON document by its path. A path has the names of members and the positions of list items, counted from 0 and separated by dots, for example limits.rows or items.0.name. An empty path returns the whole document, which is a simple way to check that a text is valid JSON.",
        parameters: &[
            mandatory("json", Text, "The JSON document."),
            mandatory(
                "path",
                Text,
                "The path of the value, for example limits.rows.",
            ),
        ],
        run: json_value,
    },
];

fn word_count(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let text = arguments.text("text");
    Ok(format!(
        "{} lines, {} words, {} characters",
        text.lines().count(),
        text.split_whitespace().count(),
        text.chars().count()
    ))
}

fn compare(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    Ok(difference(
        arguments.text("before"),
        arguments.text("after"),
    )?)
}

fn slugify(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let runs = arguments
        .text("text")
        .split(|character: char| !character.is_alphanumeric());
    let runs = runs.filter(|run| !run.is_empty()).map(str::to_lowercase);
    let slug = runs.collect::<Vec<_>>().join("-");
    if slug.is_empty() {
        return Err(ArgumentError::Value("text", "a title with letters or digits").into());
    }
    Ok(slug)
}

fn replace_text(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (text, find) = (arguments.text("text"), arguments.text("find"));
    if find.is_empty() {
        return Err(ArgumentError::Value("find", "a text that is not empty").into());
    }
    let count = text.matches(find).count();
    let changed = text.replace(find, arguments.text("replacement"));
    Ok(format!("{count} replacements\n{changed}"))
}

fn sort_lines(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let mut lines: Vec<&str> = arguments.text("text").lines().collect();
    lines.retain(|line| !line.trim().is_empty());
    match arguments.text("order") {
        "numeric" => lines.sort_by(|a, b| leading_number(a).total_cmp(&leading_number(b))),
        _ => lines.sort_by_key(|line| line.to_lowercase()),
    }
    if arguments.text("direction") == "descending" {
        lines.reverse();
    }
    Ok(lines.join("\n"))
}

/// Returns the number at the beginning of a line; the lowest of all if there is none.
fn leading_number(line: &str) -> f64 {
    let is_other = |character: char| !character.is_ascii_digit() && !".-".contains(character);
    let number = line.trim_start().split(is_other).next().unwrap_or_default();
    number.parse().unwrap_or(f64::NEG_INFINITY)
}

fn unique_lines(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let mut known = BTreeSet::new();
    let lines: Vec<&str> = arguments.text("text").lines().map(str::trim).collect();
    let kept: Vec<&str> = (lines.iter().copied())
        .filter(|line| known.insert(*line))
        .collect();
    let n_removed = lines.len() - kept.len();
    Ok(format!("{}\n{n_removed} lines removed", kept.join("\n")))
}

fn change_case(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let text = arguments.text("text");
    Ok(match arguments.text("case") {
        "upper" => text.to_uppercase(),
        "lower" => text.to_lowercase(),
        _ => title_case(text),
    })
}

fn title_case(text: &str) -> String {
    let mut is_start = true;
    let mut title = String::with_capacity(text.len());
    for character in text.chars() {
        if is_start {
            title.extend(character.to_uppercase());
        } else {
            title.extend(character.to_lowercase());
        }
        is_start = !character.is_alphanumeric();
    }
    title
}

fn extract(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let is_edge = |character: char| ",;:()<>[]\"'!?.".contains(character);
    let fits = |word: &str| match arguments.text("kind") {
        "mails" => (word.split_once('@'))
            .is_some_and(|(name, host)| !name.is_empty() && host.contains('.')),
        "links" => word.starts_with("http://") || word.starts_with("https://"),
        _ => word.parse::<f64>().is_ok_and(f64::is_finite),
    };
    let mut found: Vec<&str> = Vec::new();
    for word in arguments
        .text("text")
        .split(|it: char| it.is_whitespace() || ",|".contains(it))
    {
        let word = word.trim_matches(is_edge);
        if fits(word) && !found.contains(&word) {
            found.push(word);
        }
    }
    Ok(if found.is_empty() {
        "nothing found".into()
    } else {
        found.join("\n")
    })
}

/// A row has too few or too many fields.
#[derive(Debug, thiserror::Error)]
#[error("argument csv: row {row} has {n_fields} fields, but there are {n_columns} columns")]
struct RowError {
    row: usize,
    n_fields: usize,
    n_columns: usize,
}

/// Returns the rows of a table, each with the names of its columns.
pub(super) fn csv_rows(csv: &str) -> Result<Vec<Map<String, Value>>, super::tool::ToolFailure> {
    let mut lines = csv.lines().filter(|line| !line.trim().is_empty());
    let columns = csv_fields(lines.next().unwrap_or_default());
    if columns.iter().all(String::is_empty) {
        return Err(ArgumentError::Value("csv", "a table with a line of names").into());
    }
    let mut rows = Vec::new();
    for (at, line) in lines.enumerate() {
        let fields = csv_fields(line);
        if fields.len() != columns.len() {
            let (n_fields, n_columns) = (fields.len(), columns.len());
            let row = at + 1;
            return Err(RowError {
                row,
                n_fields,
                n_columns,
            }
            .into());
        }
        let values = fields.into_iter().map(|field| match field.parse::<f64>() {
            Ok(number) if number.is_finite() => number_value(number),
            _ => field.into(),
        });
        rows.push(columns.iter().cloned().zip(values).collect());
    }
    Ok(rows)
}

/// Returns a number, as a whole one if it is.
fn number_value(number: f64) -> Value {
    let text = number.to_string();
    text.parse::<i64>()
        .map_or_else(|_| number.into(), Value::from)
}

fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match (character, fields.last_mut()) {
            ('"', _) => is_quoted = !is_quoted,
            (',', _) if !is_quoted => fields.push(String::new()),
            (_, Some(field)) => field.push(character),
            (_, None) => {}
        }
    }
    fields.iter().map(|field| field.trim().to_owned()).collect()
}

fn csv_to_json(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let rows = csv_rows(arguments.text("csv"))?;
    let lines: Vec<String> = rows
        .into_iter()
        .map(|row| Value::Object(row).to_string())
        .collect();
    Ok(format!("[{}]", lines.join(",\n")))
}

fn json_value(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let document: Value = serde_json::from_str(arguments.text("json"))
        .map_err(|_| ArgumentError::Value("json", "a valid JSON document"))?;
    let mut value = &document;
    for part in arguments
        .text("path")
        .split('.')
        .filter(|part| !part.is_empty())
    {
        let next = match part.parse::<usize>() {
            Ok(at) if value.is_array() => value.get(at),
            _ => value.get(part),
        };
        let absent = ArgumentError::Value("path", "a path that the document has");
        value = next.ok_or(absent)?;
    }
    Ok(value.to_string())
}
