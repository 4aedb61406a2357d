//! `riglm service`: riglm serve as a service of the user, under systemd or launchd.

mod definition;
mod listener;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;

use self::definition::{Definition, MARK, Manager, ServePaths};
pub(super) use self::listener::{Listener, is_taken, taken_text};
use super::init::default_path;
use crate::args::{LocationArgs, ServiceArgs, ServiceCommand};
use crate::config::{Config, ConfigSource, Environment, Overrides, ProcessEnv};
use crate::exit::WrongUsage;
use crate::output::{note, print, printable};

/// The time limit of a question to the service manager.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time limit of the end of a service: requests in flight may take 40 seconds.
const PATIENCE_FOR_END: Duration = Duration::from_secs(45);
/// The beginning of the names of variables with keys of the configuration.
const KEY_PREFIX: &str = "RIGLM__";
/// The pause between two looks at a process.
const POLL: Duration = Duration::from_millis(10);

/// Runs the command. `config` is the configuration that the service would load.
///
/// # Errors
///
/// Returns [`WrongUsage`] where there is no service manager, and the error of the service manager.
pub(super) fn run(
    config: Option<&Config>,
    process: &ProcessEnv,
    command: &ServiceCommand,
) -> anyhow::Result<()> {
    let definition = match command {
        ServiceCommand::Install(arguments) => planned_definition(process, &arguments.places)?,
        ServiceCommand::Uninstall(_) | ServiceCommand::Status(_) => {
            Manager::of_system()?.definition(process, &ServePaths::default())?
        }
    };
    match command {
        ServiceCommand::Install(arguments) => {
            if let Some(config) = config {
                config.upstreams()?;
            }
            let places = &arguments.places;
            let texts = missing_variables(process, places).into_iter();
            for text in texts.chain(kept_data_dir_text(process, places)) {
                note(&printable(&text));
            }
            install(&definition, &arguments.service)
        }
        ServiceCommand::Uninstall(arguments) => uninstall(&definition, arguments),
        ServiceCommand::Status(arguments) => status(&definition, arguments),
    }
}

/// Installs the service for a configuration, and starts it.
///
/// # Errors
///
/// As [`run`] does.
pub(super) fn install_for(
    config: &Config,
    process: &ProcessEnv,
    places: &LocationArgs,
) -> anyhow::Result<()> {
    config.upstreams()?;
    let definition = planned_definition(process, places)?;
    check_own(&definition.file)?;
    start(&definition)
}

/// Prints the file of the service, and the commands that start it.
///
/// # Errors
///
/// As [`run`] does.
pub(super) fn show_installation(process: &ProcessEnv, places: &LocationArgs) -> anyhow::Result<()> {
    let definition = planned_definition(process, places)?;
    check_own(&definition.file)?;
    show_plan(&definition, &definition.all_start(), Some(&definition.text))
}

#[derive(Debug)]
pub(super) struct InstalledService {
    pub(super) file: PathBuf,
    pub(super) program: PathBuf,
    /// Whether an installation now would write the same file.
    pub(super) is_current: bool,
    /// Its data directory, if an installation now keeps it in place of one that depends on the
    /// working directory.
    pub(super) kept_data_dir: Option<PathBuf>,
    pub(super) state: ServiceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceState {
    /// It runs.
    Running,
    /// It does not run.
    Stopped,
    /// The manager does not answer.
    Unknown,
}

/// Returns the file that an installation would write; `None` where there is no service manager.
pub(super) fn planned_file(process: &ProcessEnv, places: &LocationArgs) -> Option<PathBuf> {
    let definition = planned_definition(process, places).ok()?;
    Some(definition.file)
}

/// Returns the installed service; `None` if there is none of riglm.
pub(super) fn installed_service(
    process: &ProcessEnv,
    places: &LocationArgs,
) -> Option<InstalledService> {
    let PlannedService {
        definition,
        kept_data_dir,
    } = planned_service(process, places).ok()?;
    let text = std::fs::read_to_string(&definition.file).ok()?;
    let program = definition.manager.program_in(&text)?;
    Some(InstalledService {
        program,
        is_current: text == definition.text,
        kept_data_dir,
        state: state_of(&definition),
        file: definition.file,
    })
}

/// Returns a sentence about the variables with keys of the configuration, which a service does not
/// have; `None` if there are none.
pub(super) fn missing_variables(process: &ProcessEnv, places: &LocationArgs) -> Option<String> {
    let variables = process.environment.all().keys();
    let names: Vec<&str> = variables
        .map(String::as_str)
        .filter(|name| name.starts_with(KEY_PREFIX))
        .collect();
    let object = match names.len() {
        0 => return None,
        1 => "it",
        _ => "them",
    };
    let place = config_place(process, places);
    Some(format!(
        "the service does not have {}: write {object} to {place}",
        names.join(", ")
    ))
}

/// Returns a sentence about the data directory of the installed service that an installation keeps;
/// `None` if that of the configuration does not depend on the working directory, or is the same.
pub(super) fn kept_data_dir_text(process: &ProcessEnv, places: &LocationArgs) -> Option<String> {
    let kept = planned_service(process, places).ok()?.kept_data_dir?;
    let kept = kept.display();
    Some(format!(
        "the service keeps its data directory {kept}, because data_dir is relative in the \
         configuration: --data-dir gives it another one"
    ))
}

/// Returns the path of the configuration file that is read, or that would be made.
pub(super) fn config_place(process: &ProcessEnv, places: &LocationArgs) -> String {
    let source = ConfigSource::new(places.overrides(), process.clone());
    let file = source.file().or_else(|| default_path(process).ok());
    file.map_or_else(
        || "the configuration file".to_owned(),
        |file| {
            let path = std::path::absolute(&file).unwrap_or(file);
            path.display().to_string()
        },
    )
}

/// Returns the absolute path of the configuration file for the command line of a process that runs
/// elsewhere; `None` if there is no file, and for the default file of the user, which such a process
/// finds by itself.
///
/// # Errors
///
/// Returns an error for an invalid path.
pub(super) fn config_option(
    process: &ProcessEnv,
    places: &LocationArgs,
) -> anyhow::Result<Option<PathBuf>> {
    let source = ConfigSource::new(places.overrides(), process.clone());
    let file = source.file();
    let file = file.filter(|file| places.config.is_some() || !is_found_elsewhere(process, file));
    file.as_deref().map(absolute).transpose()
}

/// Returns the absolute path of the data directory for the command line of a process that runs
/// elsewhere; `None` if such a process finds it by itself. A relative path depends on the working
/// directory, also one in the configuration file.
///
/// # Errors
///
/// Returns an error for an invalid path.
pub(super) fn data_dir_option(
    process: &ProcessEnv,
    places: &LocationArgs,
) -> anyhow::Result<Option<PathBuf>> {
    let source = ConfigSource::new(places.overrides(), process.clone());
    let folder = source.configured_data_dir();
    let folder = folder.filter(|folder| places.data_dir.is_some() || folder.is_relative());
    let folder = folder.map(|folder| absolute(&process.working_directory.join(folder)));
    folder.transpose()
}

/// Returns whether a process without options, in another working directory and without
/// `RIGLM_CONFIG`, reads this file.
fn is_found_elsewhere(process: &ProcessEnv, file: &Path) -> bool {
    let elsewhere = ProcessEnv {
        environment: Environment::default(),
        // That of services of systemd. A file there comes before the default one.
        working_directory: process.home_directory.clone().unwrap_or_default(),
        ..process.clone()
    };
    let found = ConfigSource::new(Overrides::default(), elsewhere).file();
    let folder = process.config_directory.as_ref();
    let is_default = folder.is_some_and(|folder| file.starts_with(folder.join("riglm")));
    is_default && found.as_deref() == Some(file)
}

/// The service that an installation would make.
#[derive(Debug)]
struct PlannedService {
    definition: Definition,
    /// As [`InstalledService`] has it.
    kept_data_dir: Option<PathBuf>,
}

/// Returns the service that an installation would make. An installed service keeps its data directory
/// if the configured one is relative: the records would otherwise lie in another place after a command
/// in another working directory.
fn planned_service(process: &ProcessEnv, places: &LocationArgs) -> anyhow::Result<PlannedService> {
    let manager = Manager::of_system()?;
    let mut paths = serve_paths(process, places)?;
    let definition = manager.definition(process, &paths)?;
    let kept = if has_relative_data_dir(process, places) {
        let installed = std::fs::read_to_string(&definition.file).unwrap_or_default();
        kept_data_dir(manager, &installed, &paths)
    } else {
        None
    };
    if kept.is_none() {
        return Ok(PlannedService {
            definition,
            kept_data_dir: None,
        });
    }
    paths.data_dir.clone_from(&kept);
    Ok(PlannedService {
        definition: manager.definition(process, &paths)?,
        kept_data_dir: kept,
    })
}

fn planned_definition(process: &ProcessEnv, places: &LocationArgs) -> anyhow::Result<Definition> {
    Ok(planned_service(process, places)?.definition)
}

/// Returns whether the data directory depends on the working directory, and no option names one.
fn has_relative_data_dir(process: &ProcessEnv, places: &LocationArgs) -> bool {
    let source = ConfigSource::new(places.overrides(), process.clone());
    let configured = source.configured_data_dir();
    places.data_dir.is_none() && configured.is_some_and(|folder| folder.is_relative())
}

/// Returns the data directory in the text of an installed service with the same configuration file;
/// `None` if it is the planned one.
fn kept_data_dir(manager: Manager, installed: &str, planned: &ServePaths) -> Option<PathBuf> {
    let is_same =
        installed.contains(MARK) && manager.path_after("--config", installed) == planned.config;
    let kept = manager.path_after("--data-dir", installed);
    kept.filter(|kept| is_same && planned.data_dir.as_ref() != Some(kept))
}

fn serve_paths(process: &ProcessEnv, places: &LocationArgs) -> anyhow::Result<ServePaths> {
    Ok(ServePaths {
        program: std::env::current_exe().context("failed to find the path of this program")?,
        config: config_option(process, places)?,
        data_dir: data_dir_option(process, places)?,
        search_path: process.environment.value("PATH").map(str::to_owned),
    })
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("invalid path {}", path.display()))
}

fn install(definition: &Definition, arguments: &ServiceArgs) -> anyhow::Result<()> {
    check_own(&definition.file)?;
    if arguments.dry_run {
        return show_plan(definition, &definition.all_start(), Some(&definition.text));
    }
    start(definition)?;
    report(definition, arguments, "installed")
}

/// Writes the file, and starts the service.
fn start(definition: &Definition) -> anyhow::Result<()> {
    let was_there = definition.file.exists();
    write(&definition.file, &definition.text)?;
    prepare(definition);
    let started = run_all(&definition.start);
    if started.is_err() && !was_there {
        // Nothing must be left that a later login would start.
        let _ = std::fs::remove_file(&definition.file);
    }
    started
}

/// Ends what the manager has loaded, where it does not replace that. It may answer before the end, and
/// refuses to load the service until then.
fn prepare(definition: &Definition) {
    if definition.prepare.is_empty() {
        return;
    }
    // It fails if nothing is loaded. Other errors come back at the start.
    let _ = run_all(&definition.prepare);
    let deadline = Instant::now() + PATIENCE_FOR_END;
    while is_loaded(definition) && Instant::now() < deadline {
        std::thread::sleep(POLL);
    }
}

/// Returns whether the manager knows the service.
fn is_loaded(definition: &Definition) -> bool {
    let Some((program, arguments)) = definition.state.split_first() else {
        return false;
    };
    let output = output_within(PATIENCE, Command::new(program).args(arguments));
    output.is_some_and(|output| output.status.success())
}

fn uninstall(definition: &Definition, arguments: &ServiceArgs) -> anyhow::Result<()> {
    check_own(&definition.file)?;
    if arguments.dry_run {
        return show_plan(definition, &definition.stop, None);
    }
    if !definition.file.exists() {
        note("the service is not installed");
        return report(definition, arguments, "absent");
    }
    if let Err(error) = run_all(&definition.stop) {
        // It may have been stopped by hand. The file must go all the same.
        note(&printable(&format!("{error:#}")));
    }
    std::fs::remove_file(&definition.file)
        .with_context(|| format!("failed to remove {}", definition.file.display()))?;
    if let Err(error) = run_all(&definition.forget) {
        note(&printable(&format!("{error:#}")));
    }
    report(definition, arguments, "removed")
}

fn status(definition: &Definition, arguments: &ServiceArgs) -> anyhow::Result<()> {
    let state = if definition.file.exists() {
        "installed"
    } else {
        "absent"
    };
    report(definition, arguments, state)
}

/// Prints the state of the service.
fn report(definition: &Definition, arguments: &ServiceArgs, state: &str) -> anyhow::Result<()> {
    let is_there = state != "absent" && state != "removed";
    let is_running = is_there && state_of(definition) == ServiceState::Running;
    let file = definition.file.display().to_string();
    if arguments.format.is_json() {
        let json = json!({"manager": definition.manager.name(), "file": file, "state": state,
                          "running": is_running});
        print(&json.to_string())?;
        return Ok(());
    }
    let running = if is_running { "running" } else { "not running" };
    print(&format!("{state}, {running}: {file}"))?;
    Ok(())
}

fn show_plan(
    definition: &Definition,
    commands: &[Vec<String>],
    text: Option<&str>,
) -> anyhow::Result<()> {
    let file = definition.file.display();
    let mut lines = match text {
        Some(text) => vec![format!("# {file}"), text.to_owned()],
        None => vec![format!("# remove {file}")],
    };
    lines.extend(commands.iter().map(|command| command.join(" ")));
    print(&lines.join("\n"))?;
    Ok(())
}

/// Refuses a file that this command did not write.
fn check_own(file: &Path) -> anyhow::Result<()> {
    match std::fs::read_to_string(file) {
        Ok(text) if text.contains(MARK) => Ok(()),
        Ok(_) => {
            let text = format!(
                "{} was not written by riglm service install: remove or rename it first",
                file.display()
            );
            Err(WrongUsage(text).into())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("failed to read {}", file.display())),
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", file.display());
    let directory = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).with_context(failed)?;
    let mut new = tempfile::NamedTempFile::new_in(directory).with_context(failed)?;
    new.write_all(text.as_bytes()).with_context(failed)?;
    new.persist(file).with_context(failed)?;
    Ok(())
}

/// Runs commands of the service manager, until one fails.
fn run_all(commands: &[Vec<String>]) -> anyhow::Result<()> {
    for words in commands {
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        let shown = words.join(" ");
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("failed to run {shown}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            anyhow::bail!("{shown} ended with {}: {}", output.status, printable(&said));
        }
    }
    Ok(())
}

/// Returns the state of the service, as its manager says.
fn state_of(definition: &Definition) -> ServiceState {
    let Some((program, arguments)) = definition.state.split_first() else {
        return ServiceState::Unknown;
    };
    let Some(output) = output_within(PATIENCE, Command::new(program).args(arguments)) else {
        return ServiceState::Unknown;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && definition.manager.says_running(&text) {
        ServiceState::Running
    } else {
        ServiceState::Stopped
    }
}

/// Returns the output of a command, which must fit into a pipe. Returns `None` if the command cannot
/// be started. It is killed at the time limit, and the result is `None`, too.
fn output_within(limit: Duration, command: &mut Command) -> Option<Output> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().ok()?;
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return child.wait_with_output().ok(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
            Ok(None) | Err(_) => {
                // It may have ended just now.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_told_each_file_but_the_default_one() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let process = |directory: &str| ProcessEnv {
            working_directory: home.join(directory),
            config_directory: Some(home.join(".config")),
            home_directory: Some(home.to_owned()),
            ..ProcessEnv::default()
        };
        let places = LocationArgs {
            config: None,
            data_dir: None,
        };
        let make = |path: &str| {
            let path = home.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        let option = |directory: &str| config_option(&process(directory), &places).unwrap();
        assert_eq!(option("project"), None);
        make(".config/riglm/riglm.toml");
        assert_eq!(option("project"), None);
        make("project/riglm.toml");
        assert_eq!(option("project"), Some(home.join("project/riglm.toml")));
        make("riglm.toml");
        // It would come before the default file.
        let default = home.join(".config/riglm/riglm.toml");
        assert_eq!(option("elsewhere"), Some(default));
    }

    #[test]
    fn a_relative_data_directory_is_told_by_its_absolute_path() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let process = ProcessEnv {
            working_directory: home.join("project"),
            config_directory: Some(home.join(".config")),
            home_directory: Some(home.to_owned()),
            ..ProcessEnv::default()
        };
        let file = home.join(".config/riglm/riglm.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let option = |text: &str, data_dir: Option<&str>| {
            std::fs::write(&file, text).unwrap();
            let places = LocationArgs {
                config: None,
                data_dir: data_dir.map(PathBuf::from),
            };
            serve_paths(&process, &places).unwrap().data_dir
        };
        let in_project = |name: &str| Some(home.join("project").join(name));
        assert_eq!(option("", None), None);
        assert_eq!(option("data_dir = \"data\"\n", None), in_project("data"));
        assert_eq!(option("data_dir = \"/srv/data\"\n", None), None);
        let of_option = option("data_dir = \"/srv/data\"\n", Some("other"));
        assert_eq!(of_option, in_project("other"));
    }

    #[test]
    fn an_installed_service_keeps_its_data_directory() {
        let process = ProcessEnv {
            home_directory: Some("/home/ann".into()),
            ..ProcessEnv::default()
        };
        let paths = |config: Option<&str>, data_dir: &str| ServePaths {
            program: "/opt/riglm".into(),
            config: config.map(PathBuf::from),
            data_dir: Some(data_dir.into()),
            search_path: None,
        };
        for manager in [Manager::Systemd, Manager::Launchd] {
            for config in [None, Some("/srv/riglm.toml")] {
                let installed = manager.definition(&process, &paths(config, "/srv/data"));
                let installed = installed.unwrap().text;
                let kept = |planned: &ServePaths| kept_data_dir(manager, &installed, planned);
                let elsewhere = kept(&paths(config, "/home/ann/data"));
                assert_eq!(elsewhere, Some("/srv/data".into()), "{installed}");
                assert_eq!(kept(&paths(config, "/srv/data")), None);
                // Its data directory is that of another configuration.
                assert_eq!(kept(&paths(Some("/etc/b.toml"), "/home/ann/data")), None);
            }
        }
        assert_eq!(
            kept_data_dir(Manager::Systemd, "", &paths(None, "/a")),
            None
        );
    }

    #[test]
    fn a_service_that_is_not_loaded_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let words = |program: &str| vec![program.to_owned()];
        let definition = Definition {
            manager: Manager::Launchd,
            file: folder.path().join("agents/riglm.plist"),
            text: "new".into(),
            prepare: vec![words("false")],
            start: vec![words("true")],
            stop: Vec::new(),
            forget: Vec::new(),
            state: words("false"),
        };
        start(&definition).unwrap();
        assert_eq!(std::fs::read_to_string(&definition.file).unwrap(), "new");
        let shown = definition.all_start();
        assert_eq!(shown, [words("false"), words("true")]);
    }

    #[test]
    fn a_command_without_an_answer_is_killed() {
        let begun = Instant::now();
        let mut sleep = Command::new("sleep");
        let output = output_within(Duration::from_millis(50), sleep.arg("60"));
        assert!(output.is_none() && begun.elapsed() < Duration::from_secs(30));
        let mut echo = Command::new("echo");
        let output = output_within(Duration::from_secs(20), echo.arg("active")).unwrap();
        assert!(output.status.success() && output.stdout == b"active\n");
        assert!(output_within(PATIENCE, &mut Command::new("no-such-program")).is_none());
    }
}
