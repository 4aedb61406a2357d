//! `riglm data`: export or deletion of the data of a client.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use riglm_adapters_storage::{erase, open_reader};
use riglm_app::clock::SystemClock;
use riglm_ports::analytics::{ClientData, ClientRow, ClientSelector, DeletedRows, ErasureReport};
use serde_json::{Value, json};

use super::confirmation::is_answered_yes;
use super::db::show;
use crate::args::{DataCommand, DeleteArgs, ExportArgs, StoreArgs};
use crate::compose::CARRY_WITHIN;
use crate::config::Config;
use crate::output::{note, printable};

impl DataCommand {
    pub(super) fn store(&self) -> &StoreArgs {
        match self {
            Self::Export(arguments) => &arguments.store,
            Self::Delete(arguments) => &arguments.store,
        }
    }
}

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
        let mut lines = JsonLines::new(BufWriter::new(create_private_file(path)?));
        store.export(&clients, &mut |row| lines.take(&row)).await?;
        let failed = || format!("failed to write {}", path.display());
        lines.finish().with_context(failed)?
    } else {
        let mut lines = JsonLines::new(io::stdout());
        store.export(&clients, &mut |row| lines.take(&row)).await?;
        match lines.finish() {
            // A closed pipe is no error: the reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("failed to write to standard output")?,
        }
    };
    store.close().await;
    if let Some(path) = &arguments.output {
        let path = printable(&path.display().to_string());
        let text = format!("wrote {n_rows} rows to {path}");
        show(arguments.store.format, &json!({"rows": n_rows}), &text)
    } else {
        // On standard error, because standard output has the rows.
        note(&format!("{n_rows} rows"));
        Ok(())
    }
}

/// Creates a file that only its owner can read.
pub(super) fn create_private_file(path: &Path) -> anyhow::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let failed = || format!("failed to create {}", path.display());
    options.open(path).with_context(failed)
}

/// Writes rows as JSON, one per line, until a write fails.
struct JsonLines<W> {
    output: W,
    n_rows: u64,
    failure: Option<io::Error>,
}

impl<W: Write> JsonLines<W> {
    fn new(output: W) -> Self {
        Self {
            output,
            n_rows: 0,
            failure: None,
        }
    }

    /// Returns whether the next row should follow.
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

/// Asks for confirmation of the deletion, unless the arguments have `--yes`.
///
/// # Errors
///
/// Returns an error if the user declines, and that of a wrong usage if standard input is no terminal.
pub(super) fn confirm(arguments: &DeleteArgs) -> anyhow::Result<()> {
    let client = printable(&arguments.client);
    let question = format!("delete all data of client {client}?");
    if !arguments.yes && !is_answered_yes(&question)? {
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
    let DeletedRows {
        n_sessions,
        n_calls,
        n_others,
    } = erased.deleted;
    show(
        arguments.store.format,
        &as_json(&erased),
        &format!("deleted {n_sessions} sessions, {n_calls} calls and {n_others} other rows"),
    )?;
    if erased.has_open_session {
        note("the client had an open session: its new records are not deleted");
    }
    if !erased.is_complete {
        bail!("a running proxy still has records of the client: run the command again");
    }
    Ok(())
}

/// Returns the JSON output of `data delete` for an unused database.
pub(super) fn nothing_deleted() -> Value {
    as_json(&ErasureReport {
        deleted: DeletedRows::default(),
        is_complete: true,
        has_open_session: false,
    })
}

fn as_json(erased: &ErasureReport) -> Value {
    let deleted = &erased.deleted;
    json!({
        "sessions": deleted.n_sessions,
        "calls": deleted.n_calls,
        "others": deleted.n_others,
        "complete": erased.is_complete,
    })
}
