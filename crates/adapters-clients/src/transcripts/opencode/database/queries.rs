//! The queries: page by page, so that no lock is held for long and memory stays bounded.

use std::path::Path;
use std::sync::mpsc::SyncSender;

use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

use super::connection::{open, sqlite_reason};
use super::layout::{DocumentTable, Layout};
use super::{Document, Record, SessionRow};
use crate::transcripts::folders::UnreadableReason;
use crate::transcripts::lines::MAX_LINE_BYTES;
use crate::transcripts::reader::io_reason;

/// The number of rows of a page.
const PAGE_ROWS: i64 = 64;
/// Texts of more bytes are skipped, as in the files.
const MAX_TEXT_BYTES: i64 = MAX_LINE_BYTES.cast_signed();
/// Texts of more bytes are read one by one.
const MAX_PAGE_TEXT_BYTES: i64 = 256 << 10;
/// The bytes, and the number of records, after which a batch is passed on.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 1024;

/// The place after which a page starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    rank: i64,
    id: String,
}

/// The columns of a session: identifier, rank, parent and directory.
type SessionColumns = (String, i64, Option<String>, Option<Vec<u8>>);

/// The columns of a row: identifier, rank, place, kind, size and text.
type Row = (
    String,
    i64,
    i64,
    Option<String>,
    Option<i64>,
    Option<Vec<u8>>,
);

/// Reads all sessions of a database.
pub(super) fn send_records(
    path: &Path,
    sender: SyncSender<Vec<Record>>,
) -> Result<(), UnreadableReason> {
    // The runtime of the caller does not run futures in a function that waits.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(io_reason)?;
    runtime.block_on(async {
        let mut queries = Queries {
            connection: open(path).await?,
            outbox: Outbox::new(sender),
        };
        let outcome = queries.sessions().await;
        queries.outbox.flush();
        // Nothing was written, so nothing can fail that matters.
        let _ = queries.connection.close().await;
        outcome
    })
}

/// Collects records into batches.
struct Outbox {
    sender: SyncSender<Vec<Record>>,
    batch: Vec<Record>,
    n_bytes: usize,
}

impl Outbox {
    fn new(sender: SyncSender<Vec<Record>>) -> Self {
        Self {
            sender,
            batch: Vec::new(),
            n_bytes: 0,
        }
    }

    fn push(&mut self, record: Record) {
        self.n_bytes += match &record {
            Record::Session(session) => session.id.len(),
            Record::Message(document) | Record::Part(document) | Record::Entry { document, .. } => {
                document.text.as_ref().map_or(0, String::len)
            }
        };
        self.batch.push(record);
        if self.n_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_RECORDS {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.n_bytes = 0;
        // The receiver is gone only if its thread panics, and then nobody misses the batch.
        let _ = self.sender.send(std::mem::take(&mut self.batch));
    }
}

struct Queries {
    connection: SqliteConnection,
    outbox: Outbox,
}

impl Queries {
    async fn sessions(&mut self) -> Result<(), UnreadableReason> {
        let layout = Layout::of(&mut self.connection).await?;
        let mut next = Some(Cursor::start());
        while let Some(cursor) = next.take() {
            let page: Vec<SessionColumns> = sqlx::query_as(AssertSqlSafe(layout.sessions.as_str()))
                .bind(cursor.rank)
                .bind(&cursor.id)
                .bind(PAGE_ROWS)
                .fetch_all(&mut self.connection)
                .await
                .map_err(sqlite_reason)?;
            next = cursor.after(page.iter().map(|(id, rank, ..)| (id, *rank)));
            for (id, _, parent, directory) in page {
                let directory = directory.map(|bytes| text_of(&bytes));
                self.outbox.push(Record::Session(SessionRow {
                    id: id.clone(),
                    parent,
                    directory: directory.filter(|it| !it.is_empty()),
                }));
                if let Some((messages, parts)) = &layout.messages {
                    self.messages(&id, messages, parts).await?;
                }
                if let Some(entries) = &layout.entries {
                    self.entries(&id, entries).await?;
                }
            }
        }
        Ok(())
    }

    async fn messages(
        &mut self,
        session: &str,
        messages: &DocumentTable,
        parts: &DocumentTable,
    ) -> Result<(), UnreadableReason> {
        let mut next = Some(Cursor::start());
        while let Some(cursor) = next.take() {
            let page = self.page(session, messages, &cursor).await?;
            next = cursor.after(page.iter().map(|row| (&row.0, row.1)));
            for row in page {
                let message = self.document(messages, row).await?;
                let id = message.id.clone();
                self.outbox.push(Record::Message(message));
                self.parts(&id, parts).await?;
            }
        }
        Ok(())
    }

    async fn parts(
        &mut self,
        message: &str,
        parts: &DocumentTable,
    ) -> Result<(), UnreadableReason> {
        let mut next = Some(Cursor::start());
        while let Some(cursor) = next.take() {
            let page = self.page(message, parts, &cursor).await?;
            next = cursor.after(page.iter().map(|row| (&row.0, row.1)));
            for row in page {
                let part = self.document(parts, row).await?;
                self.outbox.push(Record::Part(part));
            }
        }
        Ok(())
    }

    async fn entries(
        &mut self,
        session: &str,
        entries: &DocumentTable,
    ) -> Result<(), UnreadableReason> {
        let mut next = Some(Cursor::start());
        while let Some(cursor) = next.take() {
            let page = self.page(session, entries, &cursor).await?;
            next = cursor.after(page.iter().map(|row| (&row.0, row.1)));
            for mut row in page {
                let kind = row.3.take().unwrap_or_default();
                let document = self.document(entries, row).await?;
                self.outbox.push(Record::Entry { kind, document });
            }
        }
        Ok(())
    }

    /// Returns the page after the cursor.
    async fn page(
        &mut self,
        owner: &str,
        table: &DocumentTable,
        cursor: &Cursor,
    ) -> Result<Vec<Row>, UnreadableReason> {
        sqlx::query_as(AssertSqlSafe(table.page.as_str()))
            .bind(owner)
            .bind(cursor.rank)
            .bind(&cursor.id)
            .bind(PAGE_ROWS)
            .bind(MAX_PAGE_TEXT_BYTES)
            .fetch_all(&mut self.connection)
            .await
            .map_err(sqlite_reason)
    }

    /// Returns the document of a row, and reads its text if the page has it not.
    async fn document(
        &mut self,
        table: &DocumentTable,
        row: Row,
    ) -> Result<Document, UnreadableReason> {
        let (id, _, place, _, size, bytes) = row;
        if size.is_some_and(|size| size > MAX_TEXT_BYTES) {
            return Ok(Document { id, text: None });
        }
        let bytes = match bytes {
            None if size.is_some() => sqlx::query_scalar(AssertSqlSafe(table.text.as_str()))
                .bind(place)
                .bind(MAX_TEXT_BYTES)
                .fetch_optional(&mut self.connection)
                .await
                .map_err(sqlite_reason)?,
            bytes => bytes,
        };
        let text = bytes.map(|bytes: Vec<u8>| text_of(&bytes));
        Ok(Document {
            id,
            text: Some(text.unwrap_or_default()),
        })
    }
}

impl Cursor {
    fn start() -> Self {
        Self {
            rank: i64::MIN,
            id: String::new(),
        }
    }

    /// Returns the cursor after the last row of the page that started here. A page with fewer rows than
    /// it may have is the last.
    fn after<'a>(&self, rows: impl ExactSizeIterator<Item = (&'a String, i64)>) -> Option<Self> {
        let is_full = i64::try_from(rows.len()).is_ok_and(|n_rows| n_rows >= PAGE_ROWS);
        let (id, rank) = rows.last().filter(|_| is_full)?;
        let next = Self {
            rank,
            id: id.clone(),
        };
        // A damaged index could lead back to the same page.
        (next > *self).then_some(next)
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
