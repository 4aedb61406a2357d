//! Logging to standard error, one line for each event.
//!
//! Values in events may come from clients and servers. Control characters in them are escaped, so
//! that no client or server can forge a line or control a terminal. Lines have no colours, so every
//! control character is foreign and can be escaped.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::OnceLock;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

use crate::config::{Level, LogFormat, LoggingConfig};

/// A handle to change the log level.
type LevelHandle = reload::Handle<LevelFilter, Registry>;

/// The handle of the process, once it logs.
static LEVEL: OnceLock<LevelHandle> = OnceLock::new();

/// Starts logging with the options of section `logging`. Only the first call in a process has an
/// effect.
pub fn start(config: &LoggingConfig) {
    let (subscriber, level) = subscriber(config, io::stderr);
    // It fails if logging has already started.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = LEVEL.set(level);
    }
}

/// Sets the log level.
pub fn set_level(level: Level) {
    let changed = LEVEL.get().map(|handle| handle.reload(level_of(level)));
    if let Some(Err(error)) = changed {
        tracing::warn!("failed to change logging.level: {error}");
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

/// A factory of writers that escape control characters.
struct Escaping<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Escaping<W> {
    type Writer = EscapingWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EscapingWriter(self.0.make_writer())
    }
}

/// A writer of lines; the formatter passes each line as a whole, with its line feed.
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
                // This form is also valid in a JSON string. Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(character));
            } else {
                escaped.push(character);
            }
        }
        escaped.push_str(end);
        self.0.write_all(escaped.as_bytes())?;
        // The length of the input: the escaped line may be longer.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log_output(config: &LoggingConfig, log: impl FnOnce()) -> String {
        let captured = LogBuffer::default();
        let writer = captured.clone();
        let (subscriber, _) = subscriber(config, move || writer.clone());
        tracing::subscriber::with_default(subscriber, log);
        let bytes = captured.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn hostile() {
        let name = "a\n2026-01-01 ERROR forged\x1b[31m\u{9b}é";
        tracing::info!(tool = %name, "called {name}");
    }

    #[test]
    fn hostile_values_do_not_break_log_lines() {
        let line = log_output(&LoggingConfig::default(), hostile);
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
        let line = log_output(&config, hostile);
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
        let captured = LogBuffer::default();
        let writer = captured.clone();
        let (subscriber, level) = subscriber(&LoggingConfig::default(), move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("before");
            level.reload(level_of(Level::Debug)).unwrap();
            tracing::debug!("between");
            level.reload(level_of(Level::Off)).unwrap();
            tracing::error!("after");
        });
        let bytes = captured.0.lock().clone();
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
            log_output(&config, || {
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
