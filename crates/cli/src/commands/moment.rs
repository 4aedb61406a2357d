//! Times in files and on the command line.

use anyhow::Context;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Parses a time of RFC 3339. Without an offset it is in UTC.
pub(crate) fn moment(text: &str) -> anyhow::Result<Timestamp> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let civil: Result<DateTime, jiff::Error> = text.parse();
    let zoned = civil.and_then(|civil| civil.to_zoned(TimeZone::UTC));
    Ok(zoned
        .with_context(|| format!("invalid time {text:?}"))?
        .timestamp())
}
