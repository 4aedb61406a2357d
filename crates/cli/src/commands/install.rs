//! `riglm install`: riglm in the files of MCP clients.

mod server_probe;

use std::path::PathBuf;

use anyhow::Context as _;
use riglm_adapters_clients::configuration::{
    Client, ClientFile, ConfiguredServer, Creation, EditError, EntryChange, EntryKey, InstallEntry,
    InstallRequest, InstalledClient, Ledger, NextStep, Preview, ReadContext, ServerNature,
    WriteError, apply, client_files, installed_client, installed_clients, preview_install,
    read_servers,
};
use riglm_app::clock::SystemClock;
use riglm_ports::clock::Clock as _;
use serde_json::{Value, json};

use self::server_probe::{KeptServer, ServerProbe};
use super::confirmation::is_confirmed;
use super::connect::KEY_VARIABLE;
use super::file_diff::diff_text;
use super::import::plan::{ImportTarget, KnownServers};
use super::import::sources::error_text;
use super::installation_lock::InstallationLock;
use super::service::{config_option, data_dir_option};
use super::user_clients::{ENTRY, UserClients, endpoint};
use crate::args::{Duplicates, InstallArgs};
use crate::config::Overrides;
use crate::exit::WrongUsage;
use crate::output::{note, print, printable};

/// The changes of the files of clients that have not been made yet.
#[derive(Debug, Default)]
pub(super) struct InstallPlan {
    pub(super) installs: Vec<PlannedInstall>,
    /// The reasons why files are left alone.
    pub(super) failures: Vec<FailedInstall>,
    /// Whether the changes were made.
    pub(super) is_applied: bool,
}

/// The change of one file.
#[derive(Debug)]
pub(super) struct PlannedInstall {
    pub(super) client: &'static Client,
    pub(super) preview: Preview,
    /// Files of an administrator that shut out riglm.
    pub(super) managed: Vec<PathBuf>,
    /// The steps that the client needs afterwards.
    pub(super) next_steps: Vec<NextStep>,
    /// The servers of the file that riglm has, too.
    pub(super) duplicates: Vec<String>,
    /// Those of them that are not taken out with the others, because riglm cannot serve them now.
    pub(super) kept: Vec<KeptServer>,
}

/// A file that cannot be changed.
#[derive(Debug)]
pub(super) struct FailedInstall {
    pub(super) client: &'static Client,
    pub(super) reason: String,
}

/// The choice of clients and of their connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstallChoice<'a> {
    /// The clients; all that are installed if there is none.
    pub(super) clients: &'a [&'static Client],
    pub(super) profile: Option<&'a str>,
    pub(super) creation: Creation,
    pub(super) duplicates: Duplicates,
}

/// Adds riglm to clients, after a confirmation.
///
/// # Errors
///
/// Returns an error if a file cannot be changed; the others are changed all the same.
pub(super) async fn run(target: ImportTarget<'_>, arguments: &InstallArgs) -> anyhow::Result<()> {
    // Clients start riglm connect elsewhere, so they must name the file and the folder, too.
    let overrides = Overrides {
        file: config_option(target.process, &arguments.places)?,
        data_dir: data_dir_option(target.process, &arguments.places)?,
        ..target.overrides.clone()
    };
    let target = ImportTarget {
        overrides: &overrides,
        ..target
    };
    let users = UserClients::new(target.config, target.process, &arguments.home)?;
    let _lock = InstallationLock::of_change(&target.config.data_dir, &arguments.change)?;
    let choice = InstallChoice {
        clients: &arguments.client,
        profile: arguments.profile.as_deref(),
        creation: if arguments.create {
            Creation::Allowed
        } else {
            Creation::Refused
        },
        duplicates: arguments.duplicates,
    };
    let known = KnownServers::new(target, None)?;
    let mut plan = plan(target, &users, choice, &known).await?;
    if plan.installs.is_empty() && plan.failures.is_empty() {
        note("no installed MCP client was found (riglm install --help names those that are known)");
    }
    let is_json = arguments.change.format.is_json();
    if !is_json {
        for install in &plan.installs {
            print(&diff_text(&install.preview))?;
        }
    }
    for text in plan.kept_texts() {
        note(&printable(&text));
    }
    let n_changes = plan.n_changes();
    let is_applied = n_changes > 0 && !arguments.change.dry_run && {
        let question = format!("change {n_changes} files?");
        is_confirmed(&arguments.change, &question)?
    };
    plan.is_applied = is_applied;
    let mut failures: Vec<String> = plan.failures.iter().map(FailedInstall::text).collect();
    let mut done = Vec::new();
    if is_applied {
        for install in &plan.installs {
            match install.apply(target) {
                Ok(()) => done.push(install),
                Err(error) => failures.push(format!("{}: {error:#}", install.client.title)),
            }
        }
    }
    if is_json {
        print(&plan.as_json().to_string())?;
    } else {
        if n_changes == 0 {
            done.extend(&plan.installs);
        }
        for install in done {
            install.tell();
        }
        if n_changes > 0 && !is_applied {
            note("nothing was written");
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    anyhow::bail!("{}", printable(&failures.join("; ")))
}

/// Plans to add riglm to clients. Servers at addresses are asked before they are taken out.
///
/// # Errors
///
/// Returns [`WrongUsage`] if the address of the proxy is unknown.
pub(super) async fn plan(
    target: ImportTarget<'_>,
    users: &UserClients,
    choice: InstallChoice<'_>,
    known: &KnownServers<'_>,
) -> anyhow::Result<InstallPlan> {
    let address = endpoint(target.config, choice.profile).ok_or_else(|| {
        let text = "listen.address has port 0, so the address for clients is unknown";
        WrongUsage(text.into())
    })?;
    let mut arguments = vec!["connect".to_owned()];
    if let Some(profile) = choice.profile {
        arguments.extend(["--profile".to_owned(), profile.to_owned()]);
    }
    for (flag, path) in [
        ("--config", &target.overrides.file),
        ("--data-dir", &target.overrides.data_dir),
    ] {
        if let Some(path) = path {
            let path = std::path::absolute(target.process.working_directory.join(path));
            let path = path.context("invalid path")?;
            arguments.extend([flag.to_owned(), path.display().to_string()]);
        }
    }
    let mut composer = EntryComposer {
        users,
        target,
        known,
        probe: ServerProbe::new(known, &target.config.data_dir)?,
        duplicates: choice.duplicates,
        entry: InstallEntry {
            name: ENTRY.into(),
            address,
            program: users.program.display().to_string(),
            arguments,
            key: if target.config.keys.is_empty() {
                EntryKey::None
            } else {
                EntryKey::Variable(KEY_VARIABLE.into())
            },
        },
    };
    let mut plan = InstallPlan::default();
    for installed in clients_to_change(users, choice) {
        let client = installed.client;
        for file in installed.install_files() {
            match composer.install(client, file).await {
                Ok(install) => plan.installs.push(PlannedInstall {
                    managed: installed.managed_files.clone(),
                    ..install
                }),
                Err(error) => plan.failures.push(FailedInstall {
                    client,
                    reason: error_text(error.as_ref()),
                }),
            }
        }
    }
    for client in choice.clients {
        let is_it = |other: &Client| other.id == client.id;
        let is_planned = plan.installs.iter().any(|install| is_it(install.client))
            || plan.failures.iter().any(|failure| is_it(failure.client));
        if !is_planned {
            let reason =
                "it is not installed: it has no file and no folder (--create makes the file)";
            plan.failures.push(FailedInstall {
                client,
                reason: reason.to_owned(),
            });
        }
    }
    Ok(plan)
}

fn clients_to_change(users: &UserClients, choice: InstallChoice<'_>) -> Vec<InstalledClient> {
    if choice.clients.is_empty() {
        return installed_clients(&users.places);
    }
    let found = choice
        .clients
        .iter()
        .filter_map(|client| match choice.creation {
            Creation::Allowed => Some(client_files(&users.places, client)),
            Creation::Refused => installed_client(&users.places, client),
        });
    found.collect()
}

/// Makes the entries for riglm.
struct EntryComposer<'a> {
    users: &'a UserClients,
    target: ImportTarget<'a>,
    known: &'a KnownServers<'a>,
    probe: ServerProbe<'a>,
    duplicates: Duplicates,
    entry: InstallEntry,
}

impl EntryComposer<'_> {
    /// Returns the change of a file.
    async fn install(
        &mut self,
        client: &'static Client,
        file: &ClientFile,
    ) -> anyhow::Result<PlannedInstall> {
        let attempt = |entry: &InstallEntry| {
            let request = InstallRequest {
                entry,
                riglm: &self.users.riglm,
                // The client is there, or its file was asked for.
                creation: Creation::Allowed,
            };
            preview_install(&file.path, client, &request)
        };
        let mut key = self.entry.key.clone();
        let preview = match attempt(&self.entry) {
            Err(WriteError::Edit {
                source: EditError::KeyNeeded { .. },
                ..
            }) => {
                let process = self.target.process;
                let text = process.variable(KEY_VARIABLE, &self.target.config.data_dir)?;
                let text = text.ok_or_else(|| {
                    WrongUsage(format!(
                        "{} replaces no variables: set {KEY_VARIABLE} to its key, in the \
                         environment or in secrets.env",
                        client.title
                    ))
                })?;
                key = EntryKey::Text(text);
                attempt(&InstallEntry {
                    key: key.clone(),
                    ..self.entry.clone()
                })?
            }
            preview => preview?,
        };
        let servers = self.duplicates_in(client, preview.old.as_deref().unwrap_or_default())?;
        let (mut replaced, mut kept) = (Vec::new(), Vec::new());
        if self.duplicates == Duplicates::Replace {
            for server in &servers {
                let name = server.name.clone();
                match self.probe.obstacle(server).await {
                    Some(reason) => kept.push(KeptServer { name, reason }),
                    None => replaced.push(name),
                }
            }
        }
        let preview = match self.duplicates {
            Duplicates::Replace => preview.replacing(client, replaced)?,
            Duplicates::Leave => preview,
        };
        Ok(PlannedInstall {
            client,
            preview,
            managed: Vec::new(),
            next_steps: client.steps_after(&key),
            duplicates: servers.into_iter().map(|server| server.name).collect(),
            kept,
        })
    }

    /// Returns the servers in the text of a file that riglm has, too.
    fn duplicates_in(
        &self,
        client: &'static Client,
        text: &str,
    ) -> anyhow::Result<Vec<ConfiguredServer>> {
        let home = self.users.home();
        let context = ReadContext {
            home: &home,
            riglm: &self.users.riglm,
        };
        let servers = read_servers(text, client, context)?.servers.into_iter();
        let is_duplicate = |server: &ConfiguredServer| {
            let is_plain = server.project.is_none() && !server.is_disabled;
            is_plain && server.nature == ServerNature::Server && self.known.has(server)
        };
        Ok(servers.filter(is_duplicate).collect())
    }
}

impl InstallPlan {
    /// Returns the number of files that would change.
    pub(super) fn n_changes(&self) -> usize {
        let changes = self.installs.iter();
        changes
            .filter(|install| !install.preview.is_empty())
            .count()
    }

    /// Returns sentences about the servers that are not taken out.
    pub(super) fn kept_texts(&self) -> Vec<String> {
        let texts = self.installs.iter().flat_map(|install| {
            let kept = install.kept.iter();
            kept.map(|server| server.text(install.client.title))
        });
        texts.collect()
    }

    /// Returns the plan as JSON, without contents of files.
    pub(super) fn as_json(&self) -> Value {
        let installs = self.installs.iter().map(|install| {
            let change = match &install.preview.change {
                EntryChange::Inserted => "inserted",
                EntryChange::Replaced => "replaced",
                EntryChange::Removed => "removed",
                EntryChange::Unchanged { .. } | EntryChange::Absent => "unchanged",
            };
            let next_steps: Vec<&str> = install.next_steps.iter().map(|step| step.text()).collect();
            json!({
                "client": install.client.id,
                "file": install.preview.path.display().to_string(),
                "change": change,
                "written": self.is_applied && !install.preview.is_empty(),
                "next_steps": next_steps,
                "duplicates": install.duplicates,
                "replaced": install.preview.replaced_servers,
                "kept": install.kept.iter()
                    .map(|server| json!({"name": server.name, "reason": server.reason}))
                    .collect::<Vec<_>>(),
                "managed": install.managed.iter().map(|it| it.display().to_string()).collect::<Vec<_>>(),
            })
        });
        let failures = self
            .failures
            .iter()
            .map(|failure| json!({"client": failure.client.id, "reason": failure.reason}));
        json!({
            "clients": installs.collect::<Vec<_>>(),
            "failed": failures.collect::<Vec<_>>(),
        })
    }
}

impl PlannedInstall {
    /// Makes the change, and records it for `riglm uninstall`. The caller holds the
    /// [`InstallationLock`].
    ///
    /// # Errors
    ///
    /// Returns the error of writing. The file then has its old contents.
    pub(super) fn apply(&self, target: ImportTarget<'_>) -> anyhow::Result<()> {
        if self.preview.is_empty() {
            return Ok(());
        }
        if let Some(installation) = apply(&self.preview, SystemClock.now())? {
            Ledger::update(&target.config.data_dir, |ledger| ledger.add(installation))?;
        }
        Ok(())
    }

    /// Tells the result, and what the client needs.
    pub(super) fn tell(&self) {
        let title = self.client.title;
        let file = self.preview.path.display();
        if let (EntryChange::Unchanged { name }, true) =
            (&self.preview.change, self.preview.is_empty())
        {
            note(&format!(
                "{title}: {} is there already, in {file}",
                printable(name)
            ));
        } else {
            note(&format!("{title}: riglm was added to {file}"));
        }
        for managed in &self.managed {
            note(&format!(
                "{title}: an administrator manages its servers in {}, so it will not use riglm",
                managed.display()
            ));
        }
        let replaced = &self.preview.replaced_servers;
        let is_told = |name: &&String| self.kept.iter().any(|server| server.name == **name);
        let doubled: Vec<&str> = (self.duplicates.iter())
            .filter(|name| !is_told(name))
            .map(String::as_str)
            .collect();
        if !replaced.is_empty() {
            let names = printable(&replaced.join(", "));
            note(&format!(
                "{title}: {names} were taken out, because riglm has them"
            ));
        } else if !doubled.is_empty() {
            let names = printable(&doubled.join(", "));
            note(&format!(
                "{title}: {names} are in riglm, too, so their tools are listed twice: remove them \
                 there, or use --replace"
            ));
        }
        for step in &self.next_steps {
            note(&format!("{title}: {}", step.text()));
        }
    }
}

impl FailedInstall {
    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.client.title, self.reason)
    }
}
