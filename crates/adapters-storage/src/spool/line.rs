//! The lines of segments: one record each, as JSON.

use riglm_domain::usage::invocation::{CallTokens, Invocation, InvocationEnd};
use riglm_domain::usage::record::Record;
use serde::Deserialize;

/// The beginnings of the lines of calls.
const CALL_OPENED: &[u8] = br#"{"record":"call_opened","#;
const CALL_CLOSED: &[u8] = br#"{"record":"call_closed","#;
const CALL_MEASURED: &[u8] = br#"{"record":"call_measured","#;
/// The usual size of a line in bytes: that of the beginning of a call without its arguments.
const USUAL_BYTES: usize = 512;

/// Returns the lines of records, each with its line break.
pub(super) fn of_each(records: &[Record]) -> serde_json::Result<Vec<u8>> {
    let mut lines = Vec::with_capacity(USUAL_BYTES * records.len());
    for record in records {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Returns the record in a line.
///
/// The name of the kind of record is a field like the others, so a parser that does not know the
/// kind keeps all values until it has seen it. The records of calls are most of all records. Their
/// lines are recognized by their first bytes and parsed at once.
pub(super) fn parse(line: &[u8]) -> serde_json::Result<Record> {
    if line.starts_with(CALL_OPENED) {
        parse_as::<Invocation>(line).map(Record::CallOpened)
    } else if line.starts_with(CALL_CLOSED) {
        parse_as::<InvocationEnd>(line).map(Record::CallClosed)
    } else if line.starts_with(CALL_MEASURED) {
        parse_as::<CallTokens>(line).map(Record::CallMeasured)
    } else {
        parse_as(line)
    }
}

/// Parses a record whose name, if any, is ignored as an unknown field.
fn parse_as<'a, T: Deserialize<'a>>(line: &'a [u8]) -> serde_json::Result<T> {
    serde_json::from_slice(line)
}

#[cfg(test)]
mod tests {
    use riglm_domain::usage::invocation::Outcome;
    use riglm_ports::contract::scene::{call, end, run, session};

    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let session = session(run(1), 1);
        let call = call(session.id, 1);
        let end = end(&call, Outcome::Timeout);
        let tokens = CallTokens {
            id: call.id,
            request: Some(7),
            response: None,
        };
        for record in [
            Record::SessionOpened(session),
            Record::CallOpened(call),
            Record::CallClosed(end),
            Record::CallMeasured(tokens),
        ] {
            let line = of_each(std::slice::from_ref(&record)).unwrap();
            assert_eq!(parse(&line).unwrap(), record);
            // As a writer with another order of fields would write it.
            let text = String::from_utf8(line).unwrap();
            let (name, rest) = text.trim_end()[1..].split_once(',').unwrap();
            let rest = rest.strip_suffix('}').unwrap();
            let reordered = format!("{{{rest},{name}}}");
            assert_eq!(parse(reordered.as_bytes()).unwrap(), record);
        }
    }

    #[test]
    fn incomplete_lines_are_no_records() {
        for line in [
            r#"{"record":"call_closed","id":"019b7ca9-8f2e-7101-8101-010101010101"}"#,
            r#"{"record":"call_opened","#,
            r#"{"record":"call_measured""#,
            r#"{"record":"unknown"}"#,
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
