//! The tables of a database. Versions and channels differ, so every column is optional that can be.

use std::collections::HashSet;

use sqlx::SqliteConnection;

use super::connection::sqlite_reason;
use crate::transcripts::folders::UnreadableReason;

const COLUMNS: &str = "SELECT info.name FROM sqlite_schema AS known \
    JOIN pragma_table_info(known.name) AS info WHERE known.type = 'table' AND known.name = ?";

/// The longest identifier of opencode has 30 bytes. Longer ones are of somebody else.
const MAX_ID_BYTES: usize = 256;
const MAX_DIRECTORY_CHARS: usize = 4096;
const MAX_KIND_CHARS: usize = 64;

/// The queries for the tables that are there.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) sessions: String,
    /// The tables for messages and parts.
    pub(super) messages: Option<(DocumentTable, DocumentTable)>,
    /// The table for messages of version 2.
    pub(super) entries: Option<DocumentTable>,
}

/// The queries for a table of documents.
#[derive(Debug)]
pub(super) struct DocumentTable {
    /// Returns a page after a rank and an identifier. Texts that are longer than a limit are left out.
    pub(super) page: String,
    /// Returns the text at a place, up to a length.
    pub(super) text: String,
}

/// The columns of a table; none if it is not there.
struct Columns {
    table: &'static str,
    names: HashSet<String>,
}

impl Layout {
    /// Looks at the tables.
    pub(super) async fn of(connection: &mut SqliteConnection) -> Result<Self, UnreadableReason> {
        let mut tables = Vec::new();
        for table in ["session_v2", "session"] {
            let columns = Columns::of(table, connection).await?;
            if columns.have(&["id"]) {
                tables.push(columns);
            }
        }
        let message = Columns::of("message", connection).await?;
        let part = Columns::of("part", connection).await?;
        let entry = Columns::of("session_message", connection).await?;
        let has_messages =
            message.have(&["id", "session_id", "data"]) && part.have(&["id", "message_id", "data"]);
        let has_entries = entry.have(&["id", "session_id", "type", "data"]);
        if tables.is_empty() || !(has_messages || has_entries) {
            return Err(UnreadableReason::NotTranscript);
        }
        let entry_rank = entry.rank(&["seq", "time_created"]);
        Ok(Self {
            sessions: sessions(&tables),
            messages: has_messages.then(|| {
                let rank = message.rank(&["time_created"]);
                // Identifiers of parts sort by time.
                (
                    documents(message.table, "session_id", rank, "NULL"),
                    documents(part.table, "message_id", "0", "NULL"),
                )
            }),
            entries: has_entries
                .then(|| documents(entry.table, "session_id", entry_rank, "whole.type")),
        })
    }
}

impl Columns {
    async fn of(
        table: &'static str,
        connection: &mut SqliteConnection,
    ) -> Result<Self, UnreadableReason> {
        let names: Vec<String> = sqlx::query_scalar(COLUMNS)
            .bind(table)
            .fetch_all(connection)
            .await
            .map_err(sqlite_reason)?;
        let names = names.into_iter().collect();
        Ok(Self { table, names })
    }

    fn have(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.names.contains(*name))
    }

    /// Returns a column, or `NULL` if it is not there.
    fn or_null(&self, name: &'static str) -> &'static str {
        if self.names.contains(name) {
            name
        } else {
            "NULL"
        }
    }

    /// Returns the number by which rows are sorted: the first of these columns that is there.
    fn rank(&self, names: &[&'static str]) -> &'static str {
        (names
            .iter()
            .copied()
            .find(|name| self.names.contains(*name)))
        .unwrap_or("0")
    }
}

/// Returns the query for sessions. One that is in several tables is taken from the first.
fn sessions(tables: &[Columns]) -> String {
    let selects = tables.iter().enumerate().map(|(number, columns)| {
        let table = columns.table;
        let rank = columns.rank(&["time_created"]);
        let (parent, directory) = (columns.or_null("parent_id"), columns.or_null("directory"));
        let is_new = tables[..number].iter().map(|earlier| {
            let earlier = earlier.table;
            format!(" AND NOT EXISTS (SELECT 1 FROM {earlier} WHERE {earlier}.id = {table}.id)")
        });
        format!(
            "SELECT id, {parent} AS parent, {directory} AS directory, \
             CASE WHEN typeof({rank}) = 'integer' THEN {rank} ELSE 0 END AS rank FROM {table} WHERE {}{}",
            id_check(),
            is_new.collect::<String>()
        )
    });
    format!(
        "SELECT id, rank, CAST(substr(parent, 1, {MAX_ID_BYTES}) AS TEXT), \
         CAST(CAST(substr(directory, 1, {MAX_DIRECTORY_CHARS}) AS TEXT) AS BLOB) \
         FROM ({}) WHERE (rank, id) > (?, ?) ORDER BY rank, id LIMIT ?",
        selects.collect::<Vec<_>>().join(" UNION ALL ")
    )
}

/// Returns the queries for the documents that belong to something. The page is sorted before texts
/// are read: the sorter would carry all of them. The rank stands alone, so that its index is used; all
/// versions have whole numbers there.
fn documents(
    table: &'static str,
    owner: &'static str,
    rank: &'static str,
    kind: &'static str,
) -> DocumentTable {
    let page = format!(
        "WITH page AS MATERIALIZED (\
             SELECT rowid AS place, id AS id, {rank} AS rank FROM {table} \
             WHERE {owner} = ? AND {ID_CHECK} AND typeof({rank}) = 'integer' \
                 AND ({rank}, id) > (?, ?) \
             ORDER BY rank, id LIMIT ?) \
         SELECT page.id, page.rank, page.place, CAST(substr({kind}, 1, {MAX_KIND_CHARS}) AS TEXT), \
             octet_length(whole.data), \
             CASE WHEN octet_length(whole.data) <= ? THEN CAST(whole.data AS BLOB) END \
         FROM page JOIN {table} AS whole ON whole.rowid = page.place ORDER BY page.rank, page.id",
        ID_CHECK = id_check()
    );
    let text = format!(
        "SELECT CAST(data AS BLOB) FROM {table} WHERE rowid = ? AND octet_length(data) <= ?"
    );
    DocumentTable { page, text }
}

/// Returns the condition for identifiers by which pages can follow each other.
fn id_check() -> String {
    format!("typeof(id) = 'text' AND octet_length(id) <= {MAX_ID_BYTES}")
}
