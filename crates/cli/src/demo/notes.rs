//! A server that stores notes in memory.

#![expect(
    clippy::unnecessary_wraps,
    reason = "all tools have the same signature"
)]

use super::sandbox::Sandbox;
use super::tool::Kind::{Choice, Integer, Text, Texts};
use super::tool::{
    Answer, ArgumentError, Arguments, DemoTool, Effect, ToolFailure, mandatory, optional,
};

const MAX_NOTES: usize = 1_000;
/// The longest note, in bytes.
const MAX_NOTE_BYTES: usize = 10_000;

/// A note.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    text: String,
    tags: Vec<String>,
    is_pinned: bool,
}

/// The reason why a note is not kept.
#[derive(Debug, thiserror::Error)]
enum NoteError {
    /// The note is too long.
    #[error("argument text: a note may have {MAX_NOTE_BYTES} bytes at most")]
    LongNote,
    /// There are too many notes.
    #[error("limit of {MAX_NOTES} notes reached")]
    TooManyNotes,
    /// No note has the number.
    #[error("argument number: there is no note {0}")]
    Unknown(usize),
}

const NUMBER: &str = "Number of the note, as add_note, list_notes and search_notes return it.";

pub(super) const TOOLS: &[DemoTool] = &[
    DemoTool {
        name: "add_note",
        effect: Effect::Adds,
        description: "Keep a short note for later. Use this when the user asks you to remember something, or when you find out a fact that will be needed again in another conversation. Each note gets a number, which the answer contains; other tools use this number. A note may have up to ten thousand bytes; for longer texts write a file instead.",
        parameters: &[
            mandatory(
                "text",
                Text,
                "The text to remember. One fact for each note is easiest to find again.",
            ),
            optional(
                "tags",
                Texts,
                "Words under which the note is filed, for example [\"release\", \"idea\"].",
            ),
        ],
        run: add_note,
    },
    DemoTool {
        name: "list_notes",
        effect: Effect::Reads,
        description: "List all notes, the oldest first, one for each line with its number. Pinned notes come before all others. Give a tag to see only the notes that are filed under it. If there are very many notes, search_notes is usually the better choice.",
        parameters: &[optional(
            "tag",
            Text,
            "Show only notes with this tag. Without it all notes are listed.",
        )],
        run: list_notes,
    },
    DemoTool {
        name: "search_notes",
        effect: Effect::Reads,
        description: "Find the notes that contain every word of a query, in any order and in upper or lower case. Use this before you add a note, to see whether the fact is known already, and whenever the user refers to something from an earlier conversation. The answer has one matching note for each line, with its number.",
        parameters: &[mandatory(
            "query",
            Text,
            "Words that must all be in the note, separated by spaces.",
        )],
        run: search_notes,
    },
    DemoTool {
        name: "read_note",
        effect: Effect::Reads,
        description: "Read one note completely, together with its tags and whether it is pinned. Lists and searches show the same text, so you need this tool only if you want the tags of a single note, or if you know its number already.",
        parameters: &[mandatory("number", Integer, NUMBER)],
        run: read_note,
    },
    DemoTool {
        name: "edit_note",
        effect: Effect::Changes,
        description: "Change the text of a note. In the mode replace the old text is lost; in the mode append the new text is added as another line and the old one stays. Tags, number and pin of the note do not change. Prefer editing a note to adding a second one about the same fact.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory("text", Text, "The new text, or the text to add."),
            optional(
                "mode",
                Choice(&["replace", "append"]),
                "Whether the text replaces the old one (the default) or is added after it.",
            ),
        ],
        run: edit_note,
    },
    DemoTool {
        name: "delete_note",
        effect: Effect::Changes,
        description: "Delete one note for good. The numbers of the other notes do not change, and the number is never used again. Only delete a note if the user asked for it, or if it is certainly wrong; outdated notes are better changed with edit_note.",
        parameters: &[mandatory("number", Integer, NUMBER)],
        run: delete_note,
    },
    DemoTool {
        name: "tag_note",
        effect: Effect::Changes,
        description: "File a note under one or more tags, in addition to those it has. Tags are compared without case. They make it easy to list everything about a project or a person later with list_notes. A tag that the note has already is ignored.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory("tags", Texts, "The tags to add, one word each."),
        ],
        run: tag_note,
    },
    DemoTool {
        name: "list_tags",
        effect: Effect::Reads,
        description: "List all tags that notes are filed under, in alphabetical order, each with the number of its notes. Look here before you invent a new tag, so that the same thing does not get two names.",
        parameters: &[],
        run: list_tags,
    },
    DemoTool {
        name: "pin_note",
        effect: Effect::Changes,
        description: "Pin a note, so that list_notes shows it before all others, or remove its pin. Use pins for the few facts that matter in nearly every conversation, such as the name of the current project or a standing wish of the user.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory(
                "state",
                Choice(&["pinned", "unpinned"]),
                "The new state of the note.",
            ),
        ],
        run: pin_note,
    },
    DemoTool {
        name: "export_notes",
        effect: Effect::Changes,
        description: "Write all notes into one Markdown file of the team folder, as a list with numbers and tags. An existing file with this path is replaced. Use this to hand the notes to somebody, or to keep a copy before many of them are changed.",
        parameters: &[mandatory(
            "path",
            Text,
            "Path of the file relative to the team folder, for example notes/all.md.",
        )],
        run: export_notes,
    },
];

fn add_note(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let text = arguments.words("text")?;
    if text.len() > MAX_NOTE_BYTES {
        return Err(NoteError::LongNote.into());
    }
    let mut notes = sandbox.notes.lock();
    if notes.len() >= MAX_NOTES {
        return Err(NoteError::TooManyNotes.into());
    }
    notes.push(Some(Note {
        text: text.into(),
        tags: lowercase(&arguments.texts("tags")),
        is_pinned: false,
    }));
    Ok(format!("kept note {}", notes.len()))
}

fn lowercase(tags: &[String]) -> Vec<String> {
    tags.iter().map(|tag| tag.to_lowercase()).collect()
}

fn list_notes(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let tag = arguments.optional_text("tag").map(str::to_lowercase);
    Ok(matching_lines(sandbox, |note| {
        (tag.as_ref()).is_none_or(|tag| note.tags.contains(tag))
    }))
}

fn search_notes(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let query = arguments.words("query")?.to_lowercase();
    Ok(matching_lines(sandbox, |note| {
        let text = note.text.to_lowercase();
        query.split_whitespace().all(|word| text.contains(word))
    }))
}

/// Returns the matching notes, one per line with its number; pinned ones come first.
fn matching_lines(sandbox: &Sandbox, fits: impl Fn(&Note) -> bool) -> String {
    let notes = sandbox.notes.lock();
    let mut lines: Vec<(bool, String)> = (notes.iter().enumerate())
        .filter_map(|(at, note)| Some((at, note.as_ref()?)))
        .filter(|(_, note)| fits(note))
        .map(|(at, note)| (!note.is_pinned, format!("{}. {}", at + 1, note.text)))
        .collect();
    lines.sort_by_key(|(is_other, _)| *is_other);
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    if lines.is_empty() {
        "no notes".into()
    } else {
        lines.join("\n")
    }
}

/// Does something with the note that the arguments name.
fn with_note(
    sandbox: &Sandbox,
    arguments: &Arguments<'_>,
    act: impl FnOnce(usize, &mut Note) -> Answer,
) -> Answer {
    let at = arguments.index("number")?;
    let mut notes = sandbox.notes.lock();
    let note = notes.get_mut(at).and_then(Option::as_mut);
    let unknown = || ToolFailure::from(NoteError::Unknown(at + 1));
    act(at + 1, note.ok_or_else(unknown)?)
}

fn read_note(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    with_note(sandbox, arguments, |number, note| {
        let pin = if note.is_pinned { ", pinned" } else { "" };
        let tags = note.tags.join(", ");
        Ok(format!("{number}. {} (tags: {tags}{pin})", note.text))
    })
}

fn edit_note(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let text = arguments.words("text")?;
    with_note(sandbox, arguments, |number, note| {
        let changed = match arguments.text("mode") {
            "append" => format!("{}\n{text}", note.text),
            _ => text.into(),
        };
        if changed.len() > MAX_NOTE_BYTES {
            return Err(NoteError::LongNote.into());
        }
        note.text = changed;
        Ok(format!("changed note {number}"))
    })
}

fn delete_note(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let at = arguments.index("number")?;
    let mut notes = sandbox.notes.lock();
    let deleted = notes.get_mut(at).and_then(Option::take);
    if deleted.is_none() {
        return Err(NoteError::Unknown(at + 1).into());
    }
    Ok(format!("deleted note {}", at + 1))
}

fn tag_note(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let tags = lowercase(&arguments.texts("tags"));
    if tags.is_empty() {
        return Err(ArgumentError::Value("tags", "a list with a tag at least").into());
    }
    with_note(sandbox, arguments, |number, note| {
        for tag in tags {
            if !note.tags.contains(&tag) {
                note.tags.push(tag);
            }
        }
        Ok(format!(
            "note {number} has the tags {}",
            note.tags.join(", ")
        ))
    })
}

fn list_tags(sandbox: &Sandbox, _: &Arguments<'_>) -> Answer {
    let notes = sandbox.notes.lock();
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for tag in notes.iter().flatten().flat_map(|note| &note.tags) {
        *counts.entry(tag).or_default() += 1;
    }
    let lines: Vec<String> = counts
        .iter()
        .map(|(tag, n)| format!("{tag}: {n}"))
        .collect();
    Ok(if lines.is_empty() {
        "no tags".into()
    } else {
        lines.join("\n")
    })
}

fn pin_note(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let state = arguments.text("state");
    with_note(sandbox, arguments, |number, note| {
        note.is_pinned = state == "pinned";
        Ok(format!("note {number} is {state}"))
    })
}

fn export_notes(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let path = arguments.words("path")?;
    let lines = matching_lines(sandbox, |_| true);
    sandbox.write("path", path, &format!("# Notes\n\n{lines}\n"))?;
    let n_notes = sandbox.notes.lock().iter().flatten().count();
    Ok(format!("wrote {n_notes} notes to {path}"))
}
