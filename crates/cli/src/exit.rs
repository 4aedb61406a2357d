//! Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use riglm_adapters_clients::configuration::client;
use riglm_adapters_mcp::upstream::{LoginError, UpstreamConfigError};
use riglm_adapters_prediction::encoder::EncoderConfigError;

use crate::config::{self, ConfigError, LogFormat};
use crate::output::{failure, note, printable, write_json_remarks};

/// Wrong usage or configuration; the same code as in clap.
const WRONG_USAGE: u8 = 2;

/// The error for a command line that cannot be executed as given.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);

/// Prints the error of parsing the command line, or the requested help, and returns the exit code.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A failure to print help is ignored: the reader is gone.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_serve = (arguments.first()).is_some_and(|command| command == "serve");
    if is_serve && config::log_format(named_file(&arguments)) == LogFormat::Json {
        write_json_remarks();
        failure(error.to_string().trim_end());
    } else {
        let _ = error.print();
        if let Some(tip) = tip(error, &arguments) {
            note(&format!("tip: {tip}"));
        }
    }
    ExitCode::from(WRONG_USAGE)
}

/// Returns the next step for a command line in the manner of other programs.
fn tip(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let command = arguments.first()?.to_str()?;
    match error.kind() {
        ErrorKind::InvalidSubcommand
            if wrong_word(error, ContextKind::InvalidSubcommand)? == command =>
        {
            let text = match command {
                "run" | "up" => {
                    "riglm serve runs it in this terminal, and riglm service install as a service"
                }
                "stop" | "down" | "restart" => {
                    "Ctrl-C ends riglm serve; riglm service uninstall ends the service, and riglm \
                     service install starts it again"
                }
                "log" | "logs" => {
                    "riglm calls --follow shows calls; riglm serve writes its log to standard \
                     error, and the service to that of its manager (journalctl --user -u riglm)"
                }
                _ => return None,
            };
            Some(text.to_owned())
        }
        ErrorKind::UnknownArgument if matches!(command, "install" | "uninstall" | "setup") => {
            let client = client(wrong_word(error, ContextKind::InvalidArg)?)?;
            Some(format!("riglm {command} --client {}", client.id))
        }
        _ => None,
    }
}

/// Returns the word that an error of the command line is about.
fn wrong_word(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(word) => Some(word),
        _ => None,
    }
}

/// Returns the configuration file in a command line that cannot be parsed as a whole.
fn named_file(arguments: &[OsString]) -> Option<PathBuf> {
    // Arguments after -- belong to the command of the upstream.
    let own = arguments.split(|argument| argument == "--").next()?;
    let separate = own.iter().position(|argument| argument == "--config");
    if let Some(position) = separate {
        return own.get(position + 1).map(PathBuf::from);
    }
    let joined = own
        .iter()
        .filter_map(|argument| argument.to_str()?.strip_prefix("--config="));
    joined.map(PathBuf::from).next()
}

/// Prints an error with its causes to standard error, and returns its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    for line in format!("{error:#}").lines() {
        failure(&printable(line));
    }
    code_of(error)
}

fn code_of(error: &anyhow::Error) -> ExitCode {
    let is_usage = |cause: &(dyn Error + 'static)| {
        let of_login = matches!(
            cause.downcast_ref(),
            Some(LoginError::Config(_) | LoginError::NotNeeded { .. })
        );
        of_login
            || cause.is::<WrongUsage>()
            || cause.is::<ConfigError>()
            || cause.is::<UpstreamConfigError>()
            || cause.is::<EncoderConfigError>()
    };
    if error.chain().any(is_usage) {
        ExitCode::from(WRONG_USAGE)
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn configuration_files_are_found_on_invalid_command_lines() {
        let named = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            named_file(&arguments)
        };
        let file = Some(PathBuf::from("a.toml"));
        assert_eq!(named(&["serve", "--odd", "--config", "a.toml"]), file);
        assert_eq!(named(&["serve", "--config=a.toml", "--odd"]), file);
        assert_eq!(named(&["serve", "--", "--config", "a.toml"]), None);
        assert_eq!(named(&["serve", "--config"]), None);
    }

    #[test]
    fn command_lines_of_other_programs_have_a_tip() {
        let tip_for = |arguments: &[&str]| {
            let all = ["riglm"].iter().chain(arguments);
            let error = Cli::try_parse_from(all).unwrap_err();
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            tip(&error, &arguments)
        };
        let contains = |arguments: &[&str], text: &str| {
            let tip = tip_for(arguments);
            assert!(
                tip.as_ref().is_some_and(|tip| tip.contains(text)),
                "{tip:?}"
            );
        };
        contains(&["up"], "riglm serve");
        contains(&["stop"], "riglm service uninstall");
        contains(&["logs", "--json"], "riglm calls --follow");
        contains(
            &["install", "claude-code"],
            "riglm install --client claude-code",
        );
        for without in [
            &["service", "stop"][..],
            &["recomend"],
            &["install", "--odd"],
        ] {
            assert_eq!(tip_for(without), None, "{without:?}");
        }
        for known in ["start", "status", "version"] {
            assert!(Cli::try_parse_from(["riglm", known]).is_ok(), "{known}");
        }
    }

    #[test]
    fn configuration_errors_have_their_own_exit_code() {
        let wrong = Err::<(), _>(ConfigError::NoUpstream).context("failed to start");
        assert_eq!(code_of(&wrong.unwrap_err()), ExitCode::from(2));
        assert_eq!(code_of(&WrongUsage("x".into()).into()), ExitCode::from(2));
        assert_eq!(code_of(&anyhow::anyhow!("broken")), ExitCode::from(1));
    }
}
