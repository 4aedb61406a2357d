//! A decoder of server-sent events, as the HTML standard defines them.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event` field; empty when absent.
    pub name: String,
    /// The `data` fields, joined by line feeds.
    pub data: String,
    /// The `id` field of this event, if present.
    pub id: Option<String>,
    /// The `retry` field in milliseconds, if present.
    pub retry_ms: Option<u64>,
}

/// An incremental decoder: pieces of a body are added as they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    current: Event,
    has_data: bool,
}

impl Decoder {
    /// Adds a piece and returns the events that it completes.
    ///
    /// Events without data are returned if they have an id, because priming events have no data.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<Event> {
        self.buffer.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                let event = std::mem::take(&mut self.current);
                if std::mem::take(&mut self.has_data) || event.id.is_some() {
                    events.push(event);
                }
            } else {
                self.field(line);
            }
        }
        events
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.current.name),
            "id" => self.current.id = Some(value.to_owned()),
            "retry" => self.current.retry_ms = value.parse().ok(),
            "data" => {
                if self.has_data {
                    self.current.data.push('\n');
                }
                self.has_data = true;
                self.current.data.push_str(value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_in_pieces_of_any_size() {
        let body = b": note\r\nid:7\r\nevent: message\r\ndata:one\r\ndata: two\r\n\r\nid: 8\n\n";
        for size in 1..body.len() {
            let mut decoder = Decoder::default();
            let events: Vec<Event> = body
                .chunks(size)
                .flat_map(|piece| decoder.feed(piece))
                .collect();
            assert_eq!(events.len(), 2, "pieces of {size} bytes");
            assert_eq!(events[0].data, "one\ntwo");
            assert_eq!(events[0].id.as_deref(), Some("7"));
            assert_eq!(events[1].id.as_deref(), Some("8"));
        }
    }
}
