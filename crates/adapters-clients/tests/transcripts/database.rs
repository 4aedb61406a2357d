//! Databases of opencode, made by hand with the published schemas.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::runtime::{Builder, Runtime};

use crate::scene::Scene;

/// The tables of versions 1.2 to 1.18, without those that are not read.
pub(crate) const FIRST_TABLES: &str = "
CREATE TABLE `session` (`id` text PRIMARY KEY, `project_id` text NOT NULL, `parent_id` text,
  `slug` text NOT NULL, `directory` text NOT NULL, `title` text NOT NULL, `version` text NOT NULL,
  `share_url` text, `summary_additions` integer, `summary_deletions` integer,
  `summary_files` integer, `summary_diffs` text, `revert` text, `permission` text,
  `time_created` integer NOT NULL, `time_updated` integer NOT NULL, `time_compacting` integer,
  `time_archived` integer);
CREATE TABLE `message` (`id` text PRIMARY KEY, `session_id` text NOT NULL,
  `time_created` integer NOT NULL, `time_updated` integer NOT NULL, `data` text NOT NULL,
  CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`)
    REFERENCES `session`(`id`) ON DELETE CASCADE);
CREATE TABLE `part` (`id` text PRIMARY KEY, `message_id` text NOT NULL, `session_id` text NOT NULL,
  `time_created` integer NOT NULL, `time_updated` integer NOT NULL, `data` text NOT NULL,
  CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`)
    REFERENCES `message`(`id`) ON DELETE CASCADE);
CREATE INDEX `message_session_time_created_id_idx` ON `message` (`session_id`,`time_created`,`id`);
CREATE INDEX `part_message_id_id_idx` ON `part` (`message_id`,`id`);
";

/// The tables that version 2 adds.
pub(crate) const SECOND_TABLES: &str = "
CREATE TABLE `session_v2` (`id` text PRIMARY KEY, `project_id` text NOT NULL, `workspace_id` text,
  `parent_id` text, `fork_session_id` text, `fork_boundary` text, `slug` text NOT NULL,
  `directory` text NOT NULL, `path` text, `title` text, `version` text NOT NULL, `metadata` text,
  `agent` text, `model` text, `time_created` integer NOT NULL, `time_updated` integer NOT NULL,
  `time_compacting` integer, `time_archived` integer, `time_suspended` integer);
CREATE TABLE `session_message` (`id` text PRIMARY KEY, `session_id` text NOT NULL,
  `type` text NOT NULL, `seq` integer NOT NULL, `time_created` integer NOT NULL,
  `time_updated` integer NOT NULL, `data` text NOT NULL,
  CONSTRAINT `fk_session_message_session_id_session_v2_id_fk` FOREIGN KEY (`session_id`)
    REFERENCES `session_v2`(`id`) ON DELETE CASCADE);
CREATE UNIQUE INDEX `session_message_session_seq_idx` ON `session_message` (`session_id`,`seq`);
";

/// A database that is being written.
pub(crate) struct Database {
    runtime: Runtime,
    connection: SqliteConnection,
}

impl Database {
    /// Creates `opencode.db` for a user.
    pub(crate) fn of(scene: &Scene, journal: SqliteJournalMode, tables: &str) -> Self {
        Self::at(&database_path(scene), journal, tables)
    }

    pub(crate) fn at(path: &Path, journal: SqliteJournalMode, tables: &str) -> Self {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(journal)
            .pragma("wal_autocheckpoint", "0");
        let connection = runtime.block_on(options.connect()).unwrap();
        let mut database = Self {
            runtime,
            connection,
        };
        database.run(tables);
        database
    }

    pub(crate) fn run(&mut self, statements: &str) {
        let run = sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut self.connection);
        self.runtime.block_on(run).unwrap();
    }

    /// Runs a statement with texts.
    pub(crate) fn insert(&mut self, statement: &str, texts: &[&str]) {
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for text in texts {
            query = query.bind(*text);
        }
        self.runtime
            .block_on(query.execute(&mut self.connection))
            .unwrap();
    }

    pub(crate) fn session(&mut self, table: &str, id: &str, parent: Option<&str>, created: i64) {
        let parent = parent.map_or("NULL".to_owned(), |parent| format!("'{parent}'"));
        self.run(&format!(
            "INSERT INTO {table} (id, project_id, parent_id, slug, directory, title, version, \
             time_created, time_updated) \
             VALUES ('{id}', 'proj-1', {parent}, 'a', '/home/dev/app', 't', '1', {created}, 0)"
        ));
    }

    pub(crate) fn message(&mut self, session: &str, id: &str, data: &Value) {
        let created = data["time"]["created"].as_i64().unwrap_or_default();
        self.insert(
            &format!("INSERT INTO message VALUES (?, ?, {created}, 0, ?)"),
            &[id, session, &data.to_string()],
        );
    }

    pub(crate) fn part(&mut self, message: &str, id: &str, data: &Value) {
        self.insert(
            "INSERT INTO part VALUES (?, ?, 'ses', 0, 0, ?)",
            &[id, message, &data.to_string()],
        );
    }

    pub(crate) fn entry(&mut self, session: &str, id: &str, kind: &str, data: &Value) {
        self.insert(
            "INSERT INTO session_message SELECT ?1, ?2, ?3, count(*), 0, 0, ?4 \
             FROM session_message WHERE session_id = ?2",
            &[id, session, kind, &data.to_string()],
        );
    }

    pub(crate) fn close(self) {
        self.runtime.block_on(self.connection.close()).unwrap();
    }
}

pub(crate) fn database_path(scene: &Scene) -> PathBuf {
    scene.path(".local/share/opencode/opencode.db")
}
