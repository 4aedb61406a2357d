//! What kind of server the unusual server is in this run.

use std::path::PathBuf;
use std::time::Duration;

use super::outlet::Framing;

/// Which revisions are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Era {
    /// Those with a handshake, up to 2025-11-25.
    #[default]
    Legacy,
    /// 2026-07-28 alone.
    Modern,
    /// Both, as the client opens.
    Dual,
}

/// The arguments of the program.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `--era legacy|modern|dual`.
    pub era: Era,
    /// `--tools N`: lists so many plain tools in the place of the unusual ones.
    pub n_tools: Option<usize>,
    /// `--delay MS`: how long the answer to every list and call is held back.
    pub delay: Duration,
    /// `--name NAME`: what results, resources and prompts of a plain server are called by.
    pub name: String,
    /// `--listing FILE`: a plain server lists the definitions of that file, a JSON array.
    pub listing: Option<String>,
    /// `--framing events|lines|nothing`: what separates the messages that answer a POST of
    /// revision 2026-07-28; all but events are a body of `application/json`.
    pub framing: Framing,
    /// `--changes FILE`: where that file is, the plain tools are other ones.
    pub changes: Option<PathBuf>,
    /// `--gate FILE`: the server starts to serve once that file exists.
    pub gate: Option<PathBuf>,
}

impl Settings {
    /// Reads the arguments behind the transport.
    ///
    /// # Errors
    ///
    /// Returns the argument that is not understood.
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

    /// Waits until the server may start to serve.
    pub async fn pass_gate(&self) {
        while let Some(gate) = &self.gate
            && !gate.exists()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Holds an answer back for as long as this server takes.
    pub(super) async fn pause(&self) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }
}
