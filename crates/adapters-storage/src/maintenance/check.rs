//! The integrity check of the database.

mod counts;
mod rows;
mod structure;

use std::error::Error;

use riglm_ports::analytics::{IntegrityProblem, StoreError};

use crate::error::ShortError;
use crate::store::Store;

// The maximum number of problems that are reported for each table.
const MAX_TOLD: usize = 20;

/// The result codes of SQLite for a damaged file and for a file that is not a database.
const SQLITE_DAMAGED: [u32; 2] = [11, 26];
/// The codes of PostgreSQL for damaged tables and damaged indexes.
const POSTGRES_DAMAGED: [&str; 2] = ["XX001", "XX002"];

/// Checks the structure of the database, its counts, and the references between its rows.
pub(super) async fn check(store: &Store) -> Result<Vec<IntegrityProblem>, StoreError> {
    let mut findings = CheckFindings::default();
    let database = match store.database().await {
        Ok(database) => database,
        Err(error) => {
            findings.add_damage(error)?;
            return Ok(findings.0);
        }
    };
    let checked = structure::check(database, &mut findings).await;
    findings.add_damage_of(checked)?;
    let checked = counts::check(database, &mut findings).await;
    findings.add_damage_of(checked)?;
    let checked = rows::check(database, &mut findings).await;
    findings.add_damage_of(checked)?;
    Ok(findings.0)
}

#[derive(Debug, Default)]
struct CheckFindings(Vec<IntegrityProblem>);

impl CheckFindings {
    fn add(&mut self, subject: &str, problem: impl Into<String>) {
        self.0.push(IntegrityProblem {
            subject: subject.into(),
            problem: problem.into(),
        });
    }

    /// Adds problems of a subject: the first ones, and the number of the others.
    fn add_limited(&mut self, subject: &str, mut problems: Vec<String>) {
        let n_more = problems.len().saturating_sub(MAX_TOLD);
        problems.truncate(MAX_TOLD);
        for problem in problems {
            self.add(subject, problem);
        }
        if n_more > 0 {
            self.add(subject, format!("{n_more} more rows are wrong"));
        }
    }

    fn add_damage_of(&mut self, checked: Result<(), StoreError>) -> Result<(), StoreError> {
        checked.or_else(|error| self.add_damage(error))
    }

    /// Adds the damage that an error reports.
    ///
    /// # Errors
    ///
    /// Returns the error when it has another cause.
    fn add_damage(&mut self, error: StoreError) -> Result<(), StoreError> {
        match error {
            StoreError::Damaged { what, reason } => self.add(&what, reason),
            StoreError::Corrupt { table, reason } => {
                self.add(table, format!("a row holds an unexpected value: {reason}"));
            }
            error => match damage(&error) {
                Some(reason) => self.add("database", reason),
                None => return Err(error),
            },
        }
        Ok(())
    }
}

/// Returns the message of the database about its damage, if damage is the cause of the error.
fn damage(error: &StoreError) -> Option<String> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let plain = error
            .downcast_ref::<ShortError>()
            .map(|ShortError(error)| error);
        if let Some(sqlx::Error::Database(error)) = plain.or_else(|| error.downcast_ref()) {
            let code = error.code()?;
            // The low byte of an extended result code of SQLite is the primary one.
            let is_damaged = match code.parse::<u32>() {
                Ok(code)
                    if error
                        .try_downcast_ref::<sqlx::sqlite::SqliteError>()
                        .is_some() =>
                {
                    SQLITE_DAMAGED.contains(&(code & 0xff))
                }
                _ => POSTGRES_DAMAGED.contains(&&*code),
            };
            return is_damaged.then(|| error.message().to_owned());
        }
        cause = error.source();
    }
    None
}
