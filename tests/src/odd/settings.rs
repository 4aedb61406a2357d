//! The command-line options of the unusual server.

use std::path::PathBuf;
use std::time::Duration;

use super::outlet::Framing;

/// The supported revisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Era {
    /// Only the legacy revisions, up to 2025-11-25, with a handshake.
    #[default]
    Legacy,
    /// Only 2026-07-28.
    Modern,
    /// Both. The first message of the client decides.
    Dual,
}

/// The arguments of the program.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `--era legacy|modern|dual`.
    pub era: Era,
    /// `--tools N`: lists N plain tools instead of the unusual ones.
    pub n_tools: Option<usize>,
    /// `--delay MS`: the delay of the answer to every list request and call.
    pub delay: Duration,
    /// `--name NAME`: the name of a plain server in its results, resources and prompts.
    pub name: String,
    /// `--listing FILE`: a plain server lists the tool definitions in this file, a JSON array.
    pub listing: Option<String>,
    /// `--framing events|lines|nothing`: the separator of the messages in a response to a POST of
    /// revision 2026-07-28. Except for `events`, the body is `application/json`.
    pub framing: Framing,
    /// `--changes FILE`: the plain tools change as soon as this file exists.
    pub changes: Option<PathBuf>,
    /// `--gate FILE`: the server does not serve before this file exists.
    pub gate: Option<PathBuf>,
}

impl Settings {
    /// Parses the arguments after the transport.
    ///
    /// # Errors
    ///
    /// Returns a message with the argument that is not valid.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut settings = Self {
            name: "odd".into(),
            ..Self::default()
        };
        for pair in arguments.chunks(2) {
            let [key, value] = pair else {
                return Err(format!("{pair:?} lacks a value"));
            };
            let number = || {
                value
                    .parse()
                    .map_err(|error| format!("{key} {value}: {error}"))
            };
            match (key.as_str(), value.as_str()) {
                ("--era", "legacy") => settings.era = Era::Legacy,
                ("--era", "modern") => settings.era = Era::Modern,
                ("--era", "dual") => settings.era = Era::Dual,
                ("--framing", "events") => settings.framing = Framing::Events,
                ("--framing", "lines") => settings.framing = Framing::Lines,
                ("--framing", "nothing") => settings.framing = Framing::Nothing,
                ("--tools", _) => settings.n_tools = Some(number()?),
                ("--delay", _) => {
                    settings.delay = Duration::from_millis(u64::try_from(number()?).unwrap_or(0));
                }
                ("--name", _) => settings.name.clone_from(value),
                ("--listing", _) => {
                    let text = std::fs::read_to_string(value);
                    let text = text.map_err(|error| format!("{key} {value}: {error}"))?;
                    settings.listing = Some(text);
                    settings.n_tools = settings.n_tools.or(Some(0));
                }
                ("--changes", _) => settings.changes = Some(value.into()),
                ("--gate", _) => settings.gate = Some(value.into()),
                _ => return Err(format!("{key} {value} is not understood")),
            }
        }
        Ok(settings)
    }

    /// Waits until the file of `--gate` exists.
    pub async fn pass_gate(&self) {
        while let Some(gate) = &self.gate
            && !gate.exists()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for the time of `--delay`.
    pub(super) async fn pause(&self) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }
}
