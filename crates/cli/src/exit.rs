//! Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use riglm_adapters_mcp::upstream::{LoginError, UpstreamConfigError};
use riglm_adapters_prediction::encoder::EncoderConfigError;

use crate::config::{self, ConfigError, LogFormat};
use crate::output::{failure, printable, write_json_remarks};

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
    }
    ExitCode::from(WRONG_USAGE)
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

    use super::*;

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
    fn configuration_errors_have_their_own_exit_code() {
        let wrong = Err::<(), _>(ConfigError::NoUpstream).context("failed to start");
        assert_eq!(code_of(&wrong.unwrap_err()), ExitCode::from(2));
        assert_eq!(code_of(&WrongUsage("x".into()).into()), ExitCode::from(2));
        assert_eq!(code_of(&anyhow::anyhow!("broken")), ExitCode::from(1));
    }
}
