//! `riglm data`: what is stored of a client, handed out or removed.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use riglm_adapters_storage::{erase, open_reader};
use riglm_app::clock::SystemClock;
use riglm_ports::analytics::{ClientData, ClientRow, ClientSelector, Deleted};
use serde_json::{Value, json};

use super::db::show;
use crate::args::{DataCommand, DeleteArgs, ExportArgs, StoreArgs};
use crate::config::Config;
use crate::exit::WrongUsage;
use crate::output::{note, printable};

/// How long a running proxy may take to carry its records of the client to the database.
const CARRY_WITHIN: Duration = Duration::from_secs(10);

impl DataCommand {
    /// Returns where the store is, and in which form results are printed.
    pub(super) fn store(&self) -> &StoreArgs {
        match self {
            Self::Export(arguments) => &arguments.store,
            Self::Delete(arguments) => &arguments.store,
        }
    }
}

/// Does what the arguments ask for.
pub(super) async fn run(config: &Config, command: &DataCommand) -> anyhow::Result<()> {
    match command {
        DataCommand::Export(arguments) => export(config, arguments).await,
        DataCommand::Delete(arguments) => delete(config, arguments).await,
    }
}

async fn export(config: &Config, arguments: &ExportArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let clients = ClientSelector(arguments.client.clone());
    let n_rows = if let Some(path) = &arguments.output {
        let mut lines = Lines::new(BufWriter::new(created(path)?));
        store.export(&clients, &mut |row| lines.take(&row)).await?;
        let failed = || format!("failed to write {}", path.display());
        lines.finish().with_context(failed)?
    } else {
        let mut lines = Lines::new(io::stdout());
        store.export(&clients, &mut |row| lines.take(&row)).await?;
        match lines.finish() {
            // A reader that has gone away has seen what it wanted to see.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("failed to write to standard output")?,
        }
    };
    store.close().await;
    if let Some(path) = &arguments.output {
        let path = printable(&path.display().to_string());
        let text = format!("wrote {n_rows} rows to {path}");
        show(arguments.store.json, &json!({"rows": n_rows}), &text)
    } else {
        note(&format!("{n_rows} rows"));
        Ok(())
    }
}

/// Creates a file that its owner alone can read.
fn created(path: &Path) -> anyhow::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let failed = || format!("failed to create {}", path.display());
    options.open(path).with_context(failed)
}

/// Writes rows as JSON, one a line, until that fails.
struct Lines<W> {
    output: W,
    n_rows: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Lines<W> {
    fn new(output: W) -> Self {
        Self {
            output,
            n_rows: 0,
            failure: None,
        }
    }

    /// Returns whether another row is wanted.
    fn take(&mut self, ClientRow { kind, row }: &ClientRow) -> bool {
        let line = json!({"kind": kind, "row": row});
        match writeln!(self.output, "{line}") {
            Ok(()) => {
                self.n_rows += 1;
                true
            }
            Err(error) => {
                self.failure = Some(error);
                false
            }
        }
    }

    fn finish(mut self) -> io::Result<u64> {
        match self.failure {
            Some(error) => Err(error),
            None => self.output.flush().map(|()| self.n_rows),
        }
    }
}

/// Asks whether all of a client is to be removed, unless the arguments say so.
///
/// # Errors
///
/// Returns that it is not, and [`WrongUsage`] where nobody can be asked.
pub(super) fn confirm(arguments: &DeleteArgs) -> anyhow::Result<()> {
    if !arguments.yes && !is_confirmed(&arguments.client)? {
        bail!("nothing was deleted");
    }
    Ok(())
}

async fn delete(config: &Config, arguments: &DeleteArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let clients = ClientSelector(arguments.client.clone());
    let data_dir = &config.data_dir;
    let erased = erase(&store, data_dir, &clients, CARRY_WITHIN, &SystemClock).await?;
    store.close().await;
    let Deleted {
        n_sessions,
        n_calls,
        n_others,
    } = erased.deleted;
    show(
        arguments.store.json,
        &deleted_as_json(&erased.deleted, erased.is_complete),
        &format!("deleted {n_sessions} sessions, {n_calls} calls and {n_others} other rows"),
    )?;
    if erased.has_open_session {
        note("a session of the client was open: what it records from now on is not removed");
    }
    if !erased.is_complete {
        bail!("a running proxy still holds records of the client: run this again");
    }
    Ok(())
}

/// Returns what `data delete` prints as JSON.
pub(super) fn deleted_as_json(deleted: &Deleted, is_complete: bool) -> Value {
    json!({
        "sessions": deleted.n_sessions,
        "calls": deleted.n_calls,
        "others": deleted.n_others,
        "complete": is_complete,
    })
}

/// Asks whoever sits at the terminal.
fn is_confirmed(client: &str) -> anyhow::Result<bool> {
    let input = io::stdin();
    if !input.is_terminal() {
        return Err(WrongUsage("standard input is no terminal to ask: give --yes".into()).into());
    }
    let client = printable(client);
    note(&format!(
        "delete all that is stored of client {client}? [y/N]"
    ));
    let mut answer = String::new();
    input
        .lock()
        .read_line(&mut answer)
        .context("failed to read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
