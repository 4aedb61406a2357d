//! The migrations of both databases, embedded in the binary.
//!
//! They are named here and not found by the macro of the driver, which compiles the driver and
//! SQLite a second time, for the build machine.

use std::sync::LazyLock;

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// Returns the files of a database with their names.
macro_rules! files {
    ($database:literal: $($name:literal),*) => {
        [$((
            $name,
            include_str!(concat!("../../../../migrations/", $database, "/", $name, ".sql")),
        )),*]
    };
}

/// Returns the files of a database. Both have the same.
macro_rules! migrations {
    ($database:literal) => {
        files!(
            $database: "0001_usage",
            "0002_store",
            "0003_memory",
            "0004_selection",
            "0005_approvals",
            "0006_recommended",
            "0007_experiments",
            "0008_call_wait",
            "0009_exploration",
            "0010_principals",
            "0011_expected_coverage",
            "0012_server_memories"
        )
    };
}

/// The migrations of SQLite.
pub(super) static SQLITE: LazyLock<Migrator> = LazyLock::new(|| migrator(&migrations!("sqlite")));

/// The migrations of PostgreSQL.
#[cfg(feature = "postgres")]
pub(super) static POSTGRES: LazyLock<Migrator> =
    LazyLock::new(|| migrator(&migrations!("postgres")));

/// Returns the migrations in files that are called `NUMBER_DESCRIPTION`.
fn migrator(files: &[(&'static str, &'static str)]) -> Migrator {
    let migrations = files.iter().map(|(name, sql)| {
        let (version, description) = name.split_once('_').unwrap_or((name, ""));
        Migration::new(
            version.parse().unwrap_or_default(),
            description.replace('_', " ").into(),
            MigrationType::Simple,
            SqlStr::from_static(sql),
            false,
        )
    });
    Migrator::with_migrations(migrations.collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn all_files_are_embedded() {
        for (database, embedded) in [
            ("sqlite", migrations!("sqlite")),
            ("postgres", migrations!("postgres")),
        ] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
            let entries = std::fs::read_dir(folder.join(database)).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            let embedded = embedded.map(|(name, _)| format!("{name}.sql"));
            assert_eq!(names, embedded);
        }
    }

    #[test]
    fn files_are_numbered_from_one() {
        let versions: Vec<i64> = SQLITE.iter().map(|migration| migration.version).collect();
        let n_files = i64::try_from(versions.len()).unwrap();
        assert_eq!(versions, (1..=n_files).collect::<Vec<_>>());
        assert_eq!(SQLITE.iter().nth(7).unwrap().description, "call wait");
    }
}
