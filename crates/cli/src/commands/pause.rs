//! `riglm pause` and `riglm resume`: the key `paused` in the tuning of running proxies.

use anyhow::{Context as _, bail};
use riglm_app::clock::SystemClock;
use riglm_app::selection::Pause;
use riglm_ports::clock::Clock as _;
use serde_json::{Value, json};

use super::control_port::{ControlAnswer, retune};
use super::db::show;
use crate::args::{PauseArgs, ResumeArgs, RunningArgs};
use crate::config::Config;

/// The key in the tuning.
const KEY: &str = "paused";

pub(super) async fn pause(config: &Config, arguments: &PauseArgs) -> anyhow::Result<()> {
    let pause = match arguments.duration {
        None => Pause::On,
        Some(duration) => {
            let end = SystemClock.now().checked_add(duration);
            Pause::Until(end.context("--for is too long")?)
        }
    };
    let value = serde_json::to_value(pause).context("failed to write the pause")?;
    change_pause(config, &arguments.running, Some(value)).await
}

pub(super) async fn resume(config: &Config, arguments: &ResumeArgs) -> anyhow::Result<()> {
    change_pause(config, &arguments.running, None).await
}

/// Returns the end of a pause in words; `None` if there is no pause.
pub(super) fn end_in_words(pause: Pause) -> Option<String> {
    match pause {
        Pause::Off => None,
        Pause::On => Some("until `riglm resume`".into()),
        Pause::Until(end) => Some(format!("until {end}")),
    }
}

/// Sets or removes the key in the tuning, and prints the pause that is in effect then.
async fn change_pause(
    config: &Config,
    running: &RunningArgs,
    wanted: Option<Value>,
) -> anyhow::Result<()> {
    let answer = retune(config, running.control, |tuning| {
        match &wanted {
            Some(value) => tuning.insert(KEY.into(), value.clone()),
            None => tuning.remove(KEY),
        };
    });
    let configurations = match answer.await {
        ControlAnswer::Said(configurations) => configurations,
        ControlAnswer::NotRunning(why) => bail!(
            "no proxy is running: {why}; to start one paused, set `{KEY} = true` in the \
             configuration file"
        ),
        ControlAnswer::Unknown(why) => bail!("{why}"),
    };
    let pauses = configurations.iter().map(|one| {
        let pause = serde_json::from_value(one["effective"][KEY].clone());
        pause.context("the proxy does not know pauses: it is older than this program")
    });
    let pauses = pauses.collect::<anyhow::Result<Vec<Pause>>>()?;
    let now = SystemClock.now();
    let holding = pauses.iter().find(|pause| pause.holds_at(now));
    let json = json!({
        "paused": holding.is_some(),
        "until": holding.and_then(|pause| pause.end()).map(|end| end.to_string()),
        "processes": pauses.len(),
    });
    let end = holding.and_then(|pause| end_in_words(*pause));
    let text = end.map_or_else(|| "resumed".into(), |end| format!("paused {end}"));
    if wanted.is_none() && holding.is_some() {
        bail!(
            "still paused: the configuration file or the environment sets `{KEY}`; change it there"
        );
    }
    show(running.store.format, &json, &text)
}
