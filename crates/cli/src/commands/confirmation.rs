//! Questions to the user at the terminal, before something is changed, deleted or read.

use std::io::{self, BufRead as _, IsTerminal as _};

use anyhow::Context as _;

use crate::args::ChangeArgs;
use crate::exit::WrongUsage;
use crate::output::note;

/// Asks a question on standard error, unless the arguments have `--yes`. Returns whether the answer
/// is yes.
///
/// # Errors
///
/// Returns [`WrongUsage`] if standard input is no terminal.
pub(super) fn is_confirmed(change: &ChangeArgs, question: &str) -> anyhow::Result<bool> {
    if change.yes {
        return Ok(true);
    }
    is_answered_yes(question)
}

/// Asks a question on standard error. Returns whether the answer is yes.
///
/// # Errors
///
/// Returns [`WrongUsage`] if standard input is no terminal.
pub(super) fn is_answered_yes(question: &str) -> anyhow::Result<bool> {
    let input = io::stdin();
    if !input.is_terminal() {
        let text = "standard input is not a terminal: use --yes";
        return Err(WrongUsage(text.into()).into());
    }
    note(&format!("{question} [y/N]"));
    let mut answer = String::new();
    input
        .lock()
        .read_line(&mut answer)
        .context("failed to read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
