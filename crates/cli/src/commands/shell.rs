//! `riglm completions` and `riglm man`: files for shells and for the reader of manual pages, made
//! from the description of the command line.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::output::{note, print};

/// Prints the completions of a shell.
///
/// # Errors
///
/// Returns the error of writing.
pub(super) fn completions(arguments: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "riglm", &mut script);
    let script = String::from_utf8(script).context("the completions are not UTF-8")?;
    print(script.trim_end())?;
    Ok(())
}

/// Prints the manual page of riglm, or writes those of all commands to a directory.
///
/// # Errors
///
/// Returns the error of writing.
pub(super) fn man(arguments: &ManArgs) -> anyhow::Result<()> {
    // The names of the pages of subcommands are complete only then.
    let mut command = Cli::command();
    command.build();
    let Some(directory) = &arguments.directory else {
        let page = page(&command)?;
        print(page.trim_end())?;
        return Ok(());
    };
    fs::create_dir_all(directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    let n_pages = write_pages(&command, "riglm", directory)?;
    note(&format!("{n_pages} pages in {}", directory.display()));
    Ok(())
}

/// Writes the page of a command and those below, and returns their number.
fn write_pages(command: &clap::Command, name: &str, directory: &Path) -> anyhow::Result<usize> {
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page(command)?)
        .with_context(|| format!("failed to write {}", path.display()))?;
    let mut n_pages = 1;
    let below = command.get_subcommands();
    for one in below.filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        n_pages += write_pages(one, &format!("{name}-{}", one.get_name()), directory)?;
    }
    Ok(n_pages)
}

fn page(command: &clap::Command) -> anyhow::Result<String> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    String::from_utf8(page).context("the page is not UTF-8")
}
