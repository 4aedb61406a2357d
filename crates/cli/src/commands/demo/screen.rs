//! The screen at the end of a demonstration: at most 80 columns.

use super::figures::{Figures, ListFigures};
use crate::output::{printable, with_separators};

const WIDTH: usize = 78;

/// Whether the proxy runs after the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// It ends.
    Ends,
    /// It runs until a signal.
    Runs,
}

pub(super) fn screen(figures: &Figures) -> String {
    let mut lines = vec![
        format!(
            "riglm demo: {} servers with {} tools behind one proxy; {} recorded agent",
            figures.n_servers,
            figures.n_tools,
            figures.learning.n_sessions + figures.after.n_sessions
        ),
        format!(
            "sessions played by MCP clients of revisions {}.",
            figures.revisions.join(" and ")
        ),
        String::new(),
    ];
    lines.extend(table(figures));
    lines.push(String::new());
    lines.extend(notes(figures));
    lines.push(String::new());
    lines.extend(example(figures));
    for unexpected in &figures.unexpected {
        lines.push(cut(&format!("UNEXPECTED  {}", printable(unexpected))));
    }
    lines.join("\n")
}

/// Returns the addresses and the next commands.
pub(super) fn places(figures: &Figures, keep: Keeping) -> String {
    let control = figures.control;
    if keep == Keeping::Ends {
        return format!(
            "\nThe control port was {control}. Ran for {:.1} s; everything is removed.\n\
             Look around while it runs:   riglm demo --keep\n\
             Next, see what your own tools cost:   riglm audit",
            figures.seconds
        );
    }
    format!(
        "\nRunning until Ctrl-C. Then everything is removed.\n  \
         page           riglm open --data-dir {}\n  \
         MCP clients    {}\n  \
         control port   http://{control}\n  \
         its token      cat {}\n\
         Next, see what your own tools cost:   riglm audit",
        figures.data_dir.display(),
        figures.mcp_url,
        figures.data_dir.join("control.token").display()
    )
}

fn table(figures: &Figures) -> Vec<String> {
    let (learning, after) = (&figures.learning, &figures.after);
    let head = |all: &str, first: &str, last: &str| row("", [all, first, last]);
    let of = |n: usize| format!("{n} sessions");
    let value = |count: fn(&ListFigures) -> String| [count(learning), count(after)];
    let with_all = |label: &str, all: String, values: [String; 2]| {
        let [first, last] = values;
        row(label, [&all, &first, &last])
    };
    vec![
        head("without riglm", "while learning", "after learning"),
        head("", &of(learning.n_sessions), &of(after.n_sessions)),
        with_all(
            "tools listed",
            figures.n_tools.to_string(),
            value(|half| format!("{:.0}", half.tools)),
        ),
        with_all(
            "tokens of their definitions",
            with_separators(figures.tokens),
            value(|half| with_separators(format_args!("{:.0}", half.tokens))),
        ),
        with_all(
            "first uses in the list",
            "100 %".into(),
            value(|half| format!("{:.0} %", half.coverage * 100.0)),
        ),
        with_all(
            "searches per session",
            "0".into(),
            value(|half| format!("{:.2}", half.searches)),
        ),
    ]
}

fn row(label: &str, cells: [&str; 3]) -> String {
    let [all, first, last] = cells;
    let row = format!("{label:<28}{all:>15}{first:>17}{last:>16}");
    row.trim_end().to_owned()
}

fn notes(figures: &Figures) -> Vec<String> {
    let build = if cfg!(debug_assertions) {
        " (unoptimized build)"
    } else {
        ""
    };
    let latency = &figures.latency;
    let saving = figures.saving() * 100.0;
    let difference = if saving < 0.0 { "more" } else { "fewer" };
    vec![
        format!(
            "The list is part of every prompt: {:.0} % {difference} tokens, with those of the",
            saving.abs()
        ),
        "search tool of riglm. Agents find hidden tools by a search, and call them as".into(),
        format!(
            "usual. All {} calls of the demo were answered and recorded.",
            figures.n_recorded
        ),
        format!(
            "Added latency: {:.2} ms, median of {} further calls{build}",
            latency.added_ms(),
            latency.n_calls
        ),
    ]
}

fn example(figures: &Figures) -> Vec<String> {
    let example = &figures.example;
    let mut lines = vec![
        cut(&format!("Session: \"{}\"", example.intent)),
        cut(&format!("  called  {}", example.called.join(", "))),
    ];
    for (at, one) in example.predictions.iter().enumerate() {
        let label = if at == 0 { "next" } else { "" };
        let chance = format!("{:.0} %", one.probability * 100.0);
        lines.push(cut(&format!("  {label:<6}{chance:>5}  {}", one.name)));
        lines.extend(two_lines(15, reasons(&one.reason)));
    }
    lines.push(cut(&format!("Search: \"{}\"", example.query)));
    lines.push(cut(&format!("  found   {}", example.found.join(", "))));
    lines.push(cut(&format!("Recommendation for \"{}\"", example.task)));
    lines.push(cut(&format!("  tool    {}", example.recommended)));
    lines.extend(two_lines(10, &example.reason));
    lines
}

/// Returns the reasons in the explanation of a prediction, without the probability before them.
fn reasons(explanation: &str) -> &str {
    let reasons = explanation.split_once("likely: ");
    reasons.map_or(explanation, |(_, reasons)| reasons)
}

/// Returns a text as at most two indented lines.
fn two_lines(indent: usize, text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in printable(text).split_whitespace() {
        let n_lines = lines.len();
        let Some(line) = lines.last_mut() else { break };
        let is_full = indent + line.chars().count() + 1 + word.chars().count() > WIDTH;
        if is_full && n_lines == 2 {
            line.push_str("...");
            break;
        }
        if is_full {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    let indented = lines
        .iter()
        .map(|line| cut(&format!("{:indent$}{line}", "")));
    indented.collect()
}

/// Shortens a line that is too long.
fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let kept: String = line.chars().take(WIDTH - 3).collect();
    format!("{}...", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(
            reasons("93.12 % likely: followed `a` in 9 of 14 cases (2 searched)"),
            "followed `a` in 9 of 14 cases (2 searched)"
        );
        let lines = two_lines(10, &"words ".repeat(40));
        assert!(
            lines.len() == 2 && lines[1].ends_with("words..."),
            "{lines:?}"
        );
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"é".repeat(90)).chars().count(), WIDTH);
    }
}
