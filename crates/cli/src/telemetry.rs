//! Logging: what happens goes to standard error, one line an event.
//!
//! Values in events may come from clients and servers. Control characters in them are escaped, so
//! that nobody outside can forge a line or act on a terminal. Lines carry no colours for the same
//! reason: what is left of control characters is none of ours.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::OnceLock;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

use crate::config::{Level, LogFormat, LoggingConfig};

/// Changes the level of the lines that are written.
type LevelHandle = reload::Handle<LevelFilter, Registry>;

/// That of the process, once it logs.
static LEVEL: OnceLock<LevelHandle> = OnceLock::new();

/// Starts logging as section `logging` has it. Only the first call in a process has an effect.
pub fn start(config: &LoggingConfig) {
    let (subscriber, level) = subscriber(config, io::stderr);
    // The error says that logging runs already.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = LEVEL.set(level);
    }
}

/// Has lines of this level and above written from now on.
pub fn set_level(level: Level) {
    let changed = LEVEL.get().map(|handle| handle.reload(level_of(level)));
    if let Some(Err(error)) = changed {
        tracing::warn!("logging.level cannot be changed: {error}");
    }
}

fn subscriber<W>(
    config: &LoggingConfig,
    output: W,
) -> (Box<dyn tracing::Subscriber + Send + Sync>, LevelHandle)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (level, handle) = reload::Layer::new(level_of(config.level));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(Escaping(output));
    let lines = match config.format {
        LogFormat::Pretty => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(level).with(lines);
    (Box::new(subscriber), handle)
}

fn level_of(level: Level) -> LevelFilter {
    match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

/// Makes writers that escape control characters.
struct Escaping<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Escaping<W> {
    type Writer = EscapingWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EscapingWriter(self.0.make_writer())
    }
}

/// Writes lines; the formatter hands over each one whole, with its line feed.
struct EscapingWriter<W>(W);

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (body, end) = match text.strip_suffix('\n') {
            Some(body) => (body, "\n"),
            None => (text.as_ref(), ""),
        };
        let mut escaped = String::with_capacity(text.len());
        for character in body.chars() {
            if character.is_control() {
                // This form is valid inside of a JSON string too.
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(character));
            } else {
                escaped.push(character);
            }
        }
        escaped.push_str(end);
        self.0.write_all(escaped.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(config: &LoggingConfig, log: impl FnOnce()) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        let (subscriber, _) = subscriber(config, move || writer.clone());
        tracing::subscriber::with_default(subscriber, log);
        let bytes = captured.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn hostile() {
        let name = "a\n2026-01-01 ERROR forged\x1b[31m\u{9b}é";
        tracing::info!(tool = %name, "called {name}");
    }

    #[test]
    fn an_event_is_one_line_whatever_its_values() {
        let line = logged(&LoggingConfig::default(), hostile);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.trim_end().contains(char::is_control), "{line}");
        assert!(line.contains("\\u000a2026-01-01 ERROR forged"), "{line}");
        assert!(line.contains('é'));
    }

    #[test]
    fn json_lines_stay_json() {
        let config = LoggingConfig {
            format: LogFormat::Json,
            ..LoggingConfig::default()
        };
        let line = logged(&config, hostile);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.trim_end().contains(char::is_control), "{line}");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            event["fields"]["tool"],
            "a\n2026-01-01 ERROR forged\x1b[31m\u{9b}é"
        );
    }

    #[test]
    fn the_level_can_be_changed() {
        let captured = Captured::default();
        let writer = captured.clone();
        let (subscriber, level) = subscriber(&LoggingConfig::default(), move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("before");
            level.reload(level_of(Level::Debug)).unwrap();
            tracing::debug!("between");
            level.reload(level_of(Level::Off)).unwrap();
            tracing::error!("after");
        });
        let bytes = captured.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("between"), "{text}");
    }

    #[test]
    fn lines_below_the_level_are_left_out() {
        let at = |level| {
            let config = LoggingConfig {
                level,
                ..LoggingConfig::default()
            };
            logged(&config, || {
                tracing::warn!("w");
                tracing::debug!("d");
            })
            .lines()
            .count()
        };
        assert_eq!(
            (at(Level::Error), at(Level::Info), at(Level::Debug)),
            (0, 1, 2)
        );
        assert_eq!(at(Level::Off), 0);
    }
}
