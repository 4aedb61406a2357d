//! A server for the files of the sandbox folder.

use std::path::{Path, PathBuf};

use super::sandbox::{Place, Sandbox};
use super::tool::Kind::{Integer, Text};
use super::tool::{
    Answer, ArgumentError, Arguments, DemoTool, Effect, ToolFailure, mandatory, optional,
};

/// The most lines of an answer.
const MAX_LINES: usize = 200;
/// The deepest folder that a search looks into.
const MAX_DEPTH: usize = 8;

pub(super) const TOOLS: &[DemoTool] = &[
    DemoTool {
        name: "read_file",
        effect: Effect::Reads,
        description: "Read the complete content of one text file in the team folder and return it as text. Use this when you need to see what a file says before you quote, summarize or change it. To look at the beginning of a long file, set max_lines. The file must be UTF-8 text and at most one megabyte long; for binary files use file_info instead. Paths that lead out of the team folder are refused.",
        parameters: &[
            mandatory(
                "path",
                Text,
                "Path of the file relative to the team folder, for example reports/2026-week-47.md.",
            ),
            optional(
                "max_lines",
                Integer,
                "Return only this many lines from the beginning of the file. Without it the whole file is returned.",
            ),
        ],
        run: read_file,
    },
    DemoTool {
        name: "write_file",
        effect: Effect::Changes,
        description: "Create a text file in the team folder, or replace the content of an existing one completely. Folders in the path that do not exist yet are created. Be careful: the previous content of the file is lost and cannot be restored, so read the file first if you are not sure. To add text at the end of a file and keep what is there, use append_file.",
        parameters: &[
            mandatory(
                "path",
                Text,
                "Path of the file relative to the team folder. Missing folders are created.",
            ),
            mandatory(
                "content",
                Text,
                "The complete new content of the file, as text. At most one megabyte.",
            ),
        ],
        run: write_file,
    },
    DemoTool {
        name: "append_file",
        effect: Effect::Adds,
        description: "Add text at the end of a text file in the team folder, without changing what the file already contains. The file is created if it does not exist. This is the right tool for logs, running lists and minutes, where each entry follows the earlier ones. A line break is added before the text if the file does not end with one.",
        parameters: &[
            mandatory(
                "path",
                Text,
                "Path of the file relative to the team folder.",
            ),
            mandatory("content", Text, "The text to add at the end of the file."),
        ],
        run: append_file,
    },
    DemoTool {
        name: "list_folder",
        effect: Effect::Reads,
        description: "List the files and folders that one folder of the team folder contains, in alphabetical order, with the size of each file in bytes. Names of folders end with a slash. Subfolders are not opened; call the tool again with their path to see what they contain. Use an empty path or a dot for the team folder itself.",
        parameters: &[mandatory(
            "path",
            Text,
            "Path of the folder relative to the team folder; a dot for the team folder itself.",
        )],
        run: list_folder,
    },
    DemoTool {
        name: "create_folder",
        effect: Effect::Adds,
        description: "Create a folder in the team folder, together with all folders above it that do not exist yet. Nothing happens if the folder exists already, so it is safe to call this before writing files. You do not need it for write_file, which creates missing folders itself.",
        parameters: &[mandatory(
            "path",
            Text,
            "Path of the new folder relative to the team folder, for example archive/2026.",
        )],
        run: create_folder,
    },
    DemoTool {
        name: "move_file",
        effect: Effect::Changes,
        description: "Move a file or a folder to another place in the team folder, or give it another name. Folders in the target path are created when they do not exist. The call fails if something with the target path exists already, so nothing is ever overwritten by accident; delete or move the other file first in that case.",
        parameters: &[
            mandatory(
                "from",
                Text,
                "Current path of the file or folder, relative to the team folder.",
            ),
            mandatory(
                "to",
                Text,
                "New path, relative to the team folder. It must not exist yet.",
            ),
        ],
        run: move_file,
    },
    DemoTool {
        name: "copy_file",
        effect: Effect::Adds,
        description: "Copy one file of the team folder to another path. The original stays where it is. Folders in the target path are created when they do not exist. The call fails if the target exists already. Use this to make a backup before a larger change, or to start a new document from a template.",
        parameters: &[
            mandatory(
                "from",
                Text,
                "Path of the file to copy, relative to the team folder.",
            ),
            mandatory(
                "to",
                Text,
                "Path of the copy, relative to the team folder. It must not exist yet.",
            ),
        ],
        run: copy_file,
    },
    DemoTool {
        name: "delete_file",
        effect: Effect::Changes,
        description: "Delete one file of the team folder for good. There is no trash: a deleted file cannot be restored. Folders are not deleted, and neither are files outside the team folder. If you only want a file out of the way, move it into an archive folder with move_file instead.",
        parameters: &[mandatory(
            "path",
            Text,
            "Path of the file to delete, relative to the team folder.",
        )],
        run: delete_file,
    },
    DemoTool {
        name: "search_in_files",
        effect: Effect::Reads,
        description: "Find all lines that contain a text in the files of the team folder, like grep. Upper and lower case do not matter. The answer has one line for each match, with the path of the file, the number of the line and the line itself. Limit the search to one folder with the argument folder. Files that are not text are skipped, and at most 200 matches are returned.",
        parameters: &[
            mandatory(
                "query",
                Text,
                "The text to look for, in any case. It is not a regular expression.",
            ),
            optional(
                "folder",
                Text,
                "Search only in this folder and its subfolders. Without it the whole team folder is searched.",
            ),
        ],
        run: search_in_files,
    },
    DemoTool {
        name: "file_info",
        effect: Effect::Reads,
        description: "Get facts about one file or folder without reading its content: whether it is a file or a folder, its size in bytes and, for a text file, its number of lines. Use it to check whether a path exists, or how long a file is before you read it.",
        parameters: &[mandatory(
            "path",
            Text,
            "Path of the file or folder, relative to the team folder.",
        )],
        run: file_info,
    },
];

fn read_file(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let text = sandbox.read("path", arguments.text("path"))?;
    let Some(limit) = arguments.integer("max_lines") else {
        return Ok(text);
    };
    let limit =
        usize::try_from(limit).map_err(|_| ArgumentError::Value("max_lines", "0 or more"))?;
    Ok(text.lines().take(limit).collect::<Vec<_>>().join("\n"))
}

fn write_file(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (path, content) = (arguments.words("path")?, arguments.text("content"));
    sandbox.write("path", path, content)?;
    Ok(format!("wrote {} bytes to {path}", content.len()))
}

fn append_file(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (path, content) = (arguments.words("path")?, arguments.text("content"));
    let exists = sandbox.place("path", path)?.path.exists();
    let mut text = if exists {
        sandbox.read("path", path)?
    } else {
        String::new()
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(content);
    sandbox.write("path", path, &text)?;
    Ok(format!("{path} has {} lines", text.lines().count()))
}

fn list_folder(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let place = sandbox.place("path", arguments.text("path"))?;
    let mut lines = Vec::new();
    for entry in place.check(std::fs::read_dir(&place.path))? {
        let entry = place.check(entry)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let met = place.check(entry.metadata())?;
        lines.push(if met.is_dir() {
            format!("{name}/")
        } else {
            format!("{name} ({} bytes)", met.len())
        });
    }
    lines.sort();
    Ok(if lines.is_empty() {
        "the folder is empty".into()
    } else {
        lines.join("\n")
    })
}

fn create_folder(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let place = sandbox.place("path", arguments.words("path")?)?;
    place.check(std::fs::create_dir_all(&place.path))?;
    Ok(format!("the folder {} exists", place.name))
}

fn move_file(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (from, to) = two_places(sandbox, arguments)?;
    from.check(std::fs::rename(&from.path, &to.path))?;
    Ok(format!("moved {} to {}", from.name, to.name))
}

fn copy_file(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (from, to) = two_places(sandbox, arguments)?;
    let size = from.check(std::fs::copy(&from.path, &to.path))?;
    Ok(format!("copied {size} bytes to {}", to.name))
}

/// Returns the places to move or copy from and to; the target does not exist, but its folder does.
fn two_places(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Result<(Place, Place), ToolFailure> {
    let from = sandbox.place("from", arguments.words("from")?)?;
    let to = sandbox.place("to", arguments.words("to")?)?;
    from.check(from.path.metadata())?;
    if to.path.symlink_metadata().is_ok() {
        return Err(ArgumentError::Value("to", "a path that does not exist yet").into());
    }
    if let Some(parent) = to.path.parent() {
        to.check(std::fs::create_dir_all(parent))?;
    }
    Ok((from, to))
}

fn delete_file(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let place = sandbox.place("path", arguments.words("path")?)?;
    place.check(std::fs::remove_file(&place.path))?;
    Ok(format!("deleted {}", place.name))
}

fn search_in_files(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let query = arguments.words("query")?.to_lowercase();
    let folder = sandbox.place("folder", arguments.text("folder"))?;
    folder.check(folder.path.metadata())?;
    let mut files = Vec::new();
    gather(&folder.path, MAX_DEPTH, &mut files);
    files.sort();
    let mut lines = Vec::new();
    for path in files {
        let name = sandbox.name_of(&path);
        // A file that is not text has no lines to find.
        let text = sandbox.read("folder", &name).unwrap_or_default();
        for (at, line) in text.lines().enumerate() {
            if line.to_lowercase().contains(&query) && lines.len() < MAX_LINES {
                lines.push(format!("{name}:{}: {line}", at + 1));
            }
        }
    }
    Ok(if lines.is_empty() {
        "no matches".into()
    } else {
        lines.join("\n")
    })
}

/// Adds the files of a folder and its subfolders. Symbolic links are not followed.
fn gather(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        match entry.file_type() {
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            Ok(kind) if kind.is_dir() && depth > 0 => gather(&entry.path(), depth - 1, files),
            _ => {}
        }
    }
}

fn file_info(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let place = sandbox.place("path", arguments.text("path"))?;
    let met = place.check(place.path.metadata())?;
    if met.is_dir() {
        return Ok(format!("{}: a folder", place.name));
    }
    let lines = sandbox.read("path", &place.name);
    let lines = lines.map_or_else(
        |_| "not text".into(),
        |text| format!("{} lines", text.lines().count()),
    );
    Ok(format!(
        "{}: a file, {} bytes, {lines}",
        place.name,
        met.len()
    ))
}
