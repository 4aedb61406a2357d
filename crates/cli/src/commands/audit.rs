//! `riglm audit`: what the tools of a user cost, which are used, and what riglm would have shown.

mod called_names;
mod clients;
mod figures;
mod history;
mod history_import;
mod page;
mod report;
mod servers;
mod transcript_progress;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use riglm_adapters_clients::transcripts::{
    TranscriptClient, TranscriptFile, TranscriptFolders, TranscriptListing,
};
use riglm_app::clock::SystemClock;
use riglm_ports::clock::Clock as _;

use self::clients::ClientFigures;
use self::figures::{AuditFigures, AuditPeriod};
use self::history::CallHistory;
use self::history_import::HistoryImport;
use self::servers::{AuditedServer, ServerTools};
use self::transcript_progress::TranscriptProgress;
use super::confirmation::is_answered_yes;
use super::data::create_private_file;
use super::import::plan::ImportTarget;
use super::import::sources::read_clients;
use super::server_listing::ServerLister;
use super::user_clients::UserClients;
use crate::args::AuditArgs;
use crate::compose::guard;
use crate::exit::WrongUsage;
use crate::output::{note, number_of, print, printable};

/// The number of servers that are started at once.
const MAX_AT_ONCE: usize = 4;

/// Reads, lists and prints, after a confirmation.
///
/// # Errors
///
/// Returns an error if standard input is no terminal and `--yes` is missing, and that of writing.
pub(super) async fn run(target: ImportTarget<'_>, arguments: &AuditArgs) -> anyhow::Result<()> {
    if let Some(path) = arguments.html.as_ref().filter(|path| path.exists()) {
        return Err(WrongUsage(format!("{} exists already", path.display())).into());
    }
    let users = UserClients::new(target.config, target.process, &arguments.home)?;
    let variables = users.places.variables.clone();
    let variable = |name: &str| variables.get(name).map(std::ffi::OsString::from);
    let folders = TranscriptFolders::new(&users.places.home, &variable);
    let mut transcripts = folders.find();
    if !arguments.client.is_empty() {
        transcripts.retain_clients(&arguments.client);
    }
    let sources = read_clients(&users);
    for text in &sources.notes {
        note(&printable(text));
    }
    let mut audited = servers::audited_servers(target, &sources)?;
    if !arguments.client.is_empty() {
        audited.retain_clients(&arguments.client);
    }
    if transcripts.files.is_empty() && audited.servers.is_empty() {
        note(&format!(
            "no transcript and no server of an MCP client was found in {}",
            users.home()
        ));
        note(
            "install an MCP client, or name the home directory of another user with --home DIR; to look \
             around without one: riglm demo --keep, and riglm open as it says",
        );
    } else {
        show_intent(&folders, &transcripts, &audited.servers, arguments);
        if !arguments.yes && !is_answered_yes("go on?")? {
            anyhow::bail!("no transcript was read, and no server was started");
        }
    }
    let names = audited.names;
    let listed = list_all(target, audited.servers, arguments).await?;
    let mut import = None;
    if arguments.import_history {
        import = Some(HistoryImport::new(target.config, &listed).await?);
    }
    let progress = TranscriptProgress::start(transcripts.n_bytes());
    let history = CallHistory::read(&transcripts, &names, import.as_mut(), &progress);
    progress.end();
    // Files that were found unreadable before are in the intent.
    for file in (history.summary.unreadable.iter()).skip(transcripts.unreadable.len()) {
        note(&printable(&format!(
            "{} was left out: {}",
            file.path.display(),
            file.reason
        )));
    }
    let clients = ClientFigures::all(target.config, &listed, &history).await?;
    let period = AuditPeriod {
        now: SystemClock.now(),
        unused_after: Duration::from_secs(u64::from(arguments.days) * 24 * 3600),
    };
    let mut figures = AuditFigures::new(&listed, &history, clients, period);
    if let Some(import) = import {
        figures.imported = Some(import.store().await?);
    }
    if let Some(path) = &arguments.html {
        let mut file = create_private_file(path)?;
        file.write_all(page::html(&figures).as_bytes())
            .with_context(|| format!("failed to write {}", path.display()))?;
        note(&format!("the page is {}", path.display()));
    }
    let text = if arguments.format.is_json() {
        figures.as_json().to_string()
    } else {
        report::text(&figures)
    };
    Ok(print(&text)?)
}

/// Tells what will be read, started and stored.
fn show_intent(
    folders: &TranscriptFolders,
    transcripts: &TranscriptListing,
    servers: &[AuditedServer],
    arguments: &AuditArgs,
) {
    note("this reads the files of MCP clients on this machine:");
    for client in TranscriptClient::ALL {
        let files: Vec<&TranscriptFile> = transcripts.of(*client).collect();
        if files.is_empty() {
            continue;
        }
        let n_bytes: u64 = files.iter().map(|file| file.size).sum();
        #[expect(clippy::cast_precision_loss, reason = "a size for people")]
        let megabytes = n_bytes as f64 / 1e6;
        let has_file = |folder: &&Path| files.iter().any(|file| file.path.starts_with(*folder));
        let places = folders.of(*client).filter(has_file);
        let places: Vec<String> = places.map(|path| path.display().to_string()).collect();
        note(&printable(&format!(
            "  {}: {} of transcripts ({megabytes:.1} MB) in {}",
            client.title(),
            number_of(files.len(), "file"),
            places.join(" and ")
        )));
    }
    for file in &transcripts.unreadable {
        note(&printable(&format!(
            "  {} is left out: {}",
            file.path.display(),
            file.reason
        )));
    }
    if !arguments.no_start && !servers.is_empty() {
        let names: Vec<String> = servers.iter().map(AuditedServer::description).collect();
        note(&printable(&format!(
            "it starts or asks these servers once, to list their tools: {}",
            names.join(", ")
        )));
    }
    if arguments.import_history {
        note("it stores the calls for the predictor, without results");
    }
    note("nothing else leaves this machine");
}

/// Lists the tools of all servers, some at once.
async fn list_all(
    target: ImportTarget<'_>,
    servers: Vec<AuditedServer>,
    arguments: &AuditArgs,
) -> anyhow::Result<Vec<ServerTools>> {
    let limit = Duration::from_secs(arguments.timeout);
    let lister = ServerLister::new(guard()?, &target.config.data_dir, limit)?;
    let lister = &lister;
    let answers = stream::iter(servers).map(|server| async move {
        if arguments.no_start {
            return server.not_started();
        }
        let answer = server.list(lister).await;
        if let Err(reason) = &answer.tools {
            note(&printable(&format!("{}: {reason}", answer.name)));
        }
        answer
    });
    Ok(answers.buffered(MAX_AT_ONCE).collect().await)
}

/// Returns the days between two times, at least one.
fn days_between(first: Timestamp, last: Timestamp) -> i64 {
    (last.as_second() - first.as_second()) / 86_400 + 1
}
