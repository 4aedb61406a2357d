//! `riglm open`: the page of a running proxy, in the browser.

use std::io::{self, IsTerminal as _};

use riglm_adapters_http::ControlAddress;
use serde_json::json;

use super::browser;
use super::control_port::{ControlAnswer, PageCode, page_code};
use super::db::show;
use crate::args::OpenArgs;
use crate::config::{Config, Environment};
use crate::output::note;

/// Prints the address of the page, with a one-time code, and opens it in the browser.
///
/// # Errors
///
/// Returns an error if no proxy runs, if its control port is off, or if it has no page.
pub(super) async fn run(
    config: &Config,
    environment: &Environment,
    arguments: &OpenArgs,
) -> anyhow::Result<()> {
    let page = match page_code(config, arguments.control).await {
        Ok(page) => page,
        Err(answer) => anyhow::bail!("{}", refusal(config, arguments, answer)),
    };
    let address = page_address(&page);
    let is_shown = !arguments.print && io::stdout().is_terminal() && has_display(environment);
    let failure = is_shown
        .then(|| browser::open_private(&address, &config.data_dir).err())
        .flatten();
    let is_opened = is_shown && failure.is_none();
    let others: Vec<String> = page.others.iter().map(ToString::to_string).collect();
    let json = json!({
        "address": address,
        "expires_at": page.expires_at,
        "opened": is_opened,
        "others": others,
    });
    show(arguments.store.format, &json, &address)?;
    if let Some(error) = failure {
        note(&format!("failed to open a browser: {error}"));
    }
    let end = page.expires_at;
    note(&if is_opened {
        format!("if the browser shows nothing, open this address: it works once, until {end}")
    } else {
        format!("open this address in a browser on this machine: it works once, until {end}")
    });
    if !others.is_empty() {
        let others = others.join(", ");
        note(&format!(
            "other proxies of this data directory: {others} (riglm open --control ADDRESS)"
        ));
    }
    Ok(())
}

/// Returns the address of the page. The code is in the fragment, which browsers do not send.
fn page_address(page: &PageCode) -> String {
    format!("http://{}/#code={}", page.address, page.code)
}

/// Returns the reason why there is no page, with the next step if there is one.
fn refusal(config: &Config, arguments: &OpenArgs, answer: ControlAnswer) -> String {
    let is_off = arguments.control.is_none() && config.control.address == ControlAddress::Off;
    match answer {
        ControlAnswer::NotRunning(_) if is_off => {
            "the control port, which has the page, is off (control.address)".to_owned()
        }
        ControlAnswer::NotRunning(why) => {
            format!("no proxy is running: {why}; start one with `riglm serve`")
        }
        answer => answer.reason(),
    }
}

/// Returns whether a browser that this process starts has a display that the user can see.
fn has_display(environment: &Environment) -> bool {
    if cfg!(target_os = "macos") {
        return environment.value("SSH_CONNECTION").is_none();
    }
    let mut displays = ["WAYLAND_DISPLAY", "DISPLAY"].iter();
    displays.any(|name| environment.value(name).is_some())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use jiff::Timestamp;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::config::{Overrides, ProcessEnv, load};

    #[test]
    fn the_code_is_in_the_fragment_of_the_address() {
        let address_at = |address: &str| {
            page_address(&PageCode {
                address: address.parse().unwrap(),
                code: "c0de".into(),
                expires_at: Timestamp::UNIX_EPOCH,
                others: Vec::new(),
            })
        };
        assert_eq!(
            address_at("127.0.0.1:8643"),
            "http://127.0.0.1:8643/#code=c0de"
        );
        assert_eq!(address_at("[::1]:1"), "http://[::1]:1/#code=c0de");
    }

    #[test]
    fn a_refusal_names_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let reason = |control: Option<ControlAddress>, words: &[&str], answer| {
            let overrides = Overrides {
                control,
                data_dir: Some(folder.path().to_owned()),
                reads_no_file: true,
                ..Overrides::default()
            };
            let config = load(&overrides, &ProcessEnv::default()).unwrap();
            let all = ["riglm", "open"].iter().chain(words);
            match Cli::try_parse_from(all).unwrap().command {
                Command::Open(arguments) => refusal(&config, &arguments, answer),
                other => panic!("not open: {other:?}"),
            }
        };
        let absent = || ControlAnswer::NotRunning("nothing listens".into());
        let unknown = || ControlAnswer::Unknown("it has no page".into());
        let off = Some(ControlAddress::Off);
        assert!(reason(None, &[], absent()).contains("riglm serve"));
        assert!(reason(off, &[], absent()).contains("control.address"));
        let named = ["--control", "127.0.0.1:1"];
        assert!(reason(off, &named, absent()).contains("nothing listens"));
        assert_eq!(reason(off, &[], unknown()), "it has no page");
    }

    #[test]
    #[cfg(not(target_os = "macos"))]
    fn a_display_is_one_that_the_environment_names() {
        let shows = |variables: &[(&str, &str)]| {
            has_display(&variables.iter().copied().collect::<Environment>())
        };
        assert!(shows(&[("DISPLAY", ":0")]));
        assert!(shows(&[("WAYLAND_DISPLAY", "wayland-0")]));
        assert!(!shows(&[("DISPLAY", ""), ("TERM", "xterm")]));
    }
}
