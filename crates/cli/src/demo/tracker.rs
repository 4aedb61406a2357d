//! A server for the issues of a project, in memory.

#![expect(
    clippy::unnecessary_wraps,
    reason = "all tools have the same signature"
)]

use std::collections::BTreeMap;

use super::sandbox::Sandbox;
use super::tool::Kind::{Choice, Integer, Text, Texts};
use super::tool::{Answer, Arguments, DemoTool, Effect, ToolFailure, mandatory, optional};

const MAX_ISSUES: usize = 1_000;
const PRIORITIES: &[&str] = &["low", "normal", "high", "urgent"];
const NUMBER: &str =
    "Number of the issue, as create_issue, list_issues and search_issues return it.";

/// An issue.
#[derive(Clone, Debug, Default)]
pub(super) struct Issue {
    title: String,
    text: String,
    is_closed: bool,
    priority: String,
    assignee: Option<String>,
    labels: Vec<String>,
    comments: Vec<String>,
}

/// The reason why an issue cannot be used.
#[derive(Debug, thiserror::Error)]
enum IssueError {
    /// There are too many issues.
    #[error("limit of {MAX_ISSUES} issues reached")]
    TooMany,
    /// No issue has the number.
    #[error("argument number: there is no issue {0}")]
    Unknown(usize),
    /// Nothing is to be changed.
    #[error("argument title, text or priority is missing: there is nothing to change")]
    NoChange,
}

/// Returns the issues of a new sandbox.
pub(super) fn first_issues() -> Vec<Issue> {
    let issue = |title: &str, text: &str, priority: &str, label: &str| Issue {
        title: title.into(),
        text: text.into(),
        priority: priority.into(),
        labels: vec![label.into()],
        ..Issue::default()
    };
    vec![
        issue(
            "Search ignores accents",
            "A search for cafe does not find café.",
            "low",
            "bug",
        ),
        issue(
            "Start page is empty offline",
            "The start page shows nothing without a network.",
            "normal",
            "bug",
        ),
        issue(
            "Export to CSV",
            "Users want their tables as CSV files.",
            "high",
            "feature",
        ),
        issue(
            "Wrong total in the report",
            "The total of week 46 counts one region twice.",
            "high",
            "bug",
        ),
        issue(
            "Slow login",
            "The login takes more than five seconds on Mondays.",
            "urgent",
            "bug",
        ),
        issue(
            "Dark colours",
            "An option for dark colours.",
            "low",
            "feature",
        ),
    ]
}

pub(super) const TOOLS: &[DemoTool] = &[
    DemoTool {
        name: "create_issue",
        effect: Effect::Adds,
        description: "Report a new bug, wish or task in the issue tracker of the project. Search for similar issues first, so that nothing is reported twice. A good title names the problem in a few words; the text says what happens, what should happen instead and how to reproduce it. The answer has the number of the new issue, which all other tools of the tracker use.",
        parameters: &[
            mandatory("title", Text, "The problem or wish in a few words."),
            optional(
                "text",
                Text,
                "Details: what happens, what should happen, how to reproduce it.",
            ),
            optional(
                "priority",
                Choice(PRIORITIES),
                "How soon somebody should look at it. The default is normal.",
            ),
            optional("labels", Texts, "Labels such as bug or feature."),
        ],
        run: create_issue,
    },
    DemoTool {
        name: "list_issues",
        effect: Effect::Reads,
        description: "List the issues of the project, one for each line with number, state, priority, assignee and title, the most urgent first. By default only open issues are listed; use the arguments to see closed ones, or only those with a label or of one person. For issues about a certain topic use search_issues.",
        parameters: &[
            optional(
                "state",
                Choice(&["open", "closed", "all"]),
                "Which issues to list. The default is open.",
            ),
            optional(
                "label",
                Text,
                "Only issues with this label, for example bug.",
            ),
            optional(
                "assignee",
                Text,
                "Only issues that are assigned to this person.",
            ),
        ],
        run: list_issues,
    },
    DemoTool {
        name: "get_issue",
        effect: Effect::Reads,
        description: "Read one issue completely: title, text, state, priority, assignee, labels and all comments in the order in which they were written. Read an issue before you change it, comment on it or close it, because lists show only its title.",
        parameters: &[mandatory("number", Integer, NUMBER)],
        run: get_issue,
    },
    DemoTool {
        name: "update_issue",
        effect: Effect::Changes,
        description: "Change the title, the text or the priority of an issue. Arguments that are left out do not change anything, but at least one of them is needed. To change the state use close_issue or reopen_issue, for the person assign_issue, and for labels label_issue.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            optional("title", Text, "The new title."),
            optional("text", Text, "The new text; it replaces the old one."),
            optional("priority", Choice(PRIORITIES), "The new priority."),
        ],
        run: update_issue,
    },
    DemoTool {
        name: "close_issue",
        effect: Effect::Changes,
        description: "Close an issue because it is done, or because it will not be done. Say why in the argument reason; it is added as a comment, so that others understand the decision later. Closing an issue that is closed already changes nothing. A closed issue can be opened again with reopen_issue.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            optional(
                "reason",
                Text,
                "Why the issue is closed, for example fixed in version 2.4.",
            ),
        ],
        run: close_issue,
    },
    DemoTool {
        name: "reopen_issue",
        effect: Effect::Changes,
        description: "Open a closed issue again, because the problem has come back or was not solved completely. Explain in a comment what has happened since it was closed. All comments, labels and the assignee stay as they were. Opening an issue that is open changes nothing.",
        parameters: &[mandatory("number", Integer, NUMBER)],
        run: reopen_issue,
    },
    DemoTool {
        name: "assign_issue",
        effect: Effect::Changes,
        description: "Make a person responsible for an issue, or nobody with an empty name. An issue has one assignee at most; an earlier one is replaced. Look with list_issues how many issues a person has already before you give them another one.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory(
                "person",
                Text,
                "Name of the person, or an empty text for nobody.",
            ),
        ],
        run: assign_issue,
    },
    DemoTool {
        name: "comment_issue",
        effect: Effect::Adds,
        description: "Write a comment below an issue: an answer to a question, a result of an investigation, a link to a document or the next step. Comments cannot be changed or deleted later. Everybody who works on the issue reads them, so keep them short and about the issue.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory("text", Text, "The comment."),
        ],
        run: comment_issue,
    },
    DemoTool {
        name: "label_issue",
        effect: Effect::Changes,
        description: "Add labels to an issue, for example bug, feature, documentation or the name of a release. Labels that the issue has already are ignored, and none is removed. Use existing labels where possible; issue_statistics shows how often each one is used.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory("labels", Texts, "The labels to add."),
        ],
        run: label_issue,
    },
    DemoTool {
        name: "search_issues",
        effect: Effect::Reads,
        description: "Find issues whose title, text or comments contain every word of a query, in any order and in upper or lower case, whether they are open or closed. Use this before you report a new issue, and when the user mentions a problem without a number.",
        parameters: &[mandatory(
            "query",
            Text,
            "Words that must all occur in the issue.",
        )],
        run: search_issues,
    },
    DemoTool {
        name: "issue_statistics",
        effect: Effect::Reads,
        description: "Count the issues of the project: how many are open and closed, how many open ones have each priority, and how often each label is used. Use this for reports and to see at a glance how a project is doing, instead of listing all issues and counting them yourself.",
        parameters: &[],
        run: issue_statistics,
    },
];

fn create_issue(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let title = arguments.words("title")?;
    let mut issues = sandbox.issues.lock();
    if issues.len() >= MAX_ISSUES {
        return Err(IssueError::TooMany.into());
    }
    issues.push(Issue {
        title: title.into(),
        text: arguments.text("text").into(),
        priority: arguments
            .optional_text("priority")
            .unwrap_or("normal")
            .into(),
        labels: arguments.texts("labels"),
        ..Issue::default()
    });
    Ok(format!("created issue {}", issues.len()))
}

impl Issue {
    fn state(&self) -> &'static str {
        if self.is_closed { "closed" } else { "open" }
    }

    fn line(&self, number: usize) -> String {
        let who = self.assignee.as_deref().unwrap_or("nobody");
        let (state, priority) = (self.state(), &self.priority);
        format!("{number}. [{state}, {priority}, {who}] {}", self.title)
    }
}

/// Returns the matching issues, one per line, the most urgent first.
fn matching_lines(sandbox: &Sandbox, fits: impl Fn(&Issue) -> bool) -> String {
    let issues = sandbox.issues.lock();
    let mut found: Vec<(usize, &Issue)> =
        issues.iter().enumerate().filter(|it| fits(it.1)).collect();
    let urgency = |issue: &Issue| PRIORITIES.iter().position(|one| *one == issue.priority);
    found.sort_by_key(|(at, issue)| (std::cmp::Reverse(urgency(issue)), *at));
    let lines: Vec<String> = found.iter().map(|(at, issue)| issue.line(at + 1)).collect();
    if lines.is_empty() {
        "no issues".into()
    } else {
        lines.join("\n")
    }
}

fn list_issues(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let state = arguments.optional_text("state").unwrap_or("open");
    let label = arguments.optional_text("label");
    let assignee = arguments.optional_text("assignee");
    Ok(matching_lines(sandbox, |issue| {
        (state == "all" || issue.state() == state)
            && label.is_none_or(|label| issue.labels.iter().any(|one| one == label))
            && assignee.is_none_or(|name| issue.assignee.as_deref() == Some(name))
    }))
}

fn search_issues(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let query = arguments.words("query")?.to_lowercase();
    Ok(matching_lines(sandbox, |issue| {
        let text = format!(
            "{} {} {}",
            issue.title,
            issue.text,
            issue.comments.join(" ")
        );
        let text = text.to_lowercase();
        query.split_whitespace().all(|word| text.contains(word))
    }))
}

/// Does something with the issue that the arguments name.
fn with_issue(
    sandbox: &Sandbox,
    arguments: &Arguments<'_>,
    act: impl FnOnce(usize, &mut Issue) -> Answer,
) -> Answer {
    let at = arguments.index("number")?;
    let mut issues = sandbox.issues.lock();
    let unknown = || ToolFailure::from(IssueError::Unknown(at + 1));
    act(at + 1, issues.get_mut(at).ok_or_else(unknown)?)
}

fn get_issue(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    with_issue(sandbox, arguments, |number, issue| {
        let labels = issue.labels.join(", ");
        let mut lines = vec![
            issue.line(number),
            format!("labels: {labels}"),
            issue.text.clone(),
        ];
        lines.extend(issue.comments.iter().map(|comment| format!("- {comment}")));
        Ok(lines.join("\n"))
    })
}

fn update_issue(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let changes = ["title", "text", "priority"].map(|name| arguments.optional_text(name));
    if changes.iter().all(Option::is_none) {
        return Err(IssueError::NoChange.into());
    }
    with_issue(sandbox, arguments, |number, issue| {
        let places = [&mut issue.title, &mut issue.text, &mut issue.priority];
        for (place, change) in places.into_iter().zip(changes) {
            if let Some(change) = change {
                *place = change.into();
            }
        }
        Ok(format!("changed issue {number}"))
    })
}

fn close_issue(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    with_issue(sandbox, arguments, |number, issue| {
        issue.is_closed = true;
        let reason = arguments.optional_text("reason");
        issue
            .comments
            .extend(reason.map(|reason| format!("closed: {reason}")));
        Ok(format!("issue {number} is closed"))
    })
}

fn reopen_issue(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    with_issue(sandbox, arguments, |number, issue| {
        issue.is_closed = false;
        Ok(format!("issue {number} is open"))
    })
}

fn assign_issue(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let person = arguments.text("person").trim();
    with_issue(sandbox, arguments, |number, issue| {
        issue.assignee = Some(person.to_owned()).filter(|name| !name.is_empty());
        let who = issue.assignee.as_deref().unwrap_or("nobody");
        Ok(format!("issue {number} is assigned to {who}"))
    })
}

fn comment_issue(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let text = arguments.words("text")?;
    with_issue(sandbox, arguments, |number, issue| {
        issue.comments.push(text.into());
        Ok(format!(
            "issue {number} has {} comments",
            issue.comments.len()
        ))
    })
}

fn label_issue(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let labels = arguments.texts("labels");
    with_issue(sandbox, arguments, |number, issue| {
        for label in labels {
            if !issue.labels.contains(&label) {
                issue.labels.push(label);
            }
        }
        Ok(format!(
            "issue {number} has the labels {}",
            issue.labels.join(", ")
        ))
    })
}

fn issue_statistics(sandbox: &Sandbox, _: &Arguments<'_>) -> Answer {
    let issues = sandbox.issues.lock();
    let n_closed = issues.iter().filter(|issue| issue.is_closed).count();
    let mut lines = vec![format!(
        "{} open, {n_closed} closed",
        issues.len() - n_closed
    )];
    for priority in PRIORITIES {
        let is_counted = |issue: &&Issue| !issue.is_closed && issue.priority == *priority;
        lines.push(format!(
            "{priority}: {}",
            issues.iter().filter(is_counted).count()
        ));
    }
    let mut labels = BTreeMap::<&str, usize>::new();
    for label in issues.iter().flat_map(|issue| &issue.labels) {
        *labels.entry(label).or_default() += 1;
    }
    lines.extend(
        labels
            .iter()
            .map(|(label, n)| format!("label {label}: {n}")),
    );
    Ok(lines.join("\n"))
}
